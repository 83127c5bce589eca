"""Finds who serves a model.

The name of a model comes in, with its wildcards and defaults; deployments go out, or ``UnknownModel``. This package
never calls a provider.
"""

from proxy.deployments.choice import provider_of
from proxy.deployments.table import ListedModel, ModelTable, deployment_of

__all__ = ["ListedModel", "ModelTable", "deployment_of", "provider_of"]

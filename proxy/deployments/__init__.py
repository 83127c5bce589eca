"""Finds the deployments that serve a model.

The input is the name of a model; wildcards and defaults of the configuration are applied. The result is deployments, or
``UnknownModel``. This package never calls a provider.
"""

from proxy.deployments.table import ListedModel, ModelTable, deployment_of, provider_of

__all__ = ["ListedModel", "ModelTable", "deployment_of", "provider_of"]

"""The model table: names, wildcards and defaults, resolved to deployments."""

from proxy.deployments.choice import provider_of
from proxy.deployments.table import ListedModel, ModelTable, deployment_of

__all__ = ["ListedModel", "ModelTable", "deployment_of", "provider_of"]

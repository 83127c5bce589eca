"""Addresses of Azure's own API. They are used where a deployment of the http transport sets ``api_version``, as in
LiteLLM's config.

https://learn.microsoft.com/en-us/azure/ai-services/openai/reference
"""

from urllib.parse import quote, unquote

from proxy.ports import Deployment

_FRONT = "/openai"
# What is asked of a deployment; all other paths are the resource's.
_OF_DEPLOYMENTS = (
    "/chat/completions", "/completions", "/embeddings", "/images/generations", "/images/edits", "/audio/speech",
    "/audio/transcriptions", "/audio/translations",
)  # fmt: skip
_VERSION = "api-version"


def azure_address(deployment: Deployment, path: str, query: str) -> str:
    """The address for a path behind ``/v1``: the deployment in it, and the version of the API."""
    host = deployment.base_url.partition(_FRONT)[0]
    if path.startswith(f"{_FRONT}/"):
        front = ""
    elif path in _OF_DEPLOYMENTS:
        front = f"{_FRONT}/deployments/{quote(deployment.model, safe='')}"
    else:
        front = _FRONT
    names = {unquote(part.partition("=")[0]).lower() for part in query.split("&")}
    version = f"{_VERSION}={quote(str(deployment.params['api_version']), safe='')}"
    parts = [part for part in (query, "" if _VERSION in names else version) if part]
    return f"{host}{front}{path}?{'&'.join(parts)}"

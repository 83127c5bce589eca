"""Deployments for clients who bring the provider's key along: nothing of the operator's own may serve them."""

import re
from dataclasses import replace

from proxy.ports import Deployment

# Words in a name that stand for a credential, or for whose account it is.
_SECRET = re.compile(
    r"(^|[_-])(auth|authorization|key|token|secret|credentials?|password|cookie|organization|project|account|role"
    r"|profile|session|sts|tenant|client|identity)([_-]|$)"
)


def without_credentials(deployment: Deployment) -> Deployment:
    """The deployment without its key, and without headers and parameters that could stand for one."""
    return replace(
        deployment,
        api_key=None,
        headers=tuple((name, value) for name, value in deployment.headers if not _SECRET.search(name.lower())),
        params={name: value for name, value in deployment.params.items() if not _SECRET.search(name.lower())},
    )

"""Checks that no request takes the proxy's own key upstream."""

from collections.abc import Sequence

from proxy.engine.headers import uses_operators_key
from proxy.errors import Forbidden
from proxy.ports import Deployment, Principal, Transport


def check_upstream_keys(principal: Principal, deployments: Sequence[Deployment]) -> None:
    """Raises Forbidden where a deployment needs the client's own key and the key of the request is the proxy's. If that
    went upstream, it would be given away."""
    for one in deployments:
        needs_key = one.transport is Transport.HTTP and not uses_operators_key(one)
        if needs_key and principal.virtual:
            raise Forbidden(
                f"Model '{one.name}' has no api_key in the proxy's configuration, and the key of this request "
                "is the proxy's own, which is never sent upstream. Set litellm_params.api_key for the model. Any "
                "text will do where the server needs no key.",
                code="upstream_key_missing",
            )

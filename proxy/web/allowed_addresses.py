"""Lets in only clients that connect from certain addresses (LiteLLM's ``general_settings.allowed_ips``).

Only the address of the connection counts, because a client can write any address into a header. Probes are answered to
everyone, as by LiteLLM, because they come from the machines that run the proxy.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.core.value import dataclass
from proxy.errors import Forbidden
from proxy.web.errors import error_response

Networks = Sequence[IPv4Network | IPv6Network]
PROBES = frozenset({"/healthz", "/readyz", "/health/liveliness", "/health/liveness", "/health/readiness"})


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
    """Lets only clients from these networks reach the app."""

    app: ASGIApp
    networks: Networks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in PROBES or self._admits(scope.get("client")):
            await self.app(scope, receive, send)
        else:
            refusal = error_response(Forbidden("This address may not use the proxy.", code="address_not_allowed"))
            await refusal(scope, receive, send)

    def _admits(self, client: Sequence[object] | None) -> bool:
        try:
            address = ip_address(str(client[0]).partition("%")[0]) if client else None
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in network for network in self.networks if address is not None)

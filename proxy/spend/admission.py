"""Admission: who may send a request, and whether there is money for it (the port of that name)."""

from collections.abc import Sequence

from proxy.access.authentication import Identity
from proxy.engine.exchange import Exchange
from proxy.engine.headers import uses_operators_key
from proxy.errors import Forbidden
from proxy.ports import Deployment, Transport
from proxy.spend.reservations import BudgetReservations


class AdmissionControl:
    """Identity and budget reservations behind one port: it is made of their methods, but for ``reserve``."""

    def __init__(self, identity: Identity, reservations: BudgetReservations) -> None:
        self._reservations = reservations
        # Settling never waits where the store is this process's memory.
        self.is_immediate = not reservations.store_client.is_durable
        self.admit = identity.admit
        self.settle, self.aclose = reservations.settle, reservations.aclose
        self.defer, self.settle_later = reservations.defer, reservations.settle_later

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        """Set aside the most that this request can cost. Raises BudgetExceeded, RateLimited, BudgetUnavailable,
        Forbidden."""
        principal, deployment = exchange.principal, exchange.deployment
        assert deployment is not None
        for one in (deployment, *others):
            needs_key = one.transport is Transport.HTTP and not uses_operators_key(one)
            if needs_key and principal is not None and principal.virtual:
                # The key of the request is this proxy's own. If it went upstream, it would be given away.
                raise Forbidden(
                    f"Model '{one.name}' has no api_key in the proxy's configuration, and the key of this request "
                    "is the proxy's own, which is never sent upstream. Set litellm_params.api_key for the model. Any "
                    "text will do where the server needs no key.",
                    code="upstream_key_missing",
                )
        await self._reservations.reserve(exchange, others)

"""Admission: who may send a request, and whether there is money for it (the port of that name)."""

from proxy.access.authentication import Identity
from proxy.core.request.demand import Demand
from proxy.engine.exchange import Exchange
from proxy.engine.headers import uses_operators_key
from proxy.errors import Forbidden
from proxy.ports import Deployment, Headers, Principal, Reservation, Transport
from proxy.spend.reservations import BudgetReservations


class AdmissionControl:
    """Identity and accounts behind the Admission port."""

    def __init__(self, identity: Identity, accounts: BudgetReservations) -> None:
        self._identity = identity
        self._accounts = accounts

    @property
    def is_immediate(self) -> bool:
        """Whether settling never waits: the store is this process's memory."""
        return not self._accounts.is_durable

    def admit(self, headers: Headers, now: float) -> Principal:
        """Who this is. Raises Unauthorized."""
        return self._identity.admit(headers, now)

    async def reserve(self, exchange: Exchange, deployment: Deployment, demand: Demand) -> Reservation:
        """Set aside the most that this request can cost. Raises BudgetExceeded, RateLimited, BudgetUnavailable,
        Forbidden."""
        principal = exchange.principal
        for one in (deployment, *deployment.others):
            needs_key = one.transport is Transport.HTTP and not uses_operators_key(one)
            if needs_key and principal is not None and principal.virtual:
                # The key is this proxy's own; sent on, it would be given away to the upstream.
                raise Forbidden(
                    f"Model '{one.name}' has no api_key in the proxy's configuration, and the key of this request "
                    "is the proxy's own, which is never sent upstream. Set litellm_params.api_key for it (any text "
                    "where the server needs none).",
                    code="upstream_key_missing",
                )
        return await self._accounts.reserve(exchange, deployment, demand)

    async def defer(self, exchange: Exchange) -> None:
        """Keep the reservation of an exchange whose cost is known later."""
        await self._accounts.defer(exchange)

    async def settle_later(self, exchange: Exchange) -> None:
        """Settle an exchange that was deferred."""
        await self._accounts.settle_later(exchange)

    async def settle(self, exchange: Exchange) -> None:
        """Replace the reservation by what the exchange cost."""
        await self._accounts.settle(exchange)

    async def aclose(self) -> None:
        """Write what is not written yet, and release the store."""
        await self._accounts.aclose()

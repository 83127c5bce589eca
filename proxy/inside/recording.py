"""Writes attempts into the ledger (the port Admission). LiteLLM admits requests and enforces its own budgets: nothing
is asked here, nothing reserved, and nothing refused."""

from collections.abc import Sequence

from proxy.engine.exchange import Exchange, Settlement
from proxy.errors import Unauthorized
from proxy.ports import Deployment, Headers, Principal, Reservation
from proxy.spend.ledger import settled_entry
from proxy.spend.store_client import StoreClient
from proxy.storage.port import Settle


class Recording:
    """Records what exchanges have cost."""

    def __init__(self, store_client: StoreClient) -> None:
        self._store_client = store_client
        self.is_immediate = not store_client.is_durable

    def admit(self, headers: Headers, now: float) -> Principal:
        """Raises Unauthorized: LiteLLM has said who this is, before anybody asked here."""
        raise Unauthorized("LiteLLM admits requests")

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        """Have the exchange's end recorded, where the store outlives this process: nobody else reads its ledger."""
        if self._store_client.is_durable:
            exchange.reservation = Reservation(exchange.arrival.id, exchange.admitted.team)

    async def extend(self, exchange: Exchange, spent: Settlement, further_tokens: int = 0) -> bool:
        """There is always room."""
        return True

    async def take_turn(self, exchange: Exchange, deployment: Deployment) -> None:
        """LiteLLM enforces the limits of its deployments."""

    async def weigh(self, exchange: Exchange) -> None:
        """No limit holds: the planner's count of the prompt is good enough."""

    async def settle(self, exchange: Exchange) -> None:
        """Write the exchange's entry: into the store, or into the spool while the store is away."""
        await self._store_client.settle(Settle(settled_entry(exchange), ()))

    defer = settle_later = settle

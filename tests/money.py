"""Accounts with a store in memory and the rules of a test, and exchanges that use them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from proxy.engine.exchange import Exchange, ExchangeOutcome, Principal, Settlement
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.clock import Clock
from proxy.kit.errors import StoreError, Unauthorized
from proxy.kit.tasks import Aside
from proxy.models import Deployment, Headers, Transport
from proxy.models.charges import Rule
from proxy.protocol.prices import Price, cost
from proxy.protocol.providers import NONE
from proxy.protocol.request.demand import BillingKind, Demand
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.storage import Charge, KeyRecord, Store, TeamRecord
from proxy.storage.sqlite import MemoryStore, Spool
from proxy.teams.alerts import BudgetAlerts, WebhookSender
from proxy.teams.authentication import Declared, Directory, Identity
from proxy.teams.estimates import Estimates, PromptBounds
from proxy.teams.reservations import BudgetReservations
from proxy.teams.store_client import StoreClient, StoreTimes
from tests.doubles import ManualClock
from tests.exchanges import make_exchange
from tests.waiting import until_async

NOW = 1_700_000_000.0
MODEL = Deployment("m", "m", Transport.HTTP, NONE)
BOUNDS = PromptBounds(bytes_over_four, Aside(), lambda _: False, 512 << 20)
RED = Principal("scope", "red", key_id="key-1", user="ann")
# One dollar per token makes amounts easy to read.
PRICE = Price(input=1.0, output=1.0, read=0.1, write_5m=1.25, write_1h=2.0)


@dataclass
class FixedRules:
    """The same rules for every principal."""

    held: Sequence[Rule] = ()
    are_known: bool = True

    def may_hold(self, principal: Principal) -> bool:
        return True

    def rules(self, principal: Principal, *deployments: Deployment) -> Sequence[Rule]:
        return self.held


_FLAKY = {"reserve", "settle", "carry_out", "renew", "expire", "claim", "ping", "forget_entries", "directory_version"}


class Flaky(MemoryStore):
    """A store that can be switched off. It claims to be durable, so that nothing is left out because of it."""

    is_durable = True

    def __init__(self) -> None:
        super().__init__()
        self.is_out = False
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in _FLAKY:
            return found

        async def call(*args: Any, **more: Any) -> Any:
            self.calls.append(name)
            if self.is_out:
                raise StoreError("gone fishing")
            return await found(*args, **more)

        return call


@dataclass
class Budgeting:
    """Accounts with all their collaborators."""

    reservations: BudgetReservations
    store_client: StoreClient
    store: Any
    metrics: Metrics
    clock: ManualClock
    rules: FixedRules = field(default_factory=FixedRules)

    async def reserve(
        self,
        exchange: Exchange,
        limit: int | None = 0,
        choices: int = 1,
        others: Sequence[Deployment] = (),
        kind: BillingKind = BillingKind.TEXT,
    ) -> Any:
        """Reserve for an exchange. A limit of 0 is the smallest one that there can be; None is no limit."""
        exchange.requested = replace(exchange.requested, demand=Demand(kind, limit, choices))
        await self.reservations.reserve(exchange, others)
        return exchange.reservation

    async def settle(
        self,
        exchange: Exchange,
        usage: Usage | None = None,
        ending: ExchangeOutcome = ExchangeOutcome.COMPLETED,
        saved_usd: float = 0.0,
    ) -> None:
        """End the exchange with this usage."""
        exchange.attempts, exchange.ending, exchange.answer.status = 1, ending, 200
        cost_usd = cost(usage, PRICE).total_usd if usage is not None else 0.0
        exchange.settlement = Settlement(usage, cost_usd, saved_usd)
        await self.reservations.settle(exchange)

    async def in_step(self) -> None:
        """Wait until the store has everything that was put off."""
        await until_async(lambda: self.store_client.is_in_step)

    def sample(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        return self.metrics.registry.get_sample_value(f"stratiform_{name}", labels) or 0.0


def nobody(headers: Headers, now: float) -> Principal:
    """Admits no client."""
    raise Unauthorized("nobody is admitted here")


@asynccontextmanager
async def budgeting(
    *rules: Rule,
    store: Store | None = None,
    price: Price | None = PRICE,
    spool: Path | None = None,
    webhooks: WebhookSender | None = None,
    clock: ManualClock | None = None,
    **more: Any,
) -> AsyncIterator[Budgeting]:
    """Accounts that have been started."""
    metrics, held, store = Metrics(), FixedRules(rules), store or Flaky()
    clock = clock or ManualClock(NOW)
    times = {name: more.pop(name) for name in ("lease_s", "timeout_s", "retry_s") if name in more}
    store_client = StoreClient(
        store,
        clock,
        metrics,
        [Spool(spool)] if spool is not None else [],
        StoreTimes(**{"retry_s": 0.01, **times}),
        more.pop("keep_entries_s", None),
    )
    alerts = BudgetAlerts(store_client, metrics, webhooks or WebhookSender(b"", clock, metrics))
    estimates = Estimates(lambda _: price, BOUNDS, allows_unknown=more.pop("on_unknown_price", "refuse") == "allow")
    given = {"on_store_error": "allow", "epochs": None, **more}
    reservations = BudgetReservations(nobody, held, store_client, alerts, estimates, **given)
    await reservations.start()
    try:
        yield Budgeting(reservations, store_client, store, metrics, clock, held)
    finally:
        await reservations.aclose()


def exchange(size: int = 0, at: float = NOW, who: Principal = RED, **given: Any) -> Exchange:
    """A request whose body has ``size`` bytes."""
    return make_exchange(now=at, is_chat=True, principal=who, deployment=MODEL, size=size, **given)


def admission_control(*keys: str, clock: Clock | None = None) -> BudgetReservations:
    """The real admission: one team with these keys and no budget."""
    store, metrics = MemoryStore(), Metrics()
    clock = clock or ManualClock(NOW)
    records = [KeyRecord(f"key-{n}", sha256(key.encode()).hexdigest(), "blue") for n, key in enumerate(keys)]
    known = Directory(Declared(teams=[TeamRecord("blue")] if keys else [], keys=records), store)
    asyncio.run(known.load())
    store_client = StoreClient(store, clock, metrics)
    alerts = BudgetAlerts(store_client, metrics, WebhookSender(b"", clock, metrics))
    return BudgetReservations(
        Identity(known, b"salt").admit, FixedRules(), store_client, alerts,
        Estimates(lambda _: None, BOUNDS, allows_unknown=False), on_store_error="allow", epochs=None,
    )  # fmt: skip


DOLLAR = 10**9
TOTAL = Rule("total", "the budget 'total' of team 'red'", hard=1000 * DOLLAR, assumed_output_tokens=5)
# 50 uncounted bytes can become at most 80 tokens: 50 tokens, and the template. At $2 each that is $160.
SIZE, MOST = 50, 160 * DOLLAR


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def spent(one: Budgeting, account: str = "b:total:-:total", team: str = "red") -> tuple[int, int]:
    balance = await one.store.balance(team, Charge(account, 0), NOW)
    return balance.spent, balance.reserved


async def reserved(one: Budgeting, asked: Any) -> Any:
    await one.reserve(asked)
    return asked

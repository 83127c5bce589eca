"""A clock that is stepped opens no window and forgets nothing, on every engine; hosts whose clocks differ agree."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from proxy.engine.exchange import ExchangeOutcome, Settlement
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.clock import SETTLED_S, Readings, SteadyClock
from proxy.kit.errors import BudgetExceeded
from proxy.models.charges import NANOS_PER_USD, Rule
from proxy.protocol.request.demand import BillingKind, Demand
from proxy.protocol.response.usage import Usage
from proxy.storage import Charge, LedgerEntry, Reserve, Settle, Store
from proxy.teams.alerts import BudgetAlerts, WebhookSender
from proxy.teams.estimates import Estimates
from proxy.teams.reservations import BudgetReservations
from proxy.teams.store_client import StoreClient, ask_time, report_departure
from tests.contract.stores import ENGINES, redis, redis_store
from tests.money import BOUNDS, PRICE, FixedRules, exchange, nobody

# At noon of a day, so that a step of an hour stays within it.
NOON = 1_700_049_600.0
HOUR, DAY = 3600.0, 86400.0
BUDGET = Rule("b", "the budget", hard=10 * NANOS_PER_USD)
WINDOWS = ("hour", "day", "rolling:3600", "total")


@dataclass
class Machine:
    """A host's clocks, which go on only when they are told to."""

    wall: float = NOON
    monotonic: float = 500.0

    def readings(self) -> Readings:
        return Readings(lambda: self.wall, lambda: self.monotonic)

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@dataclass
class Host:
    """A worker on a machine: its clock, and reservations with a budget of ten dollars in one window."""

    machine: Machine
    clock: SteadyClock
    reservations: BudgetReservations

    async def spend(self, tokens: int = 1) -> bool:
        """Whether so many dollars could be spent."""
        made = exchange(at=self.clock.now(), demand=Demand(BillingKind.TEXT, tokens, 1))
        try:
            await self.reservations.reserve(made)
        except BudgetExceeded:
            return False
        made.attempts, made.ending, made.answer.status = 1, ExchangeOutcome.COMPLETED, 200
        made.settlement = Settlement(Usage(0, tokens), float(tokens), 0.0)
        await self.reservations.settle(made)
        return True


@asynccontextmanager
async def host(store: Store, window: str, machine: Machine) -> AsyncIterator[Host]:
    metrics = Metrics()
    clock = SteadyClock(machine.readings(), partial(report_departure, metrics))
    await ask_time(clock, store)
    rule = Rule(BUDGET.id, BUDGET.title, hard=BUDGET.hard, window=window)
    store_client = StoreClient(store, clock, metrics)
    alerts = BudgetAlerts(store_client, metrics, WebhookSender(b"", clock, metrics))
    reservations = BudgetReservations(
        nobody, FixedRules([rule]), store_client, alerts, Estimates(lambda _: PRICE, BOUNDS, allows_unknown=False),
        on_store_error="allow", epochs=None,
    )  # fmt: skip
    yield Host(machine, clock, reservations)


async def exhaust(one: Host) -> None:
    for _ in range(10):
        assert await one.spend()
    assert not await one.spend()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_clock_that_is_stepped_refills_no_budget(engine: str, window: str, tmp_path: Path) -> None:
    async with ENGINES[engine](tmp_path) as store, host(_without_time(store), window, Machine()) as one:
        await exhaust(one)
        for step in (-HOUR, HOUR + DAY, -DAY):
            one.machine.wall += step
            for _ in range(5):
                assert not await one.spend()
                one.machine.passes(40)
        assert one.machine.wall == NOON + 600


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_new_time_that_has_stood_opens_the_window(engine: str, tmp_path: Path) -> None:
    async with ENGINES[engine](tmp_path) as store, host(_without_time(store), "day", Machine()) as one:
        await exhaust(one)
        one.machine.wall += DAY
        assert not await one.spend()
        one.machine.passes(SETTLED_S - 1)
        assert not await one.spend()
        one.machine.passes(1)
        assert await one.spend()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_clock_that_is_stepped_prunes_nothing_and_bills_nothing(engine: str, tmp_path: Path) -> None:
    async with ENGINES[engine](tmp_path) as store:
        machine = Machine()
        clock = SteadyClock(machine.readings())
        charge = Charge("a", 5, None, keep_s=HOUR)
        await store.save("scope", {"name": b"blob"}, DAY, clock.now())
        await store.settle(Settle(LedgerEntry("old", clock.now(), "red"), [charge]), clock.now())
        entry = LedgerEntry("runs", clock.now(), "red")
        await store.reserve(Reserve("runs", "red", [charge], clock.now() + 60, entry), clock.now())
        machine.wall += 400 * DAY
        store_client = StoreClient(store, clock, Metrics(), keep_entries_s=30 * DAY)
        await store_client.start()
        assert await store.expire(clock.now()) == 0
        assert [one.exchange_id for one in await store.entries(0, NOON + 1000 * DAY)] == ["old"]
        balance = await store.balance("red", Charge("a", 0), clock.now())
        assert (balance.spent, balance.reserved) == (5, 5)
        assert await store.load("scope", ["name"], clock.now()) == [b"blob"]
        await store_client.aclose()


async def test_hosts_whose_clocks_differ_go_by_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with redis(tmp_path) as store, redis_store((tmp_path / "address").read_text()) as same:
        true = await store.time()
        assert true is not None
        # The server's clock goes on: a window that has an end might end now.
        window = "rolling:3600"
        async with (
            host(store, window, Machine(wall=true)) as right,
            host(same, window, Machine(wall=true - 2 * HOUR, monotonic=70_000.0)) as wrong,
        ):
            assert abs(right.clock.now() - wrong.clock.now()) < 60
            await exhaust(right)
            assert not await wrong.spend()
    assert "off the store's" in caplog.text


def _without_time(store: Store) -> Store:
    """The engine, with its clock on the same machine as the worker: it is stepped with it."""

    async def time() -> None:
        return None

    store.time = time  # type: ignore[method-assign]
    return store

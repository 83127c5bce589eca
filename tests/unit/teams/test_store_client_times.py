"""When the store is asked, in virtual time: what fails, hangs or refuses is asked again at the times that are promised,
and every failure is counted under its name."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.engine.ports import Fault
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.clock import Departure, Readings, SteadyClock
from proxy.kit.errors import StoreError
from proxy.storage import Balance, BudgetRecord, Charge, Granted, Refused, TeamRecord
from proxy.storage.sqlite import MemoryStore, Spool
from proxy.teams.authentication import Declared, Directory
from proxy.teams.store_client import Epochs, StoreClient, ask_time, faults, report_departure
from tests.contract.store_calls import T, ask, balance, end, entry
from tests.examples import for_every
from tests.fake_time import in_virtual_time

ASKED = {
    "reserve", "settle", "carry_out", "renew", "expire", "ping", "forget_entries", "balance", "claim", "facts", "time",
}  # fmt: skip
Matches = Callable[[str, float], bool]


def never(name: str, at_s: float) -> bool:
    return False


class Scripted(MemoryStore):
    """A store that fails and hangs by a script, and notes each call that it gets with its time."""

    is_durable = True

    def __init__(self, fails: Matches = never, hangs: Matches = never) -> None:
        super().__init__()
        self.fails, self.hangs = fails, hangs
        self.calls: list[tuple[str, float]] = []
        self.given: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return found if name not in ASKED else lambda *given: self._called(name, found, given)

    async def _called(self, name: str, found: Callable[..., Awaitable[object]], given: tuple[Any, ...]) -> object:
        at_s = round(asyncio.get_running_loop().time(), 3)
        self.calls.append((name, at_s))
        self.given.append((name, *given))
        if self.hangs(name, at_s):
            await asyncio.sleep(1e9)
        if self.fails(name, at_s):
            raise StoreError(f"{name} fails")
        return await found(*given)

    def times(self, *names: str) -> list[float]:
        return [at_s for name, at_s in self.calls if name in names]


class LoopClock:
    """Unix seconds that go with the time of the event loop."""

    def now(self) -> float:
        return T + asyncio.get_running_loop().time()


@asynccontextmanager
async def worker(store: Scripted, **more: Any) -> AsyncIterator[StoreClient]:
    """A client that has been started, with a spool in memory."""
    client = StoreClient(store, LoopClock(), Metrics(), [Spool(None)], **more)
    await client.start()
    yield client
    store.fails = store.hangs = never
    await client.aclose()


def errors(client: StoreClient) -> dict[str, float]:
    """How often each operation failed."""
    found = client._metrics.registry.collect()
    samples = [one for metric in found for one in metric.samples if one.name == "stratiform_store_errors_total"]
    return {one.labels["operation"]: one.value for one in samples if one.value}


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run this test in virtual time."""

    def run() -> None:
        in_virtual_time(test)

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run


def down_until(at_s: float) -> Matches:
    return lambda _, now_s: now_s < at_s


@virtual
async def test_a_store_that_is_away_is_asked_twice_a_second_and_gets_all_when_it_is_back() -> None:
    store = Scripted()
    async with worker(store) as client:
        assert (client.is_in_step, client.troubles) == (True, {})
        assert isinstance(await client.reserve(ask("runs", Charge("a", 5))), Granted)
        store.fails = down_until(2.2)
        store.calls.clear()
        for name in ("x", "y"):
            assert await client.settle(end(name, Charge("a", 3))) is None
        assert (client.is_away, client.is_in_step, client.pending) == (True, False, 2)
        assert client.troubles == {"store": "ping fails"}
        await asyncio.sleep(10)
        assert store.times("ping") == [0, 0.5, 1.0, 1.5, 2.0, 2.5]
        assert (store.times("settle"), store.times("carry_out")) == ([0], [2.5])
        assert store.times("renew", "expire") == [2.5, 2.5], "what runs is renewed at once"
        assert (client.is_away, client.is_in_step, client.troubles) == (False, True, {})
        assert await balance(store) == (6, 5, 0)
        assert errors(client) == {"settle": 1, "ping": 5}


@virtual
async def test_a_call_that_hangs_takes_a_second_and_a_half_and_its_ping_half_a_second() -> None:
    store = Scripted()
    async with worker(store) as client:
        store.hangs = lambda name, now_s: now_s < 6
        assert await client.reserve(ask("x")) is None
        assert (asyncio.get_running_loop().time(), client.is_away) == (pytest.approx(2.0), True)
        assert client.troubles == {"store": "it does not answer in time"}
        assert await client.reserve(ask("y")) is None
        assert await client.balance("red", Charge("a", 0)) is None
        assert asyncio.get_running_loop().time() == pytest.approx(2.0), "nothing waits twice"
        await asyncio.sleep(20)
        assert store.times("reserve") == [0]
        assert store.times("ping") == pytest.approx([1.5, 2.5, 4.5, 6.5])


@virtual
async def test_a_store_that_takes_nothing_is_asked_more_rarely_and_often_again_after_a_success() -> None:
    store = Scripted()
    async with worker(store) as client:
        store.fails = lambda name, now_s: name in ("settle", "carry_out") and now_s < 150
        assert await client.settle(end("x")) is None
        assert errors(client) == {"settle": 2}, "it was repeated once"
        assert await client.claim("red", "name", 60.0)
        assert client.troubles == {"store": "settle fails"}, "as long as anything waits"
        await asyncio.sleep(200)
        assert store.times("carry_out") == pytest.approx([0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5, 121.5, 151.5])
        assert (client.is_in_step, client.troubles) == (True, {})
        store.calls.clear()
        store.fails = lambda name, now_s: name in ("settle", "carry_out") and now_s < 205
        await client.settle(end("y"))
        await asyncio.sleep(100)
        assert store.times("carry_out") == pytest.approx([200.5, 201.5, 203.5, 207.5])
        assert errors(client) == {"settle": 4, "replay": 12}


@virtual
async def test_reservations_are_renewed_three_times_in_a_lease_and_old_entries_forgotten_each_hour() -> None:
    store = Scripted()
    async with worker(store, keep_entries_s=1000.0) as client:
        await client.reserve(ask("x", team="red"))
        await client.reserve(ask("y", team="blue"))
        await client.reserve(ask("z", team="red"))
        store.given.clear()
        await asyncio.sleep(50)
        await client.settle(end("y", team="blue"))
        await asyncio.sleep(11)
        renewed = [given[1:] for given in store.given if given[0] == "renew"]
        assert [(team, sorted(ids)) for team, ids, _ in renewed] == [
            ("red", ["x", "z"]), ("blue", ["y"]), ("red", ["x", "z"]), ("blue", ["y"]), ("red", ["x", "z"]),
        ]  # fmt: skip
        assert [until for *_, until in renewed] == pytest.approx([T + 80, T + 80, T + 100, T + 100, T + 120])
        assert store.times("expire") == pytest.approx([0, 20, 40, 60])
        await asyncio.sleep(7200)
        assert store.times("forget_entries") == pytest.approx([0, 3600, 7200])
        forgotten = [given[1] for given in store.given if given[0] == "forget_entries"]
        assert forgotten == pytest.approx([T + 2600, T + 6200])


@virtual
async def test_a_team_whose_reservations_cannot_be_renewed_stops_no_other_but_a_store_that_fails_does() -> None:
    store = Scripted()
    async with worker(store) as client:
        for team in ("red", "blue", "green"):
            await client.reserve(ask(team, team=team))
        for failing, renewed in (({"red"}, 3), ({"red", "blue"}, 2)):
            refused = iter([team in failing for team in ("red", "blue", "green")])
            store.fails = lambda name, now_s, refused=refused: name == "renew" and next(refused)  # type: ignore[misc]
            store.calls.clear()
            await client._look_after_leases()
            names = [name for name, _ in store.calls]
            assert names == ["renew"] * renewed + ["expire"] * (renewed == 3) + ["ping"]
        assert errors(client) == {"renew": 2}
        store.fails = down_until(1e9)
        await client.doubt("renew")
        store.calls.clear()
        await client._look_after_leases()
        assert store.calls == [], "a store that is away is not asked"


@virtual
async def test_what_dead_workers_left_is_billed_and_counted() -> None:
    store = Scripted()
    for name in ("x", "y"):
        await store.reserve(ask(name, Charge("a", 4), expires_at=T + 30), T)
    async with worker(store) as client:
        await asyncio.sleep(41)
        assert client._metrics.registry.get_sample_value("stratiform_reservations_expired_total") == 2
        assert await balance(store) == (8, 0, 0)


CALLS: dict[str, Callable[[StoreClient], Awaitable[object]]] = {
    "reserve": lambda client: client.reserve(ask("x")),
    "settle": lambda client: client.settle(end("x")),
    "release": lambda client: client.release("x", "red"),
    "balances": lambda client: client.balance("red", Charge("a", 0)),
    "claim": lambda client: client.claim("red", "name", 60.0),
    "reserve ": lambda client: client.defer(ask("x")),
}
WITHOUT = {"reserve": None, "settle": None, "release": None, "balances": None, "claim": False, "reserve ": True}
PUT_OFF = {"settle", "release", "reserve "}


@for_every([(name, failures) for name in CALLS for failures in (0, 1, 2)])
def test_a_call_that_fails_is_repeated_once_and_counted_under_its_name(name: str, failures: int) -> None:
    async def main() -> None:
        store = Scripted()
        async with worker(store) as client:
            left = iter([True] * failures)
            store.fails = lambda asked, now_s: asked != "ping" and next(left, False)
            store.calls.clear()
            answer = await CALLS[name](client)
            assert (answer == WITHOUT[name]) is (failures == 2 or name in ("release", "reserve "))
            assert client.pending == (failures == 2 and name in PUT_OFF)
            assert store.times("ping") == [0] * (failures > 0), "once the call may have failed for good"
            assert errors(client) == ({name.strip(): failures} if failures else {})
            assert ("store" in client.troubles) is (failures == 2)
            await asyncio.sleep(5)
            assert client.is_in_step
            assert await client.claim("red", "other", 60.0)
            assert client.troubles == {}

    in_virtual_time(main)


@virtual
async def test_an_answer_that_was_asked_for_twice_says_so_where_it_refuses() -> None:
    store = Scripted()
    async with worker(store) as client:
        for failures in (0, 1):
            left = iter([True] * failures)
            store.fails = lambda name, now_s, left=left: name == "reserve" and next(left, False)  # type: ignore[misc]
            answer = await client.reserve(ask(f"x{failures}", Charge("a", 5, 4)))
            assert isinstance(answer, Refused)
            assert answer.is_repeated is (failures == 1)
        assert client._running == {}


@virtual
async def test_a_deferred_reservation_lasts_as_long_as_it_says_and_is_not_renewed() -> None:
    store = Scripted()
    async with worker(store) as client:
        assert client.lease() == T + 60
        assert client.lease(100.0) == T + 100
        await client.reserve(ask("x", Charge("a", 5)))
        assert await client.defer(ask("x", Charge("a", 5), expires_at=client.lease(100.0)))
        assert await client.defer(ask("y", Charge("a", 2), expires_at=client.lease(100.0)))
        await asyncio.sleep(99)
        assert (await balance(store), store.times("renew")) == ((0, 7, 0), [])
        await asyncio.sleep(30)
        assert await balance(store) == (7, 0, 0)


@virtual
async def test_an_exchange_without_the_store_is_noted_where_that_outlives_the_process() -> None:
    for is_durable in (True, False):
        store = Scripted()
        store.is_durable = is_durable  # type: ignore[misc]
        async with worker(store) as client:
            assert await client.settle(end("y", Charge("b", 2))) == [Balance("b", 2, 0)]
            store.fails = down_until(1.0)
            await client.doubt("reserve")
            assert await client.intend(ask("x", Charge("a", 5, 1)))
            assert client.pending == is_durable
            await asyncio.sleep(5)
            assert await balance(store) == ((0, 5, 0) if is_durable else (0, 0, 0)), "no limit refuses it any more"


@virtual
async def test_what_is_left_at_the_end_is_carried_out_if_the_store_answers() -> None:
    for is_back in (True, False):
        store = Scripted()
        client = StoreClient(store, LoopClock(), Metrics(), [Spool(None)])
        await client.start()
        store.fails = down_until(1e9)
        await client.settle(end("x", Charge("a", 3)))
        store.fails = never if is_back else store.fails
        store.calls.clear()
        await client.aclose()
        assert store.times("ping") == [0]
        assert len(store.times("carry_out")) == is_back


@virtual
async def test_a_store_that_cannot_be_closed_keeps_no_spool_open() -> None:
    async def stuck() -> None:
        raise StoreError("stuck")

    store = Scripted()
    store.aclose = stuck  # type: ignore[method-assign]
    client = StoreClient(store, LoopClock(), Metrics(), [Spool(None)])
    await client.start()
    closed = list[str]()
    release = client._catching_up.aclose

    async def aclose() -> None:
        closed.append("spool")
        await release()

    client._catching_up.aclose = aclose  # type: ignore[method-assign]
    await client.aclose()
    assert (closed, errors(client)) == (["spool"], {"close": 1})


@virtual
async def test_nothing_goes_on_behind_the_end() -> None:
    before = asyncio.all_tasks()
    client = StoreClient(Scripted(), LoopClock(), Metrics())
    await client.start()
    assert len(asyncio.all_tasks() - before) == 2
    await client.aclose()
    assert asyncio.all_tasks() == before


# Watching


@for_every(
    [
        ((0, 0), (0, 0), []), ((0, 0), (90, 0), ["stepped by +90 s"]), ((90, 0), (90, 0), []),
        ((90, 0), (-70, 0), ["stepped by -70 s"]), ((90, 0), (0, 0), ["the step of the clock is over"]),
        ((0, 0), (0, 80), ["clock is +80 s off"]), ((0, 80), (0, 81), []), ((0, 81), (0, 0), ["agrees with the store"]),
        ((90, 0), (0, -80), ["the step of the clock is over", "clock is -80 s off"]),
        ((0, 80), (90, 0), ["stepped by +90 s", "agrees with the store"]),
    ]
)  # fmt: skip
def test_each_change_of_the_clock_is_told_once(
    before: tuple[float, float], after: tuple[float, float], told: Sequence[str]
) -> None:
    metrics, logged = Metrics(), list[logging.LogRecord]()
    handler, log = logging.Handler(), logging.getLogger("stratiform.clock")
    handler.emit = logged.append  # type: ignore[method-assign]
    log.addHandler(handler)
    try:
        report_departure(metrics, Departure(*before), Departure(*after))
    finally:
        log.removeHandler(handler)
    assert len(logged) == len(told)
    assert all(words in record.getMessage() for words, record in zip(told, logged, strict=True))
    read = metrics.registry.get_sample_value
    assert read("stratiform_clock_steps_total") == any("stepped" in words for words in told)
    assert read("stratiform_clock_held_back_seconds") == after[0]
    assert read("stratiform_clock_off_store_seconds") == after[1]


class OnTheWay(MemoryStore):
    """A store whose answer takes time on this machine's clock."""

    def __init__(self, takes_s: float, store_s: float) -> None:
        super().__init__()
        self.takes_s, self.store_s, self.monotonic = takes_s, store_s, 100.0

    async def time(self) -> float:
        self.monotonic += self.takes_s
        return self.store_s


def test_the_time_that_a_store_tells_is_that_of_the_middle_of_the_question() -> None:
    store = OnTheWay(10.0, T + 3600.0)
    clock = SteadyClock(Readings(lambda: T, lambda: store.monotonic))
    asyncio.run(ask_time(clock, store))
    assert clock.now() == T + 3605.0


@virtual
async def test_a_store_that_hangs_is_not_waited_for_by_those_who_watch_it() -> None:
    store = Scripted(hangs=lambda name, now_s: True)
    loop = asyncio.get_running_loop()
    await ask_time(SteadyClock(Readings(lambda: T, lambda: 0.0)), store)
    assert loop.time() == pytest.approx(2.0)
    epochs = Epochs(store, None)
    await epochs.look()
    assert loop.time() == pytest.approx(4.0)
    assert not await epochs.trusts(None, []) or not epochs.trouble


class Emptied(Scripted):
    """A store that can be emptied."""

    async def empty(self) -> None:
        await self._do("write", lambda connection: connection.execute("DELETE FROM fact"))


@virtual
async def test_a_loss_is_told_once_and_ends_with_its_acceptance() -> None:
    store, told = Emptied(), list[bool]()
    epochs = Epochs(store, None, told.append)
    await epochs.start()
    known = epochs.current
    assert (len(known), epochs.trouble, told) == (16, "", [])
    assert await epochs.trusts(None, ["red:a"])
    assert await epochs.trusts(known, ["red:a"])
    store.calls.clear()
    assert await epochs.trusts("", ["red:a"]), "the store still is the known one"
    assert len(store.times("facts")) == 1
    await store.empty()
    assert await epochs.trusts(None, ["red:a"]), "nobody has noticed"
    for _ in range(2):
        await epochs.look()
    assert epochs.trouble == "it was emptied or exchanged, and nobody has accepted it as it is"
    assert (told, epochs.current != known) == ([True], True)
    assert not await epochs.trusts(None, ["red:a"])
    assert not await epochs.trusts(epochs.current, ["red:a"])
    await epochs.restored("red:a")
    assert await epochs.trusts(epochs.current, ["red:a"])
    assert not await epochs.trusts(epochs.current, ["red:a", "red:b"])
    assert await epochs.not_accepted() == await epochs.accept() == [known]
    assert (told, epochs.trouble, await epochs.not_accepted()) == ([True, False], "", [])
    assert await epochs.trusts(epochs.current, ["red:b"])


def test_every_fault_is_told_with_what_is_wrong() -> None:
    class Troubled(StoreClient):
        troubles = {"store": "it hangs", "spool": "it is full"}

        def __init__(self) -> None: ...

    class Strange(Epochs):
        trouble = "it was emptied"

        def __init__(self) -> None: ...

    class Away(MemoryStore):
        async def directory_version(self) -> int:
            raise StoreError("away")

    def told(policy: Any, *budgets: BudgetRecord, is_loaded: bool = True) -> Sequence[Fault]:
        directory = Directory(Declared([TeamRecord("red")], budgets=budgets), MemoryStore() if is_loaded else Away())
        asyncio.run(directory.load())
        return list(faults(Troubled(), Strange(), directory, policy))

    def expected(store: bool, spool: bool, epoch: bool, *more: Fault) -> Sequence[Fault]:
        return [
            Fault("store", "the store is away: it hangs", store),
            Fault("spool", "what the store does not take cannot be kept: it is full", spool),
            Fault("epoch", "the store is not the one that was known: it was emptied", epoch),
            *more,
        ]

    hard, soft = BudgetRecord("red/a", "red", hard=0), BudgetRecord("red/b", "red", soft=1)
    unread = Fault("directory", "the store's teams and keys cannot be read: what was read last holds")
    assert told("allow", hard, soft) == expected(False, False, False)
    assert told("deny", hard, soft) == expected(True, True, True)
    assert told("deny", soft) == expected(False, True, False)
    assert told("deny", soft, is_loaded=False) == expected(True, True, False, unread)
    assert told("allow", is_loaded=False) == expected(False, False, False, unread)


async def test_entries_are_kept_for_ever_where_nothing_else_is_said() -> None:
    store = Scripted()
    await store.settle(end("x", at=0.0), T)
    client = StoreClient(store, LoopClock(), Metrics())
    await client.start()
    await client.aclose()
    assert store.times("forget_entries") == []
    assert entry("x").exchange_id == "x"

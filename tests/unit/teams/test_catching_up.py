"""What was put off counts against its limits, and reaches the store: in pages, by team, each once, and no team holds up
another."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import StoreError
from proxy.storage import Balance, Charge, Granted, LedgerEntry, PutOff, Refused, Release, Reserve, Settle
from proxy.storage.sqlite import PAGE, MemoryStore, Spool
from proxy.teams.catching_up import Backlog, CatchingUp, lines_of_lost
from tests.doubles import ManualClock
from tests.growth import assert_linear
from tests.money import NOW


class Damaged(MemoryStore):
    """Takes nothing for some teams."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()
        self.trips: list[tuple[str, int]] = []

    async def carry_out(self, team: str, calls: Sequence[PutOff], now: float) -> None:
        self.trips.append((team, len(calls)))
        if team in self.refused:
            raise StoreError("WRONGTYPE")
        await super().carry_out(team, calls, now)


def end(name: str, team: str = "red") -> Settle:
    return Settle(LedgerEntry(name, NOW, team, cost=2), [Charge("a", 2)])


def made(store: MemoryStore, *places: Spool | Path, metrics: Metrics | None = None, **more: Any) -> CatchingUp:
    """Calls that wait in these places. Nothing runs."""
    spools = [Spool(place) if isinstance(place, Path) else place for place in places]
    return CatchingUp(store, ManualClock(NOW), metrics or Metrics(), spools, 5.0, 60.0, **more)


async def answers(error: Exception) -> bool:
    """The store is not away."""
    assert "WRONGTYPE" in str(error)
    return False


def pending(one: CatchingUp, team: str) -> int:
    asked = Reserve("asked", team, [Charge("a", 1, 10_000)], NOW, LedgerEntry("asked", NOW, team))
    limit = one.backlog.lowered(asked).charges[0].limit
    assert limit is not None
    return 10_000 - limit


class Unforgetting(Spool):
    """A spool on a full disk: it reads its calls, and can delete none."""

    is_full = True

    async def forget(self, numbers: Sequence[int]) -> None:
        if self.is_full and numbers:
            raise StoreError("database or disk is full")
        await super().forget(numbers)


async def test_a_call_that_the_spool_cannot_delete_hides_no_other_call(tmp_path: Path) -> None:
    store, spool = Damaged(), Unforgetting(tmp_path)
    one = made(store, spool)
    await one.put_off(end("a"))
    for name in ("b", "c", "d"):
        one.backlog.add(end(name))  # calls of other places, which the store does not know yet
    for _ in range(2):
        assert await one.catch_up(answers) == 0
        assert pending(one, "red") == 6
    spool.is_full = False
    await one.put_off(end("e"))
    assert await one.catch_up(answers) == 2
    assert (one.pending, store.trips) == (0, [("red", 1), ("red", 1), ("red", 2)])
    assert (await store.balance("red", Charge("a", 0), NOW)).spent == 4, "each was charged once"
    await one.aclose()


class Arriving(Spool):
    """While it deletes calls that were carried out, another call is put off."""

    arrives: Callable[[], Coroutine[Any, Any, None]] | None = None
    late: "asyncio.Task[None] | None" = None

    async def forget(self, numbers: Sequence[int]) -> None:
        if self.arrives is not None and numbers:
            self.late = asyncio.create_task(self.arrives())
            self.arrives = None
            await asyncio.sleep(0)
        await super().forget(numbers)


async def test_a_call_that_is_put_off_at_the_end_of_catching_up_counts(tmp_path: Path) -> None:
    store, spool = Damaged(), Arriving(tmp_path)
    one = made(store, spool)
    await one.put_off(end("a"))
    keep = spool.add

    async def add_slowly(calls: Sequence[PutOff], *, is_last: bool = False) -> None:
        await asyncio.sleep(0.05)
        await keep(calls, is_last=is_last)

    spool.add = add_slowly  # type: ignore[method-assign]
    spool.arrives = lambda: one.put_off(end("b"))
    assert await one.catch_up(answers) == 1
    assert pending(one, "red") == 2
    assert spool.late is not None
    await spool.late
    assert pending(one, "red") == 2
    assert await one.catch_up(answers) == 1
    assert pending(one, "red") == 0
    await one.aclose()


@pytest.mark.parametrize("is_spooled", [True, False])
async def test_pages_are_carried_out_by_team_in_one_trip_each(tmp_path: Path, is_spooled: bool) -> None:
    store = Damaged()
    one = made(store, *([tmp_path] if is_spooled else []))
    count = 2 * PAGE + 10
    await asyncio.gather(*(one.put_off(end(str(n), "red" if n % 2 else "blue")) for n in range(count)))
    await one.put_off(Release("free", "red"))
    assert one.pending == count + 1
    assert pending(one, "red") == pending(one, "blue") == count
    assert await one.catch_up(answers) == count + 1
    assert len(store.trips) <= 6
    assert (one.pending, pending(one, "red")) == (0, 0)
    balance = await store.balance("red", Charge("a", 0), NOW)
    assert balance.spent == count
    assert await one.catch_up(answers) == 0
    await one.aclose()
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("is_spooled", [True, False])
async def test_a_team_whose_calls_are_not_taken_holds_up_no_other(tmp_path: Path, is_spooled: bool) -> None:
    store = Damaged()
    store.refused = {"red"}
    one = made(store, *([tmp_path] if is_spooled else []))
    for number in range(PAGE + 10):
        await one.put_off(end(f"r{number}"))
    for number in range(5):
        await one.put_off(end(f"b{number}", "blue"))
    for carried_out in (5, 0):
        assert await one.catch_up(answers) == carried_out
        assert (one.pending, pending(one, "blue")) == (PAGE + 10, 0)
        assert pending(one, "red") == 2 * (PAGE + 10), "it counts until it is carried out"
        assert len([team for team, _ in store.trips if team == "red"]) == 1, "once an attempt"
        store.trips.clear()
    store.refused = set()
    assert await one.catch_up(answers) == PAGE + 10
    await one.aclose()


async def test_what_dead_workers_left_counts_too(tmp_path: Path) -> None:
    dead = Spool(tmp_path)
    for number in range(3):
        await dead.add([end(str(number))])
    await dead.aclose()
    one = made(MemoryStore(), tmp_path)
    await one.adopt()
    assert (one.pending, pending(one, "red")) == (3, 6)
    assert await one.catch_up(answers) == 3
    assert pending(one, "red") == 0
    await one.aclose()


async def test_an_attempt_ends_where_the_store_is_away(tmp_path: Path) -> None:
    store = Damaged()
    store.refused = {f"team-{number}" for number in range(50)}
    one = made(store, tmp_path)
    for team in sorted(store.refused):
        await one.put_off(end(team, team))

    async def away(error: Exception) -> bool:
        return True

    assert await one.catch_up(away) == 0
    assert len(store.trips) <= 3
    assert one.pending == 50
    await one.aclose()


async def test_what_waits_in_memory_at_the_end_goes_into_a_spool_that_is_full(tmp_path: Path) -> None:
    store, metrics = Damaged(), Metrics()
    spools = [Spool(tmp_path / "spool", max_bytes=1000), Spool(tmp_path / "fallback", is_shared=True)]
    one = made(store, *spools, metrics=metrics)
    for number in range(20):
        await one.put_off(end(str(number)))
    assert spools[0].size < 10
    await one.aclose()
    assert metrics.registry.get_sample_value("stratiform_settlements_lost_total") == 0
    assert not (tmp_path / "fallback").exists()
    next_one = made(store, tmp_path / "spool")
    await next_one.adopt()
    assert next_one.pending == 20
    await next_one.aclose()


async def test_the_log_says_why_a_place_takes_nothing_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    store, metrics = Damaged(), Metrics()
    spools = [Spool(tmp_path / "file"), Spool(tmp_path / "open", is_shared=True)]
    one = made(store, *spools, metrics=metrics)
    await one.put_off(end("x"))
    await one.aclose()
    assert metrics.registry.get_sample_value("stratiform_settlements_lost_total") == 1
    assert f"{tmp_path / 'open'} must be a folder to which this user alone may write" in caplog.text


async def test_what_nothing_can_keep_is_counted_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, metrics = Damaged(), Metrics()
    spool = Spool(tmp_path, max_bytes=2000)
    one = made(store, spool, metrics=metrics, most_in_memory=1500)
    kept = 0
    while not one.trouble:
        kept += 1
        await one.put_off(end(f"spooled-{kept}"))
    assert 3 < kept < 30
    assert "spool_max_mib" in one.trouble
    for number in range(4):
        await one.put_off(end(f"later-{number}"))
    sample = metrics.registry.get_sample_value
    assert sample("stratiform_settlements_lost_total") == 2
    assert [record.message for record in caplog.records if "lost" in record.message] == [
        "settlements are lost, 1 by now: neither the store nor the spool takes them, and memory is full"
    ], "not a line for each"
    assert pending(one, "red") == 2 * (kept + 4), "limits hold even so"
    assert await one.catch_up(answers) == kept - 1 + 3
    assert (pending(one, "red"), one.trouble) == (0, "")
    await one.put_off(end("again"))
    assert (spool.size, one.trouble) == (1, ""), "there is room again"
    await one.catch_up(answers)
    await one.aclose()


async def test_what_waits_in_memory_at_the_end_goes_where_it_is_taken_and_is_billed_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    store, metrics, fallback = MemoryStore(), Metrics(), tmp_path / "fallback"
    spool = tmp_path / "spool"
    dead = made(store, Spool(spool), metrics=metrics)
    assert await dead.intend(Reserve("x", "red", [Charge("a", 5)], NOW, LedgerEntry("x", NOW, "red", cost=5)))
    await dead.aclose()
    (tmp_path / "file").write_text("no folder")
    one = made(store, Spool(tmp_path / "file"), Spool(fallback, is_shared=True), metrics=metrics)
    for name in ("x", "y"):
        await one.put_off(end(name))
    assert (one.pending, bool(one.trouble)) == (2, True)
    await one.aclose()
    assert f"(2 calls) waits in {fallback}" in caplog.text
    again = made(store, Spool(spool), Spool(fallback, is_shared=True), metrics=metrics)
    await again.adopt()
    assert again.pending == 3
    assert await again.catch_up(answers) == 3
    await again.aclose()
    assert not [*spool.iterdir(), *fallback.iterdir()]
    assert await store.expire(NOW + 1e6) == 0
    assert (await store.balance("red", Charge("a", 0), NOW)).spent == 4
    lost = made(store, Spool(tmp_path / "file"), Spool(tmp_path / "file", is_shared=True), metrics=metrics)
    await lost.put_off(end("z"))
    await lost.aclose()
    assert "lost: z of red" in caplog.text
    assert metrics.registry.get_sample_value("stratiform_settlements_lost_total") == 1


def settled(name: str, cents: int) -> Settle:
    return Settle(LedgerEntry(name, NOW, "red", cost=cents * 10**7), [Charge("a", cents)])


def test_each_call_is_named_with_its_team_and_what_it_cost() -> None:
    calls: list[PutOff] = [settled("x-1", 25), Release("x-2", "red"), settled("x-4", 50)]
    assert [*lines_of_lost(calls)] == [
        "3 calls to the store, worth $0.750000, cannot be written anywhere: they are lost",
        "lost: x-1 of red, $0.250000",
        "lost: x-2 of red, $0.000000",
        "lost: x-4 of red, $0.500000",
    ]


@pytest.mark.parametrize(("count", "named", "last"), [(1000, 1000, "lost: x-999 of red"), (1007, 1000, "lost: 7 more")])
def test_up_to_a_thousand_calls_are_named(count: int, named: int, last: str) -> None:
    _, *said = lines_of_lost([settled(f"x-{number}", 1) for number in range(count)])
    assert sum(" of red, " in line for line in said) == named
    assert said[-1].startswith(last)


ENTRY = LedgerEntry("x", 1.0, "red")


def settling(name: str, *final: Charge, team: str = "red") -> Settle:
    return Settle(replace(ENTRY, exchange_id=name, team=team), final)


def ask(*charges: Charge, team: str = "red") -> Reserve:
    return Reserve("asked", team, charges, 60.0, ENTRY)


def limits(backlog: Backlog, ask: Reserve) -> list[int | None]:
    return [charge.limit for charge in backlog.lowered(ask).charges]


def test_limits_are_lower_by_what_is_put_off_for_their_accounts() -> None:
    backlog = Backlog()
    backlog.add(settling("a", Charge("day", 3), Charge("hour:1", 5)))
    backlog.add(settling("b", Charge("day", 4)))
    asked = ask(Charge("day", 1, 10), Charge("hour:2", 1, 9, within=["hour:1", "hour:0"]), Charge("counted", 1))
    assert limits(backlog, asked) == [3, 4, None]
    assert limits(backlog, replace(asked, team="blue")) == [10, 9, None], "another team's are its own"
    assert [charge.amount for charge in backlog.lowered(asked).charges] == [1, 1, 1]


def test_a_reservation_that_is_put_off_counts_until_its_exchange_ends_or_the_store_has_it() -> None:
    backlog, asked = Backlog(), ask(Charge("day", 1, 20))
    intents = [replace(ask(Charge("day", 5)), exchange_id=name) for name in ("settled", "released", "made")]
    for intent in intents:
        backlog.add(intent)
    assert limits(backlog, asked) == [5]
    backlog.add(settling("settled", Charge("day", 2)))
    assert limits(backlog, asked) == [8], "its settlement counts in its place"
    backlog.add(Release("released", "red"))
    assert limits(backlog, asked) == [13]
    backlog.remove(intents[2])
    for late in intents[:2]:
        backlog.remove(late)
    assert limits(backlog, asked) == [18]
    backlog.remove(settling("settled", Charge("day", 2)))
    assert limits(backlog, asked) == [20]


def test_what_was_carried_out_does_not_count_any_more() -> None:
    backlog, calls = Backlog(), [settling("a", Charge("day", 3)), settling("b", Charge("day", 4)), Release("c", "red")]
    for call in calls:
        backlog.add(call)
    asked = ask(Charge("day", 1, 10))
    assert limits(backlog, asked) == [3]
    backlog.remove(calls[0])
    assert limits(backlog, asked) == [6]
    backlog.remove(calls[1])
    assert backlog.lowered(asked) is asked


def test_what_the_store_holds_for_an_exchange_counts_once() -> None:
    backlog, call = Backlog(), settling("a", Charge("day", 30), Charge("month", 10))
    backlog.add(call, reserved=[Charge("day", 20), Charge("month", 20)])
    asked = ask(Charge("day", 1, 100), Charge("month", 1, 100))
    assert limits(backlog, asked) == [90, 100]
    backlog.remove(call)
    assert backlog.lowered(asked) is asked


def test_answers_tell_the_backlog_as_spent() -> None:
    backlog = Backlog()
    backlog.add(settling("a", Charge("day", 3), Charge("hour:1", 5)))
    asked = ask(Charge("day", 1, 10), Charge("hour:2", 1, 9, within=["hour:1"]))
    granted = Granted([Balance("day", 2, 1), Balance("hour:2", 0, 0)])
    assert backlog.counted(asked, granted) == Granted([Balance("day", 5, 1), Balance("hour:2", 5, 0)])
    refused = Refused(backlog.lowered(asked).charges[1], Balance("hour:2", 1, 2))
    answer = backlog.counted(asked, refused)
    assert isinstance(answer, Refused)
    assert answer.balance == Balance("hour:2", 6, 2)


def test_a_grant_keeps_the_epoch_of_the_store_that_gave_it() -> None:
    backlog = Backlog()
    backlog.add(settling("a", Charge("day", 3)))
    counted = backlog.counted(ask(Charge("day", 1, 10)), Granted([Balance("day", 0, 1)], "epoch"))
    assert counted == Granted([Balance("day", 3, 1)])
    assert isinstance(counted, Granted)
    assert counted.epoch == "epoch"


def test_a_call_costs_the_same_however_many_counters_of_its_team_wait() -> None:
    def put_off(calls: list[Settle]) -> None:
        backlog = Backlog()
        for call in calls:
            backlog.add(call)

    assert_linear(put_off, lambda count: [settling(f"{n}", Charge(f"key-{n}", 1)) for n in range(count)], 1500)

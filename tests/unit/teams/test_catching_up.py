"""What was put off counts against its limits, and reaches the store: in pages, by team, each once, and no team holds up
another."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import StoreError
from proxy.storage import Balance, Charge, Granted, LedgerEntry, PutOff, Refused, Release, Reserve, Settle
from proxy.storage.sqlite import PAGE, MemoryStore, Spool
from proxy.teams.catching_up import Backlog, CatchingUp, lines_of_lost
from tests.doubles import ManualClock
from tests.fake_time import in_virtual_time
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
        assert (pending(one, "red"), one.trouble) == (6, "database or disk is full")
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


# Any calls in any order

AMOUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=3)
CALLS = st.tuples(
    st.sampled_from(["reserve", "settle", "release", "done"]), st.integers(0, 3), AMOUNTS, AMOUNTS
)  # fmt: skip
TEAMS = ("red", "red", "red", "blue")


def charges(amounts: dict[str, int]) -> list[Charge]:
    return [Charge(account, amount) for account, amount in amounts.items()]


def call_of(kind: str, number: int, amounts: dict[str, int]) -> PutOff:
    entry = replace(ENTRY, exchange_id=f"x{number}", team=TEAMS[number])
    if kind == "reserve":
        return Reserve(entry.exchange_id, entry.team, charges(amounts), 60.0, entry)
    return Settle(entry, charges(amounts)) if kind == "settle" else Release(entry.exchange_id, entry.team)


@given(st.lists(CALLS, max_size=12))
def test_limits_are_lower_by_the_sum_of_the_last_call_of_each_exchange(calls: list[Any]) -> None:
    backlog, last = Backlog(), dict[int, tuple[PutOff, Counter[str]]]()
    for kind, number, amounts, reserved in calls:
        if kind == "done":  # the store has carried out some call of the exchange
            done = call_of("settle", number, amounts)
            if number in last and isinstance(last[number][0], Settle):
                del last[number]
            backlog.remove(done)
        else:
            call = call_of(kind, number, amounts)
            known = reserved if kind == "settle" else {}
            backlog.add(call, charges(known))
            counted = {} if kind == "release" else {one: amounts[one] - known.get(one, 0) for one in amounts}
            last[number] = call, Counter({one: amount for one, amount in counted.items() if amount > 0})
        for team in ("red", "blue"):
            sums = sum((found for at, (_, found) in last.items() if TEAMS[at] == team), Counter[str]())
            asked = ask(Charge("a", 1, 100), Charge("b", 1, 100, within=["c"]), Charge("c", 1), team=team)
            assert limits(backlog, asked) == [100 - sums["a"], 100 - sums["b"] - sums["c"], None]
            granted = backlog.counted(asked, Granted([Balance("a", 1, 2, 3), Balance("b", 4, 0), Balance("c", 0, 0)]))
            assert isinstance(granted, Granted)
            assert [one.spent for one in granted.balances] == [1 + sums["a"], 4 + sums["b"] + sums["c"], sums["c"]]
            assert (granted.balances[0].reserved, granted.balances[0].expected) == (2, 3)
            if not +sums:
                assert backlog.lowered(asked) is asked


# What is counted, and how much goes on at once


def sample(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"stratiform_{name}", labels) or 0.0


async def test_the_calls_that_wait_are_told_page_by_page(tmp_path: Path) -> None:
    metrics, seen = Metrics(), list[float]()

    class Telling(MemoryStore):
        async def carry_out(self, team: str, calls: Sequence[PutOff], now: float) -> None:
            seen.append(sample(metrics, "spool_pending"))
            await super().carry_out(team, calls, now)

    dead = Spool(tmp_path)
    await dead.add([end(f"old-{number}") for number in range(PAGE)])
    await dead.aclose()
    one = made(Telling(), tmp_path, metrics=metrics)
    await one.adopt()
    assert sample(metrics, "spool_pending") == PAGE
    await one.put_off(end("new"))
    assert await one.intend(Reserve("runs", "red", [Charge("a", 5)], NOW, LedgerEntry("runs", NOW, "red")))
    assert sample(metrics, "spool_pending") == one.pending == PAGE + 2
    assert pending(one, "red") == 2 * (PAGE + 1) + 5
    assert await one.catch_up(answers) == PAGE + 2
    assert seen == [PAGE + 2, 2]
    assert (sample(metrics, "spool_pending"), sample(metrics, "spool_replayed_total")) == (0, PAGE + 2)
    await one.aclose()


class Vanishing(Spool):
    """A spool whose file is given up while it is read."""

    async def page(self, after: int) -> Sequence[tuple[int, PutOff]]:
        self.size = 0
        return ()


async def test_the_calls_of_a_spool_that_was_given_up_wait_no_more(tmp_path: Path) -> None:
    metrics = Metrics()
    one = made(MemoryStore(), Vanishing(tmp_path), metrics=metrics)
    await one.put_off(end("x"))
    assert sample(metrics, "spool_pending") == 1
    assert await one.catch_up(answers) == 0
    assert sample(metrics, "spool_pending") == 0


async def test_lost_settlements_are_told_in_one_line_of_a_thousand(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    one = made(MemoryStore(), metrics=metrics, most_in_memory=0)
    for number in range(1001):
        await one.put_off(end(f"{number}"))
    told = [line for line in caplog.messages if line.startswith("settlements are lost")]
    assert [line.split(" by now")[0] for line in told] == ["settlements are lost, 1", "settlements are lost, 1001"]
    assert sample(metrics, "settlements_lost_total") == 1001
    assert pending(one, "red") == 2002
    assert await one.catch_up(answers) == 0
    assert pending(one, "red") == 0, "nothing waits any more"


async def test_a_place_that_fails_is_told_once_for_each_reason_and_counted_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Spool):
        why = "one"

        async def add(self, calls: Sequence[PutOff], *, is_last: bool = False) -> None:
            if self.why:
                raise StoreError(self.why)
            await super().add(calls, is_last=is_last)

    metrics, spool = Metrics(), Failing(tmp_path)
    one = made(MemoryStore(), spool, metrics=metrics)
    for number, spool.why in enumerate(("one", "one", "two", "")):
        await one.put_off(end(f"{number}"))
        assert one.trouble == spool.why
    assert [line for line in caplog.messages if "failed" in line] == ["spool failed: one", "spool failed: two"]
    assert sample(metrics, "store_errors_total", operation="spool") == 3
    spool.why = "three"
    assert not await one.intend(Reserve("runs", "red", [Charge("a", 5)], NOW, LedgerEntry("runs", NOW, "red")))
    assert pending(one, "red") == 8, "an intent that is not kept does not count"
    assert await one.catch_up(answers) == 4
    assert one.trouble == ""
    await one.aclose()


async def test_three_teams_are_served_at_once() -> None:
    at_once, most = 0, 0

    class Slow(MemoryStore):
        async def carry_out(self, team: str, calls: Sequence[PutOff], now: float) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1

    one = made(Slow())
    for number in range(8):
        await one.put_off(end(f"{number}", f"team-{number}"))
    assert await one.catch_up(answers) == 8
    assert most == 3


async def test_a_reservation_that_is_made_late_lasts_as_a_new_one_while_its_exchange_runs() -> None:
    store = MemoryStore()
    one = made(store)
    for name in ("runs", "ended"):
        await one.put_off(Reserve(name, "red", [Charge("a", 5)], NOW + 1, LedgerEntry(name, NOW, "red", cost=5)))
    one.running["runs"] = ("red", ())
    assert await one.catch_up(answers) == 2
    team, charged = one.running["runs"]
    assert (team, [(charge.account, charge.amount) for charge in charged]) == ("red", [("a", 5)])
    for after_s, spent, reserved in ((0.5, 0, 10), (1.0, 5, 5), (59.9, 5, 5), (60.0, 10, 0)):
        await store.expire(NOW + after_s)
        balance = await store.balance("red", Charge("a", 0), NOW)
        assert (balance.spent, balance.reserved) == (spent, reserved)


def test_a_store_that_hangs_ends_an_attempt_after_the_time_of_a_call() -> None:
    asked = list[str]()

    class Hanging(MemoryStore):
        async def carry_out(self, team: str, calls: Sequence[PutOff], now: float) -> None:
            await asyncio.sleep(1e9)

    async def away(error: Exception) -> bool:
        asked.append(type(error).__name__)
        return True

    async def main() -> None:
        one = made(Hanging())
        for number in range(9):
            await one.put_off(end(f"{number}", f"team-{number}"))
        assert await one.catch_up(away) == 0
        assert asyncio.get_running_loop().time() == pytest.approx(5.0)
        assert (asked, one.pending) == (["TimeoutError"] * 3, 9)

    in_virtual_time(main)

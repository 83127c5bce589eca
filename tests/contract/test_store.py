"""What every engine of the store promises (proxy/storage/port.py), on each of them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.storage.port import (
    REMEMBERED_S,
    Balance,
    BudgetRecord,
    Charge,
    Granted,
    KeyRecord,
    LedgerEntry,
    ObjectRecord,
    Refused,
    Release,
    Reserve,
    Settle,
    SpendQuery,
    Store,
    TeamRecord,
)
from tests.contract.stores import DURABLE, ENGINES, Check, on_cluster
from tests.redis_server import RedisServer, redis_cluster

OnEach = Callable[[Check], None]
T = 1_700_000_000.0
LEASE_S = 60.0


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture(params=[*ENGINES, pytest.param("redis-cluster", marks=pytest.mark.slow)])
def on_each(request: pytest.FixtureRequest, tmp_path: Path) -> OnEach:
    opener = ENGINES.get(request.param) or (lambda folder: on_cluster(request.getfixturevalue("cluster")))

    async def main(check: Check) -> None:
        async with opener(tmp_path) as store:
            await check(store)

    return lambda check: asyncio.run(main(check))


def entry(name: str, cost: int = 0, at: float = T, team: str = "red", **more: object) -> LedgerEntry:
    return replace(LedgerEntry(name, at, team, cost=cost), **more)


def ask(name: str, *charges: Charge, at: float = T, team: str = "red", expires_at: float | None = None) -> Reserve:
    cost = charges[0].amount if charges else 0
    return Reserve(name, team, charges, expires_at or at + LEASE_S, entry(name, cost, at, team))


def end(name: str, *final: Charge, at: float = T, team: str = "red", **more: object) -> Settle:
    return Settle(entry(name, final[0].amount if final else 0, at, team, **more), final)


async def balance(store: Store, account: str = "a", team: str = "red") -> tuple[int, int, int]:
    found = await store.balance(team, Charge(account, 0), T)
    assert found.account == account
    return found.spent, found.reserved, found.expected


async def ledger(store: Store, **more: object) -> Sequence[LedgerEntry]:
    return await store.entries(0.0, 1e12, **more)  # type: ignore[arg-type]


# Reservations


def test_what_is_reserved_is_settled_to_what_it_was(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        charges = [Charge("a", 50, 100, expected=20), Charge("tokens", 7, None, keep_s=60.0, expected=5)]
        granted = await store.reserve(ask("x", *charges), T)
        assert granted == Granted([Balance("a", 0, 50, 20), Balance("tokens", 0, 7, 5)])
        assert await ledger(store) == []
        final = [Charge("a", 30), Charge("tokens", 6, keep_s=60.0)]
        assert await store.settle(end("x", *final), T) == [Balance("a", 30, 0), Balance("tokens", 6, 0)]
        assert await balance(store) == (30, 0, 0)
        assert await ledger(store) == [entry("x", 30)]

    on_each(check)


def test_all_charges_are_granted_or_none(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        assert isinstance(await store.reserve(ask("x", Charge("b", 6, 10)), T), Granted)
        tight = Charge("b", 5, 10)
        refused = await store.reserve(ask("y", Charge("a", 5, 10), tight, Charge("c", 1)), T)
        assert refused == Refused(tight, Balance("b", 0, 6))
        assert [await balance(store, name) for name in "abc"] == [(0, 0, 0), (0, 6, 0), (0, 0, 0)]
        assert isinstance(await store.reserve(ask("y", Charge("b", 4, 10)), T), Granted), "a refusal leaves no trace"

    on_each(check)


def test_spent_and_reserved_may_reach_the_limit_and_not_pass_it(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.settle(end("w", Charge("a", 4)), T)
        assert isinstance(await store.reserve(ask("x", Charge("a", 3, 10)), T), Granted)
        assert isinstance(await store.reserve(ask("y", Charge("a", 4, 10)), T), Refused)
        assert isinstance(await store.reserve(ask("y", Charge("a", 3, 10)), T), Granted)
        assert isinstance(await store.reserve(ask("z", Charge("a", 1, 10)), T), Refused)
        assert isinstance(await store.reserve(ask("z", Charge("a", 0, 10)), T), Granted)
        assert isinstance(await store.reserve(ask("v", Charge("a", 1, 0)), T), Refused)
        assert isinstance(await store.reserve(ask("v", Charge("a", 1, None)), T), Granted)

    on_each(check)


def test_many_at_once_cannot_pass_the_limit_together(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        asked = await asyncio.gather(*(store.reserve(ask(str(i), Charge("a", 3, 100)), T) for i in range(60)))
        granted = [i for i, one in enumerate(asked) if isinstance(one, Granted)]
        assert len(granted) == 33
        assert await balance(store) == (0, 99, 0)
        await asyncio.gather(*(store.settle(end(str(i), Charge("a", 2)), T) for i in granted))
        assert await balance(store) == (66, 0, 0)

    on_each(check)


def test_parts_of_a_rolling_window_count_together(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.settle(end("x", Charge("r:1", 4, keep_s=600.0)), T)
        assert isinstance(await store.reserve(ask("y", Charge("r:2", 3, 10, 600.0, 1, ("r:1",))), T), Granted)
        third = Charge("r:3", 4, 10, 600.0, 0, ("r:2", "r:1"))
        assert await store.reserve(ask("z", third), T) == Refused(third, Balance("r:3", 4, 3, 1))
        granted = await store.reserve(ask("z", replace(third, within=("r:2",))), T)
        assert granted == Granted([Balance("r:3", 0, 7, 1)])
        final = Charge("r:3", 2, None, 600.0, 0, ("r:2", "r:1"))
        assert await store.settle(end("z", final), T) == [Balance("r:3", 6, 3, 1)]

    on_each(check)


def test_teams_have_their_own_counters(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        for team in ("red", "blue"):
            assert isinstance(await store.reserve(ask(team, Charge("a", 10, 10), team=team), T), Granted)
        await store.settle(end("blue", Charge("a", 1), team="blue"), T)
        assert (await balance(store), await balance(store, team="blue")) == ((0, 10, 0), (1, 0, 0))

    on_each(check)


def test_an_account_that_was_not_reserved_is_charged_and_one_not_named_is_not(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.reserve(ask("x", Charge("a", 5), Charge("b", 5)), T)
        await store.settle(end("x", Charge("b", 2), Charge("c", 3)), T)
        assert [await balance(store, name) for name in "abc"] == [(0, 0, 0), (2, 0, 0), (3, 0, 0)]

    on_each(check)


def test_an_exchange_without_charges_is_held_and_written_too(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        assert await store.reserve(ask("x"), T) == Granted([])
        assert await store.settle(Settle(entry("x", 7), ()), T) == []
        await store.reserve(ask("y"), T)
        assert await store.expire(T + LEASE_S) == 1
        assert await ledger(store) == [entry("x", 7), entry("y", estimated=True)]

    on_each(check)


# Once, and in any order


def test_repeating_a_call_changes_nothing(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        for _ in range(3):
            assert await store.reserve(ask("x", Charge("a", 5, 9)), T) == Granted([Balance("a", 0, 5)])
        for _ in range(3):
            assert await store.settle(end("x", Charge("a", 4)), T) == [Balance("a", 4, 0)]
        await store.settle(end("x", Charge("a", 9)), T + 1)
        assert await store.reserve(ask("x", Charge("a", 5, 9)), T) == Granted([Balance("a", 4, 0)])
        assert await balance(store) == (4, 0, 0)
        assert await ledger(store) == [entry("x", 4)]

    on_each(check)


def test_what_is_released_leaves_nothing(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.reserve(ask("x", Charge("a", 5, 9, expected=2)), T)
        for _ in range(2):
            await store.release("x", "red", T)
            assert await balance(store) == (0, 0, 0)
        assert await store.expire(T + LEASE_S) == 0
        assert await ledger(store) == []

    on_each(check)


def test_a_reserve_that_comes_late_holds_nothing(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.settle(end("settled", Charge("a", 4)), T)
        await store.release("released", "red", T)
        for name in ("settled", "released"):
            assert isinstance(await store.reserve(ask(name, Charge("a", 5, 9)), T), Granted)
        assert await balance(store) == (4, 0, 0)
        assert await store.expire(T + LEASE_S) == 0

    on_each(check)


def test_a_release_that_comes_late_changes_nothing(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.reserve(ask("settled", Charge("a", 5)), T)
        await store.settle(end("settled", Charge("a", 4)), T)
        await store.reserve(ask("billed", Charge("a", 3)), T)
        await store.expire(T + LEASE_S)
        for name in ("settled", "billed"):
            await store.release(name, "red", T)
        assert await balance(store) == (7, 0, 0)
        assert len(await ledger(store)) == 2

    on_each(check)


def test_what_was_put_off_is_carried_out_at_once_as_one_by_one(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        for name in ("settled", "released", "billed", "released late"):
            await store.reserve(ask(name, Charge("a", 5), expires_at=T + (10 if "ed late" in name else 50)), T)
        await store.expire(T + 20)
        calls = [
            end("settled", Charge("a", 4), Charge("b", 1, keep_s=60.0, within=["c"])),
            end("alone", Charge("a", 2), user="ünï"),
            Release("released", "red"),
            Release("released late", "red"),
            Release("unknown", "red"),
            end("free"),
        ]
        for at in (T + 20, T + 21):  # carried out twice, nothing changes
            await store.carry_out("red", calls, at)
            assert await balance(store) == (4 + 2 + 5, 5, 0)
            assert (await store.balance("red", Charge("b", 0), at)).spent == 1
            assert {one.exchange_id for one in await ledger(store)} == {"settled", "alone", "released late", "free"}
        await store.carry_out("red", [], T)
        assert await store.expire(T + 50) == 1
        await store.carry_out("red", [end("billed", Charge("a", 1))], T + 51)
        assert await balance(store) == (4 + 2 + 5 + 1, 0, 0)
        assert [one.user for one in await ledger(store) if one.exchange_id == "alone"] == ["ünï"]

    on_each(check)


def test_a_reservation_that_was_put_off_stands_until_its_exchange_ends_or_it_expires(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.settle(end("settled", Charge("a", 4)), T)
        await store.release("released", "red", T)
        await store.reserve(ask("known", Charge("a", 8)), T)
        calls = [
            ask("lost", Charge("a", 16, keep_s=3600.0, within=["c"]), Charge("b", 1), expires_at=T + 10),
            ask("ended", Charge("a", 32)),
            ask("runs", Charge("a", 64)),
            *(ask(name, Charge("a", 1000)) for name in ("settled", "released", "known")),
            end("ended", Charge("a", 128)),
        ]
        for at in (T + 1, T + 2):  # carried out twice, nothing changes
            await store.carry_out("red", calls, at)
            assert await balance(store) == (4 + 128, 8 + 16 + 64, 0)
            assert {one.exchange_id for one in await ledger(store)} == {"settled", "ended"}
        assert await store.expire(T + 11) == 1
        assert await balance(store) == (4 + 128 + 16, 8 + 64, 0)
        await store.carry_out("red", calls, T + 12)
        await store.settle(end("runs", Charge("a", 1)), T + 12)
        assert await balance(store) == (4 + 128 + 16 + 1, 8, 0)
        assert [one.exchange_id for one in await ledger(store) if one.estimated] == ["lost"]
        # A settlement that turns up after all corrects what was billed.
        await store.carry_out("red", [end("lost", Charge("a", 2))], T + 13)
        assert await balance(store) == (4 + 128 + 2 + 1, 8, 0)
        assert not any(one.estimated for one in await ledger(store))

    on_each(check)


def test_a_dead_workers_reservation_is_billed_as_it_stands(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.reserve(ask("x", Charge("a", 5, 9, expected=1), expires_at=T + 10), T)
        await store.reserve(ask("y", Charge("a", 2, 9), expires_at=T + 20), T)
        assert await store.expire(T + 9) == 0
        assert await store.expire(T + 10) == 1
        assert await balance(store) == (5, 2, 0)
        assert await ledger(store) == [entry("x", 5, estimated=True)]
        assert await store.expire(T + 10) == 0

    on_each(check)


def test_reserving_bills_what_has_expired_in_the_team(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.reserve(ask("x", Charge("a", 5, 9), expires_at=T + 10), T)
        await store.reserve(ask("y", Charge("a", 1, 9)), T + 10)
        assert await balance(store) == (5, 1, 0)
        assert [found.exchange_id for found in await ledger(store)] == ["x"]

    on_each(check)


def test_what_still_runs_is_renewed(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        for name in ("x", "y", "z"):
            await store.reserve(ask(name, Charge("a", 1), expires_at=T + 10), T)
        await store.settle(end("z", Charge("a", 1)), T)
        await store.renew("red", ["x", "z", "unknown"], T + 100)
        assert await store.expire(T + 50) == 1
        assert [(found.exchange_id, found.estimated) for found in await ledger(store)] == [("y", True), ("z", False)]
        await store.renew("red", ["y"], T + 200)
        assert await store.expire(T + 100) == 1
        assert await balance(store) == (3, 0, 0)

    on_each(check)


def test_a_settlement_that_comes_after_all_corrects_what_was_billed_once(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.reserve(ask("x", Charge("a", 50), Charge("b", 5)), T)
        await store.expire(T + LEASE_S)
        final = [Charge("a", 30), Charge("c", 1)]
        for _ in range(2):
            balances = await store.settle(end("x", *final, status=200), T + LEASE_S + 1)
            assert balances == [Balance("a", 30, 0), Balance("c", 1, 0)]
        assert [await balance(store, name) for name in "abc"] == [(30, 0, 0), (0, 0, 0), (1, 0, 0)]
        assert await ledger(store) == [entry("x", 30, status=200)]
        await store.settle(end("x", Charge("a", 99)), T + LEASE_S + 2)
        assert await balance(store) == (30, 0, 0)

    on_each(check)


# What is forgotten


def test_counters_are_forgotten_some_time_after_their_last_change(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.settle(end("x", Charge("minute", 4, keep_s=60.0), Charge("total", 4)), T)
        await store.settle(end("y", Charge("minute", 4, keep_s=60.0)), T + 30)
        await store.expire(T + 80)
        assert await balance(store, "minute") == (8, 0, 0)
        await store.expire(T + 90)
        assert (await balance(store, "minute"), await balance(store, "total")) == ((0, 0, 0), (4, 0, 0))

    on_each(check)


def test_a_counter_with_reservations_is_not_forgotten(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.reserve(ask("x", Charge("minute", 4, keep_s=60.0), expires_at=T + 1000), T)
        await store.expire(T + 100)
        assert await balance(store, "minute") == (0, 4, 0)

    on_each(check)


def test_entries_are_forgotten_and_counters_stand(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        for i in range(5):
            await store.settle(end(str(i), Charge("a", 1), at=T + i), T)
        assert await store.forget_entries(T + 3) == 3
        assert [found.exchange_id for found in await ledger(store)] == ["3", "4"]
        assert await store.forget_entries(T + 3) == 0
        assert await balance(store) == (5, 0, 0)

    on_each(check)


def test_the_memory_of_what_was_billed_ends(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.reserve(ask("x", Charge("a", 5)), T)
        await store.expire(T + LEASE_S)
        await store.expire(T + LEASE_S + REMEMBERED_S)
        await store.settle(end("x", Charge("a", 1)), T)
        assert await balance(store) == (5, 0, 0), "the entry is still there: nothing is counted twice"

    on_each(check)


def test_what_is_spent_can_be_corrected_and_what_is_reserved_stays(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.settle(end("x", Charge("a", 7, keep_s=100.0)), T)
        await store.settle(end("y", Charge("a1", 5)), T)
        await store.reserve(ask("z", Charge("a", 2)), T)
        before = await store.set_spent("red", Charge("a", 3, keep_s=100.0, within=["a1"]), T)
        assert before == Balance("a", 12, 2)
        assert await balance(store) == (3, 2, 0)
        assert await balance(store, "a1") == (0, 0, 0)
        assert (await store.settle(end("z", Charge("a", 1)), T))[0] == Balance("a", 4, 0)
        assert await store.set_spent("blue", Charge("new", 9), T) == Balance("new", 0, 0)
        assert await balance(store, "new", "blue") == (9, 0, 0)
        await store.set_spent("blue", Charge("new", 0), T)
        assert await balance(store, "new", "blue") == (0, 0, 0)

    on_each(check)


def test_a_counter_that_was_corrected_owes_nothing(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.reserve(ask("dead", Charge("a", 7), expires_at=T + 1), T)
        assert await store.expire(T + 2) == 1
        await store.set_spent("red", Charge("a", 2), T + 3)
        await store.settle(end("dead", Charge("a", 4)), T + 4)
        assert await balance(store) == (4, 0, 0)

    on_each(check)


def test_a_name_is_claimed_once(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        claims = await asyncio.gather(*(store.claim("red", "soft", 3600.0, T) for _ in range(5)))
        assert sorted(claims) == [False] * 4 + [True]
        assert await store.claim("red", "other", 3600.0, T)
        assert await store.claim("blue", "soft", 3600.0, T)
        if not store.is_shared:
            assert not await store.claim("red", "soft", 3600.0, T + 3599)
            assert await store.claim("red", "soft", 3600.0, T + 3600)

    on_each(check)


# The ledger


def test_entries_are_kept_whole(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        full = LedgerEntry(
            "x", T + 0.25, "red", "key-1", "ann", "claude", "tier", "ordered", 200, "completed", 1, 2, 3, 4, 5,
            10**15, -(10**12), 1234, True,
        )  # fmt: skip
        await store.settle(Settle(full, ()), T)
        assert await ledger(store) == [full]

    on_each(check)


def test_entries_come_in_pages(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        names = [f"x{i}" for i in range(7)]
        for i, name in enumerate(reversed(names)):
            await store.settle(end(name, at=T + (6 - i) // 3, team="blue" if name == "x4" else "red"), T)
        found: list[str] = []
        since, after = T, ""
        while page := await store.entries(since, T + 100, after, limit=2):
            found += [one.exchange_id for one in page]
            since, after = page[-1].at, page[-1].exchange_id
        assert found == names
        assert [one.exchange_id for one in await store.entries(T + 1, T + 2)] == ["x3", "x4", "x5"]
        assert [one.exchange_id for one in await store.entries(T + 1, T + 2, team="red")] == ["x3", "x5"]

    on_each(check)


def test_reports_add_up_by_what_is_asked(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        day = 86400.0
        midnight = 19_676 * day  # 2023-11-15
        rows = [
            entry("1", 10, midnight - 1, key_id="k1", user="ann", model="m", saved=5, read_tokens=1),
            entry("2", 20, midnight, key_id="k1", user="bob", model="m", saved=-2, write_5m_tokens=2),
            entry("3", 40, midnight + 1, key_id="k2", user="ann", model="n", estimated=True, write_1h_tokens=3),
            entry("4", 80, midnight + 2, "blue", plain_tokens=4, output_tokens=5),
        ]
        for row in rows:
            await store.settle(Settle(row, ()), T)

        async def costs(*by: str, **more: object) -> dict[tuple[str, ...], int]:
            asked = SpendQuery(0.0, 1e12, by, **more)  # type: ignore[arg-type]
            return {tuple(row.group.values()): row.cost for row in await store.spend(asked)}

        assert await costs() == {(): 150}
        assert list((await costs("team")).items()) == [(("blue",), 80), (("red",), 70)]
        assert await costs("day") == {("2023-11-14",): 10, ("2023-11-15",): 140}
        assert await costs("day", utc_offset_s=1) == {("2023-11-15",): 150}
        assert await costs("key", "user", team="red") == {("k1", "ann"): 10, ("k1", "bob"): 20, ("k2", "ann"): 40}
        assert await costs("model", user="ann") == {("m",): 10, ("n",): 40}
        assert await costs("model", key_id="k2", model="n") == {("n",): 40}
        assert await costs(team="green") == {}
        (row,) = await store.spend(SpendQuery(midnight - 1, midnight + 2))
        assert (row.requests, row.read_tokens, row.write_tokens, row.plain_tokens) == (3, 1, 5, 0)
        assert (row.output_tokens, row.cost, row.saved, row.estimated) == (0, 70, 3, 1)
        assert await store.spend(SpendQuery(0.0, 1.0)) == []

    on_each(check)


def test_names_are_data(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        team = "'; DROP TABLE entry; --"
        await store.settle(end("x", Charge("a{b}'\"\0*", 1), team=team, user="ünï\ncode"), T)
        assert await balance(store, "a{b}'\"\0*", team) == (1, 0, 0)
        assert (await ledger(store))[0].user == "ünï\ncode"

    on_each(check)


# The directory and layout state


def test_the_directory_keeps_records_and_says_when_it_changed(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        versions = [await store.directory_version()]
        key = KeyRecord(
            "key-1", "d" * 64, "red", user="ann", models=("m", "n*"), mode="mark", requests_per_minute=60,
            tokens_per_minute=10_000, expires_at=T, created_at=T - 1, note="note",
        )  # fmt: skip
        records = [
            TeamRecord("red", mode="tier", models=("m",), created_at=T),
            key,
            BudgetRecord("b", "red", "user", unit="tokens", hard=10, soft=5, webhook="https://hooks"),
        ]
        for record in records:
            await store.put(record)
            versions.append(await store.directory_version())
        assert [
            *await store.records(TeamRecord),
            *await store.records(KeyRecord),
            *await store.records(BudgetRecord),
        ] == records
        await store.put(replace(key, revoked_at=T))
        assert await store.records(KeyRecord) == [replace(key, revoked_at=T)]
        versions.append(await store.directory_version())
        assert await store.remove("team", "red")
        assert await store.records(TeamRecord) == []
        versions.append(await store.directory_version())
        assert not await store.remove("team", "red")
        assert versions == sorted(set(versions))
        assert await store.directory_version() == versions[-1]

    on_each(check)


def test_blobs_are_kept_by_scope_for_a_time(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.save("s", {"a": b"\0\xff", "b": b""}, 60.0, T)
        await store.save("t", {"a": b"other"}, 60.0, T)
        assert await store.load("s", ["b", "x", "a"], T) == [b"", None, b"\0\xff"]
        assert await store.load("t", ["a"], T) == [b"other"]
        await store.save("s", {"a": b"new"}, 60.0, T + 30)
        assert await store.load("s", ["a", "b"], T) == [b"new", b""]
        if not store.is_shared:
            await store.expire(T + 60)
            assert await store.load("s", ["a", "b"], T + 60) == [b"new", None]

    on_each(check)


def test_it_answers(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.ping()

    on_each(check)


# Engines that outlive the process


@pytest.mark.parametrize("engine", DURABLE)
def test_a_restart_forgets_nothing(engine: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with ENGINES[engine](tmp_path) as store:
            assert store.is_durable
            await store.settle(end("x", Charge("a", 4)), T)
            await store.reserve(ask("y", Charge("a", 5, 100)), T)
            await store.put(TeamRecord("red"))
            await store.save("s", {"a": b"blob"}, 600.0, T)
            version = await store.directory_version()
        async with ENGINES[engine](tmp_path) as store:
            assert await balance(store) == (4, 5, 0)
            assert await store.settle(end("x", Charge("a", 9)), T) == [Balance("a", 4, 5)]
            assert await store.settle(end("y", Charge("a", 3)), T) == [Balance("a", 7, 0)]
            assert await store.records(TeamRecord) == [TeamRecord("red")]
            assert await store.directory_version() == version
            assert await store.load("s", ["a"], T) == [b"blob"]

    asyncio.run(main())


@pytest.mark.parametrize("engine", DURABLE)
def test_two_that_share_it_cannot_pass_a_limit_together(engine: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with ENGINES[engine](tmp_path) as one, ENGINES[engine](tmp_path) as two:
            asked = await asyncio.gather(
                *(
                    store.reserve(ask(f"{i}", Charge("a", 3, 100)), T)
                    for i in range(50)
                    for store in ((one, two)[i % 2],)
                )
            )
            assert sum(isinstance(answer, Granted) for answer in asked) == 33
            assert await balance(one) == await balance(two) == (0, 99, 0)

    asyncio.run(main())


# Objects of the provider's account


def made(name: str, team: str = "red", server: str = "s", forget_at: float = T + 100, **more: str) -> ObjectRecord:
    return ObjectRecord(name, team, "files", server, "gpt#1", forget_at, **more)


async def names_owned(store: Store, team: str, *names: str, now: float = T) -> list[str]:
    return [record.name for record in await store.owned(team, names, now) if record is not None]


def test_an_object_is_its_teams_alone(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        records = [made("file-1"), made("\u00fc\n'{}", forget_at=T + 0.25)]
        await store.remember("red", records, 100, T)
        assert await store.owned("red", ["x", "file-1", "\u00fc\n'{}"], T) == [None, *records]
        assert await store.owned("blue", ["x", "file-1"], T) == [None, None]
        assert await store.owned("red", [], T) == []

    on_each(check)


def test_nobody_takes_over_what_another_team_has_made_at_a_server(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.remember("red", [made("file-1")], 100, T)
        await store.remember("blue", [made("file-1", "blue"), made("file-2", "blue")], 100, T)
        assert await names_owned(store, "blue", "file-1", "file-2") == ["file-2"]
        await store.remember("blue", [made("file-1", "blue", server="another")], 100, T)
        assert await names_owned(store, "blue", "file-1") == ["file-1"]
        assert await names_owned(store, "red", "file-1") == ["file-1"]

    on_each(check)


def test_what_was_deleted_or_has_ended_is_nobodys(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.remember("red", [made("a"), made("b"), made("c", forget_at=T + 200)], 100, T)
        await store.disown("red", "a")
        await store.disown("red", "unknown")
        assert await names_owned(store, "red", "a", "b", "c") == ["b", "c"]
        assert await names_owned(store, "red", "b", "c", now=T + 100) == ["c"]
        await store.remember("blue", [made(name, "blue", forget_at=T + 300) for name in "abc"], 100, T + 100)
        assert await names_owned(store, "blue", *"abc", now=T + 100) == ["a", "b"]
        await store.expire(T + 200)
        assert await names_owned(store, "red", *"abc", now=T) == [], "the records are gone, not only over"

    on_each(check)


def test_a_bill_is_taken_once_and_stays_when_its_object_is_remembered_again(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.remember("red", [made("resp", bill='{"x": "\u00fc"}')], 100, T)
        await store.remember("red", [made("resp", forget_at=T + 500)], 100, T)
        assert await store.take_bill("blue", "resp") == ""
        (later,) = await store.owned("red", ["resp"], T + 400)
        assert later == made("resp", forget_at=T + 500, bill='{"x": "\u00fc"}')
        taken = await asyncio.gather(*(store.take_bill("red", "resp") for _ in range(5)))
        assert sorted(taken) == ["", "", "", "", '{"x": "\u00fc"}']
        assert (await store.owned("red", ["resp"], T))[0] == made("resp", forget_at=T + 500)

    on_each(check)


def test_a_team_has_a_most_of_objects(on_each: OnEach) -> None:
    async def check(store: Store) -> None:
        await store.remember("blue", [made("first", "blue")], 10, T)
        await store.remember("red", [made("lasting", forget_at=T + 900)], 10, T)
        for i in range(20):
            await store.remember("red", [made(f"x{i}", forget_at=T + 100 + i)], 10, T)
        found = await names_owned(store, "red", "lasting", *(f"x{i}" for i in range(20)))
        assert found == ["lasting", *(f"x{i}" for i in range(11, 20))]
        assert await names_owned(store, "blue", "first") == ["first"]
        many = [f"y{i}" for i in range(3000)]
        await store.remember("red", [made(name) for name in many], 5000, T)
        assert await names_owned(store, "red", *many) == many

    on_each(check)

"""The directory of teams, keys and budgets: what counts, and when."""

import logging
from collections.abc import Awaitable, Callable, Sequence

import pytest

from proxy.kit.errors import OutOfDate, StoreError
from proxy.storage import BudgetRecord, KeyRecord, R, TeamRecord
from proxy.storage.sqlite import MemoryStore
from proxy.teams.authentication import (
    CLIENT_KEYS_TEAM,
    DEFAULT_TEAM,
    Declared,
    Directory,
    snapshot_of,
)
from tests.growth import assert_linear
from tests.money import Flaky

DECLARED = Declared(
    teams=[TeamRecord("red", mode="mark")],
    keys=[KeyRecord("key-a", "d" * 64, "red")],
    budgets=[BudgetRecord("red/total", "red", hard=1)],
)


def test_what_the_configuration_names_wins_and_the_rest_is_added() -> None:
    found = snapshot_of(
        DECLARED,
        [TeamRecord("red", mode="tier"), TeamRecord("blue")],
        [KeyRecord("key-b", "e" * 64, "red")],
        [BudgetRecord("bud-1", "red", hard=2)],
    )
    assert {name: team.mode for name, team in found.teams.items()} == {DEFAULT_TEAM: "", "red": "mark", "blue": ""}
    assert [key.id for key in found.keys_by_team["red"]] == ["key-b", "key-a"]
    assert [budget.id for budget in found.by_team["red"]] == ["bud-1", "red/total"]
    assert "blue" not in found.by_team
    assert found.declared == {DEFAULT_TEAM, "red", "key-a", "red/total"}


def test_keys_of_the_clients_own_have_a_team_where_they_are_let_through() -> None:
    assert CLIENT_KEYS_TEAM in snapshot_of(Declared(forwards_unknown=True)).teams
    assert CLIENT_KEYS_TEAM not in snapshot_of(Declared()).teams
    given = TeamRecord(CLIENT_KEYS_TEAM, mode="observe")
    assert snapshot_of(Declared([given], forwards_unknown=True)).teams[CLIENT_KEYS_TEAM] == given


async def test_a_change_counts_at_once_here_and_elsewhere_when_it_is_read() -> None:
    store = MemoryStore()
    here, elsewhere = Directory(DECLARED, store), Directory(DECLARED, store)
    await here.load()
    await elsewhere.load()
    await here.put(KeyRecord("key-b", "e" * 64, "red"))
    assert "key-b" in here.snapshot.keys
    await elsewhere.load()
    assert "key-b" in elsewhere.snapshot.keys
    assert await here.remove("key", "key-b")
    assert not await here.remove("key", "key-b")
    assert "key-b" not in here.snapshot.keys


async def test_nothing_is_read_again_where_nothing_has_changed() -> None:
    directory = Directory(DECLARED, MemoryStore())
    await directory.load()
    before = directory.snapshot
    await directory.refresh()
    assert directory.snapshot is before


class Reading(MemoryStore):
    """A store that counts how often all records of a kind are read."""

    reads = 0

    async def records(self, record_type: type[R]) -> Sequence[R]:
        self.reads += 1
        return await super().records(record_type)


async def test_a_record_that_is_put_is_known_without_reading_all_others() -> None:
    store = Reading()
    directory = Directory(DECLARED, store)
    await directory.load()
    before = store.reads
    records = [
        TeamRecord("blue"), TeamRecord("blue", mode="mark"), KeyRecord("key-b", "e" * 64, "blue"),
        BudgetRecord("blue/total", "blue", hard=2),
    ]  # fmt: skip
    for record in records:
        await directory.put(record)
    assert store.reads == before
    again = Directory(DECLARED, store)
    await again.load()
    assert directory.snapshot == again.snapshot


async def test_a_record_that_somebody_else_has_put_is_read_before_the_next_change() -> None:
    store = MemoryStore()
    directory = Directory(DECLARED, store)
    await directory.load()
    await store.put(TeamRecord("green"))
    with pytest.raises(OutOfDate):
        await directory.put(TeamRecord("blue"))
    await directory.refresh()
    await directory.put(TeamRecord("blue"))
    assert {"green", "blue"} < directory.snapshot.teams.keys()


def test_the_keys_of_every_team_are_found_in_proportion_to_all() -> None:
    def work(names: list[str]) -> None:
        keys = [KeyRecord(f"key-{name}", "e" * 64, name) for name in names]
        found = snapshot_of(DECLARED, [TeamRecord(name) for name in names], keys)
        assert all(len(found.keys_by_team[name]) == 1 for name in names)

    assert_linear(work, lambda size: [f"t{number}" for number in range(size)], 500)


async def test_a_store_that_is_away_leaves_what_was_read_last(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    store = Flaky()
    store.is_out = True
    directory = Directory(DECLARED, store)
    await directory.load()
    assert (directory.is_loaded, directory.store_errors, list(directory.snapshot.keys)) == (False, 1, ["key-a"])
    store.is_out = False
    await directory.load()
    await store.put(KeyRecord("key-b", "e" * 64, "red"))
    await directory.load()
    store.is_out = True
    await directory.load()
    await directory.load()
    assert (directory.is_loaded, directory.store_errors) == (True, 2)
    assert "key-b" in directory.snapshot.keys
    with pytest.raises(StoreError):
        await directory.put(TeamRecord("blue"))
    assert len(caplog.records) == 2, "once for each time that it went away"


def test_no_digest_is_shown() -> None:
    secret = "d" * 64
    shown = f"{DECLARED!r} {snapshot_of(DECLARED)!r} {Directory(DECLARED, MemoryStore())!r}"
    assert secret not in shown
    assert "m" * 64 not in repr(Declared(master_digest="m" * 64))


async def test_budgets_of_a_store_that_was_emptied_hold_until_that_is_accepted() -> None:
    store = MemoryStore()
    known = Directory(DECLARED, store)
    for record in (
        TeamRecord("blue"),
        KeyRecord("key-b", "e" * 64, "red"),
        BudgetRecord("red/made", "red", hard=2),
    ):
        await known.put(record)
    for erasing in ("DELETE FROM directory", "UPDATE directory_version SET version = 0"):
        await store._do("write", lambda connection, sql=erasing: connection.execute(sql))
    await known.refresh()
    assert set(known.snapshot.budgets) == {"red/total", "red/made"}
    assert set(known.snapshot.keys) == {"key-a"}
    assert "blue" not in known.snapshot.teams
    await known.put(BudgetRecord("red/made", "red", hard=3))
    assert known.snapshot.budgets["red/made"].hard == 3, "one that is made anew takes its place"
    await known.remove("budget", "red/made")
    assert known.snapshot.budgets["red/made"].hard == 2
    known.forget_lost()
    assert set(known.snapshot.budgets) == {"red/total"}


class Changing(MemoryStore):
    """A store in which something changes at one of the reads of a directory."""

    def __init__(self, at: int, *changes: Callable[[MemoryStore], Awaitable[object]]) -> None:
        super().__init__()
        self.at, self.changes = at, changes

    async def records(self, record_type: type[R]) -> Sequence[R]:
        self.at -= 1
        for change in self.changes if self.at == 0 else ():
            await change(self)
        return await super().records(record_type)


KEY, BUDGET = KeyRecord("key-b", "e" * 64, "red"), BudgetRecord("red/b", "red", "key", "key-b", hard=1)


@pytest.mark.parametrize("at", range(1, 6))
async def test_no_key_is_known_without_its_budget_while_both_come_or_go(at: int) -> None:
    """Budgets are made before the keys that they hold for, and removed after them."""

    comes = Changing(at, lambda store: store.put(BUDGET), lambda store: store.put(KEY))
    goes = Changing(at, lambda store: store.remove("key", KEY.id), lambda store: store.remove("budget", BUDGET.id))
    await goes.put(BUDGET)
    await goes.put(KEY)
    for store, is_there in ((comes, True), (goes, False)):
        directory = Directory(DECLARED, store)
        for _ in range(2):
            await directory.load()
            found = directory.snapshot
            assert BUDGET.id in found.budgets or KEY.id not in found.keys
        if at < 5:
            assert (BUDGET.id in found.budgets, KEY.id in found.keys) == (is_there, is_there)


async def test_each_failure_to_read_the_store_is_told_and_the_next_success_ends_it() -> None:
    store, told = Flaky(), list[int]()
    directory = Directory(DECLARED, store)

    async def on_failure() -> None:
        told.append(directory.store_errors)

    directory.on_failure = on_failure
    store.is_out = True
    for _ in range(3):
        await directory.load()
    assert told == [1, 2, 3]
    store.is_out = False
    await directory.load()
    assert (directory.store_errors, directory.is_loaded, told) == (0, True, [1, 2, 3])


async def test_another_configuration_keeps_what_is_managed_and_what_was_lost() -> None:
    store = MemoryStore()
    directory = Directory(DECLARED, store)
    for number in (1, 2):
        await directory.put(BudgetRecord(f"red/{number}", "red", hard=number))
        for erasing in ("DELETE FROM directory", "UPDATE directory_version SET version = 0"):
            await store._do("write", lambda connection, sql=erasing: connection.execute(sql))
        await directory.refresh()
    directory.declare(Declared([TeamRecord("blue")]))
    assert set(directory.snapshot.budgets) == {"red/1", "red/2"}, "one of each loss"
    assert set(directory.snapshot.teams) == {DEFAULT_TEAM, "blue"}
    await directory.put(TeamRecord("green"))
    assert set(directory.snapshot.budgets) == {"red/1", "red/2"}
    directory.forget_lost()
    assert (set(directory.snapshot.budgets), set(directory.snapshot.teams)) == (set(), {DEFAULT_TEAM, "blue", "green"})

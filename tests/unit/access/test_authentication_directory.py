"""Teams, keys and budgets, and how keys are made."""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Sequence

import pytest

from proxy.access.authentication import (
    CLIENT_KEYS_TEAM,
    DEFAULT_TEAM,
    Declared,
    Directory,
    declared_id,
    digest_of,
    new_id,
    new_key,
    snapshot_of,
)
from proxy.core.secrets import KEY_PREFIX
from proxy.ports import StoreError
from proxy.storage.port import BudgetRecord, KeyRecord, R, TeamRecord
from proxy.storage.sqlite import MemoryStore

DECLARED = Declared(
    teams=[TeamRecord("red", mode="mark")],
    keys=[KeyRecord("key-a", "d" * 64, "red")],
    budgets=[BudgetRecord("red/total", "red", hard=1)],
)


class FlakyStore(MemoryStore):
    """A store that can be made to fail."""

    is_away = False

    async def directory_version(self) -> int:
        if self.is_away:
            raise StoreError("away")
        return await super().directory_version()


def test_what_the_configuration_names_wins_and_the_rest_is_added() -> None:
    found = snapshot_of(
        DECLARED,
        [TeamRecord("red", mode="tier"), TeamRecord("blue")],
        [KeyRecord("key-b", "e" * 64, "red")],
        [BudgetRecord("bud-1", "red", hard=2)],
    )
    assert {name: team.mode for name, team in found.teams.items()} == {DEFAULT_TEAM: "", "red": "mark", "blue": ""}
    assert [key.id for key in found.keys_of("red")] == ["key-b", "key-a"]
    assert [budget.id for budget in found.budgets_of("red")] == ["bud-1", "red/total"]
    assert found.budgets_of("blue") == ()
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


async def test_a_store_that_is_away_leaves_what_was_read_last(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    store = FlakyStore()
    store.is_away = True
    directory = Directory(DECLARED, store)
    await directory.load()
    assert (directory.is_loaded, directory.store_errors, list(directory.snapshot.keys)) == (False, 1, ["key-a"])
    store.is_away = False
    await directory.load()
    await store.put(KeyRecord("key-b", "e" * 64, "red"))
    await directory.load()
    store.is_away = True
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
        await store._do(lambda connection, sql=erasing: connection.execute(sql))
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


def test_keys_are_random_and_can_be_told_by_their_prefix() -> None:
    keys = {new_key() for _ in range(1000)}
    assert len(keys) == 1000
    assert all(re.fullmatch(r"sk-strat-[A-Za-z0-9]{43}", key) for key in keys)
    assert KEY_PREFIX == "sk-strat-"


def test_what_is_kept_is_the_sha_256() -> None:
    assert digest_of("sk-strat-x") == hashlib.sha256(b"sk-strat-x").hexdigest()
    assert len(digest_of("\udcff")) == 64


def test_ids_are_public_and_tell_nothing() -> None:
    assert re.fullmatch(r"key-[a-z0-9]{12}", new_id())
    assert len({new_id() for _ in range(1000)}) == 1000
    digest = digest_of("sk-1")
    assert re.fullmatch(r"key-[0-9a-f]{12}", declared_id(digest))
    assert declared_id(digest) == declared_id(digest)
    assert declared_id(digest)[4:] not in digest

"""Teams, keys and budgets: those of the configuration, and those that are managed while the proxy runs.

Both are records of the same types (``proxy.storage.port``). A ``Snapshot`` holds all of them and never changes. The
``Directory`` replaces it when the store's version has changed, so that a request reads only memory. A change in this
process takes effect at once, and a change elsewhere within ``POLL_S``. While the store is away, the last snapshot stays
in force. A version that falls shows that the store was emptied: its keys and teams are gone, but the budgets that were
read before still limit requests until an operator accepts the loss (``forget_lost``).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from proxy.core.value import dataclass, field
from proxy.ports import StoreError
from proxy.storage.port import BudgetRecord, KeyRecord, Record, RecordKind, Store, TeamRecord

DEFAULT_TEAM = "default"
"""The team of requests with the master key, and of all requests to a proxy without keys."""
CLIENT_KEYS_TEAM = "client-keys"
"""The team of requests with a provider's key, if the configuration forwards such keys."""
MASTER_ID = "master"

POLL_S = 2.0

_log = logging.getLogger("stratiform.directory")


@dataclass(frozen=True, slots=True)
class Declared:
    """The configuration's teams, keys and budgets. ``master_digest`` is empty if there is no master key.
    ``forwards_unknown``: keys that are not known here count as the provider's keys, and go upstream. ``bounds_all``
    names the setting of the configuration file that limits the requests of all clients together; empty if there is
    none."""

    teams: Sequence[TeamRecord] = ()
    keys: Sequence[KeyRecord] = ()
    budgets: Sequence[BudgetRecord] = ()
    master_digest: str = field(default="", repr=False)
    forwards_unknown: bool = False
    bounds_all: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether the configuration names no key and no team. Without managed keys every key is then accepted."""
        return not (self.teams or self.keys or self.master_digest or self.forwards_unknown)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All records at one time, by name or id. ``declared`` are the names and ids that the configuration declares."""

    teams: Mapping[str, TeamRecord]
    keys: Mapping[str, KeyRecord]
    budgets: Mapping[str, BudgetRecord]
    declared: frozenset[str] = frozenset()
    _by_team: Mapping[str, Sequence[BudgetRecord]] = field(default_factory=dict, repr=False)

    def of(self, kind: RecordKind) -> Mapping[str, Any]:
        return {"team": self.teams, "key": self.keys, "budget": self.budgets}[kind]

    def budgets_of(self, team: str) -> Sequence[BudgetRecord]:
        return self._by_team.get(team, ())

    def keys_of(self, team: str) -> Sequence[KeyRecord]:
        return [key for key in self.keys.values() if key.team == team]


def snapshot_of(
    declared: Declared,
    teams: Sequence[TeamRecord] = (),
    keys: Sequence[KeyRecord] = (),
    budgets: Sequence[BudgetRecord] = (),
) -> Snapshot:
    """Declared and managed records together. If both have the same name, the configuration wins."""
    built_in = [TeamRecord(DEFAULT_TEAM)]
    if declared.forwards_unknown:
        built_in.append(TeamRecord(CLIENT_KEYS_TEAM))
    all_budgets = {record.id: record for record in (*budgets, *declared.budgets)}
    by_team: dict[str, list[BudgetRecord]] = {}
    for record in all_budgets.values():
        by_team.setdefault(record.team, []).append(record)
    return Snapshot(
        teams={record.name: record for record in (*built_in, *teams, *declared.teams)},
        keys={record.id: record for record in (*keys, *declared.keys)},
        budgets=all_budgets,
        declared=frozenset(
            [
                *(record.name for record in (*built_in, *declared.teams)),
                *(record.id for record in declared.keys),
                *(record.id for record in declared.budgets),
            ]
        ),
        _by_team=by_team,
    )


class Directory:
    """The current snapshot, and the way to change it."""

    def __init__(self, declared: Declared, store: Store) -> None:
        self.declared = declared
        self.snapshot = snapshot_of(declared)
        self.is_loaded = False
        """Whether the managed records have ever been read. Until then, an unknown key may be a managed one."""
        self.store_errors = 0
        self.on_failure: Callable[[], Awaitable[None]] | None = None
        """Called each time that the store cannot be read."""
        self._managed: tuple[Sequence[TeamRecord], Sequence[KeyRecord], Sequence[BudgetRecord]] = ((), (), ())
        self._lost: Sequence[BudgetRecord] = ()
        self._store = store
        self._version: int | None = None
        self._turn = asyncio.Lock()

    async def refresh(self) -> None:
        """Read the managed records if they have changed. Raises StoreError."""
        async with self._turn:
            # The version is read first, so that a change during the reading of the records is found the next time.
            version = await self._store.directory_version()
            if version == self._version:
                return
            # Budgets are read before and after the keys that they hold for: those that come or go meanwhile count.
            before = await self._store.records(BudgetRecord)
            teams, keys = await self._store.records(TeamRecord), await self._store.records(KeyRecord)
            budgets = [*before, *await self._store.records(BudgetRecord)]
            if self._version is not None and version < self._version:
                self._lost = (*self._lost, *self._managed[2])
            self._managed = (teams, keys, budgets)
            self._renew_snapshot()
            self._version = version
            self.is_loaded = True

    def forget_lost(self) -> None:
        """Drop the budgets of a store that was emptied, because an operator has accepted the store as it is."""
        self._lost = ()
        self._renew_snapshot()

    def declare(self, declared: Declared) -> None:
        """Use another configuration from now on. The managed records stay as they were last read."""
        self.declared = declared
        self._renew_snapshot()

    def _renew_snapshot(self) -> None:
        teams, keys, budgets = self._managed
        # A budget that was created again comes after the lost budget of the same id, so it replaces the lost one.
        self.snapshot = snapshot_of(self.declared, teams, keys, [*self._lost, *budgets])

    async def put(self, record: Record) -> None:
        """Create or replace a managed record, which takes effect at once. Raises StoreError."""
        await self._store.put(record)
        await self.refresh()

    async def remove(self, kind: RecordKind, name: str) -> bool:
        """Delete a managed record. Returns whether there was one. Raises StoreError."""
        was_there = await self._store.remove(kind, name)
        await self.refresh()
        return was_there

    async def load(self) -> None:
        """Read the managed records. If the store is away, this is logged."""
        try:
            await self.refresh()
        except StoreError as error:
            if self.store_errors == 0:
                _log.error("the store's teams and keys cannot be read (%s); what was read last holds", error)
            self.store_errors += 1
            if self.on_failure is not None:
                await self.on_failure()
        else:
            self.store_errors = 0

"""The store in memory: forgotten at the end of the process. What grows with traffic is bounded."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from proxy.storage.memory_objects import MemoryObjects
from proxy.storage.port import (
    REMEMBERED_S,
    Balance,
    BudgetRecord,
    Charge,
    Granted,
    KeyRecord,
    LedgerEntry,
    ObjectRecord,
    PutOff,
    Refused,
    Release,
    Reserve,
    Settle,
    SpendQuery,
    SpendRow,
    TeamRecord,
)
from proxy.storage.sums import Sums

_MOST_ENTRIES = 100_000
_MOST_BLOBS = 10_000

_in_order = attrgetter("at", "exchange_id")


@dataclass(slots=True)
class _Counter:
    spent: int = 0
    reserved: int = 0
    expected: int = 0
    forget_at: float = math.inf


@dataclass(slots=True)
class _Hold:
    """A reservation, or the memory of one. ``forget_at`` is set once it is not open any more."""

    ask: Reserve
    expires_at: float
    is_open: bool = True
    is_billed: bool = False
    forget_at: float = math.inf


class MemoryStore:
    """A store that never fails."""

    is_shared = False
    is_durable = False

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], _Counter] = {}
        self._holds: dict[str, _Hold] = {}
        self._next_expiry = math.inf
        self._entries: dict[str, LedgerEntry] = {}
        self._claims: dict[tuple[str, str], float] = {}
        self._directory: dict[tuple[str, str], TeamRecord | KeyRecord | BudgetRecord] = {}
        self._version = 0
        self._blobs: dict[tuple[str, str], tuple[bytes, float]] = {}
        self._objects = MemoryObjects()
        self._facts: dict[str, str] = {}

    async def reserve(self, ask: Reserve, now: float) -> Granted | Refused:
        """Grant all charges or none; expired reservations are billed first."""
        if now >= self._next_expiry:
            self._expire(now)
        if ask.exchange_id in self._holds or ask.exchange_id in self._entries:
            return Granted([self._balance(ask.team, charge) for charge in ask.charges])
        for charge in ask.charges:
            balance = self._balance(ask.team, charge)
            if charge.limit is not None and balance.spent + balance.reserved + charge.amount > charge.limit:
                return Refused(charge, balance)
        for charge in ask.charges:
            self._change(ask.team, charge, now, reserved=charge.amount, expected=charge.expected)
        self._holds[ask.exchange_id] = _Hold(ask, ask.expires_at)
        self._next_expiry = min(self._next_expiry, ask.expires_at)
        return Granted([self._balance(ask.team, charge) for charge in ask.charges])

    async def settle(self, end: Settle, now: float) -> Sequence[Balance]:
        """Write the entry and replace the reservation."""
        team, hold = end.entry.team, self._holds.get(end.entry.exchange_id)
        is_reserved = hold is not None and (hold.is_open or hold.is_billed)
        if is_reserved or end.entry.exchange_id not in self._entries:
            if hold is not None and is_reserved:
                self._undo(hold, now)
                del self._holds[end.entry.exchange_id]
            for charge in end.final:
                self._change(team, charge, now, spent=charge.amount)
            self._write(end.entry)
        return [self._balance(team, charge) for charge in end.final]

    async def release(self, exchange_id: str, team: str, now: float) -> None:
        """Give a reservation back."""
        hold = self._holds.get(exchange_id)
        if hold is None:
            if exchange_id in self._entries:
                return
            hold = _Hold(Reserve(exchange_id, team, (), now, LedgerEntry(exchange_id, now, team)), now)
            self._holds[exchange_id] = hold
        elif hold.is_open:
            self._undo(hold, now)
        else:
            return
        hold.is_open, hold.forget_at = False, now + REMEMBERED_S

    async def carry_out(self, team: str, calls: Sequence[PutOff], now: float) -> None:
        """Settle, release and reserve what was put off for one team."""
        for call in calls:
            match call:
                case Settle():
                    await self.settle(call, now)
                case Reserve():
                    await self.reserve(call, now)
                case Release():
                    await self.release(call.exchange_id, team, now)

    async def renew(self, team: str, exchange_ids: Sequence[str], expires_at: float) -> None:
        """These exchanges still run."""
        for exchange_id in exchange_ids:
            hold = self._holds.get(exchange_id)
            if hold is not None and hold.is_open:
                hold.expires_at = expires_at

    async def expire(self, now: float) -> int:
        """Bill every expired reservation as it stands, and forget what may be forgotten."""
        self._forget(now)
        return self._expire(now)

    async def balances(self, team: str, accounts: Sequence[str], now: float) -> Sequence[Balance]:
        """Counters as they are."""
        return [self._balance(team, Charge(account, 0)) for account in accounts]

    async def set_spent(self, team: str, charge: Charge, now: float) -> Balance:
        """Correct a counter; the balance before."""
        before = self._balance(team, charge)
        for account in (charge.account, *charge.within):
            counter = self._counters.get((team, account))
            if counter is not None:
                counter.spent = 0
        self._change(team, charge, now, spent=charge.amount)
        return before

    async def claim(self, team: str, name: str, keep_s: float, now: float) -> bool:
        """Whether nobody has claimed this name in the last ``keep_s``."""
        if self._claims.get((team, name), now) > now:
            return False
        self._claims[team, name] = now + keep_s
        return True

    async def spend(self, query: SpendQuery) -> Sequence[SpendRow]:
        """A report."""
        sums = Sums(query)
        sums.add(self._entries.values())
        return sums.rows()

    async def entries(
        self, since: float, until: float, after: str = "", limit: int = 1000, team: str | None = None
    ) -> Sequence[LedgerEntry]:
        """A page of the ledger."""
        found = [
            entry
            for entry in self._entries.values()
            if since <= entry.at < until and (entry.at, entry.exchange_id) > (since, after)
            if team is None or entry.team == team
        ]
        return sorted(found, key=_in_order)[:limit]

    async def forget_entries(self, before: float) -> int:
        """Delete older entries."""
        old = [entry.exchange_id for entry in self._entries.values() if entry.at < before]
        for exchange_id in old:
            del self._entries[exchange_id]
        return len(old)

    async def directory_version(self) -> int:
        """Grows with every change."""
        return self._version

    async def teams(self) -> Sequence[TeamRecord]:
        """All teams, by name."""
        return [record for record in self._records("team") if isinstance(record, TeamRecord)]

    async def keys(self) -> Sequence[KeyRecord]:
        """All keys, by id."""
        return [record for record in self._records("key") if isinstance(record, KeyRecord)]

    async def budgets(self) -> Sequence[BudgetRecord]:
        """All budgets, by id."""
        return [record for record in self._records("budget") if isinstance(record, BudgetRecord)]

    async def put(self, record: TeamRecord | KeyRecord | BudgetRecord) -> None:
        """Create or replace."""
        match record:
            case TeamRecord():
                self._directory["team", record.name] = record
            case KeyRecord():
                self._directory["key", record.id] = record
            case BudgetRecord():
                self._directory["budget", record.id] = record
        self._version += 1

    async def remove(self, kind: Literal["team", "key", "budget"], name: str) -> bool:
        """Delete; whether there was one."""
        was_there = self._directory.pop((kind, name), None) is not None
        self._version += was_there
        return was_there

    async def remember(self, team: str, records: Sequence[ObjectRecord], most: int, now: float) -> None:
        """Keep records of one team."""
        self._objects.remember(team, records, most, now)

    async def owned(self, team: str, names: Sequence[str], now: float) -> Sequence[ObjectRecord | None]:
        """The team's objects of these names."""
        return self._objects.owned(team, names, now)

    async def disown(self, team: str, name: str) -> None:
        """The object was deleted."""
        self._objects.disown(team, name)

    async def take_bill(self, team: str, name: str) -> str:
        """The object's bill, once."""
        return self._objects.take_bill(team, name)

    async def facts(self) -> Mapping[str, str]:
        """All facts."""
        return dict(self._facts)

    async def add_facts(self, facts: Mapping[str, str]) -> None:
        """Write those that are not there."""
        self._facts = {**facts, **self._facts}

    async def set_facts(self, facts: Mapping[str, str]) -> None:
        """Write them."""
        self._facts |= facts

    async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
        """Blobs of one scope."""
        found = [self._blobs.get((scope, name), (None, math.inf)) for name in names]
        return [blob if forget_at > now else None for blob, forget_at in found]

    async def save(self, scope: str, blobs: Mapping[str, bytes], ttl_s: float, now: float) -> None:
        """Write blobs of one scope. Beyond a bound the ones that were saved first are forgotten."""
        for name, blob in blobs.items():
            self._blobs.pop((scope, name), None)
            self._blobs[scope, name] = (blob, now + ttl_s)
        while len(self._blobs) > _MOST_BLOBS:
            del self._blobs[next(iter(self._blobs))]

    async def time(self) -> float | None:
        """The machine's clock is the store's."""
        return None

    async def ping(self) -> None:
        """It answers."""

    async def aclose(self) -> None:
        """Nothing to release."""

    def _records(self, kind: str) -> Iterator[TeamRecord | KeyRecord | BudgetRecord]:
        return (self._directory[key] for key in sorted(self._directory) if key[0] == kind)

    def _balance(self, team: str, charge: Charge) -> Balance:
        spent = reserved = expected = 0
        for account in (charge.account, *charge.within):
            counter = self._counters.get((team, account))
            if counter is not None:
                spent += counter.spent
                reserved += counter.reserved
                expected += counter.expected
        return Balance(charge.account, spent, reserved, expected)

    def _change(
        self, team: str, charge: Charge, now: float, *, spent: int = 0, reserved: int = 0, expected: int = 0
    ) -> None:
        counter = self._counters.setdefault((team, charge.account), _Counter())
        # A counter that was forgotten or corrected meanwhile owes nothing.
        counter.spent = max(0, counter.spent + spent)
        counter.reserved = max(0, counter.reserved + reserved)
        counter.expected = max(0, counter.expected + expected)
        counter.forget_at = math.inf if charge.keep_s is None else now + charge.keep_s

    def _undo(self, hold: _Hold, now: float) -> None:
        """Take back what a reservation did to the counters."""
        for charge in hold.ask.charges:
            if hold.is_billed:
                self._change(hold.ask.team, charge, now, spent=-charge.amount)
            else:
                self._change(hold.ask.team, charge, now, reserved=-charge.amount, expected=-charge.expected)

    def _write(self, entry: LedgerEntry) -> None:
        if entry.exchange_id not in self._entries and len(self._entries) >= _MOST_ENTRIES:
            del self._entries[next(iter(self._entries))]
        self._entries[entry.exchange_id] = entry

    def _expire(self, now: float) -> int:
        expired = [hold for hold in self._holds.values() if hold.is_open and hold.expires_at <= now]
        for hold in expired:
            self._undo(hold, now)
            hold.is_open, hold.is_billed, hold.forget_at = False, True, now + REMEMBERED_S
            for charge in hold.ask.charges:
                self._change(hold.ask.team, charge, now, spent=charge.amount)
            self._write(replace(hold.ask.entry, estimated=True))
        self._next_expiry = min((hold.expires_at for hold in self._holds.values() if hold.is_open), default=math.inf)
        return len(expired)

    def _forget(self, now: float) -> None:
        self._objects.forget(now)
        for name in [name for name, hold in self._holds.items() if hold.forget_at <= now]:
            del self._holds[name]
        for key in [
            key for key, counter in self._counters.items() if counter.forget_at <= now and not counter.reserved
        ]:
            del self._counters[key]
        for claim in [claim for claim, until in self._claims.items() if until <= now]:
            del self._claims[claim]

"""Whose the objects of the provider's account are, in memory."""

from collections.abc import Sequence
from dataclasses import replace
from heapq import nsmallest
from operator import attrgetter

from proxy.storage.port import ObjectRecord


class MemoryObjects:
    """The ObjectStore's half of the store in memory."""

    def __init__(self) -> None:
        self._teams: dict[str, dict[str, ObjectRecord]] = {}
        self._owners: dict[tuple[str, str], ObjectRecord] = {}

    def remember(self, team: str, records: Sequence[ObjectRecord], most: int, now: float) -> None:
        """Keep records of one team."""
        held = self._teams.setdefault(team, {})
        for record in records:
            before = held.get(record.name)
            owner = self._owners.get((record.server, record.name))
            if before is not None and before.forget_at > now:
                self._put(replace(before, forget_at=max(before.forget_at, record.forget_at)))
            elif owner is None or owner.team == team or owner.forget_at <= now:
                self._put(record)
        if len(held) > most:
            # Some more than needed, so that not every new object looks for the one to go.
            for record in nsmallest(len(held) - most + most // 16, held.values(), key=attrgetter("forget_at", "name")):
                self.disown(team, record.name)

    def owned(self, team: str, names: Sequence[str], now: float) -> Sequence[ObjectRecord | None]:
        """The team's objects of these names."""
        found = (self._teams.get(team, {}).get(name) for name in names)
        return [record if record is not None and record.forget_at > now else None for record in found]

    def disown(self, team: str, name: str) -> None:
        """The object was deleted."""
        record = self._teams.get(team, {}).pop(name, None)
        if record is not None and self._owners.get((record.server, name)) is record:
            del self._owners[record.server, name]

    def take_bill(self, team: str, name: str) -> str:
        """The object's bill, once."""
        record = self._teams.get(team, {}).get(name)
        if record is None:
            return ""
        self._put(replace(record, bill=""))
        return record.bill

    def forget(self, now: float) -> None:
        """Drop what has ended."""
        ended = [r for held in self._teams.values() for r in held.values() if r.forget_at <= now]
        for record in ended:
            self.disown(record.team, record.name)

    def _put(self, record: ObjectRecord) -> None:
        self.disown(record.team, record.name)
        self._teams.setdefault(record.team, {})[record.name] = record
        self._owners[record.server, record.name] = record

"""Whose part is it? Several of a client's messages may hold the same file, or have the same opening.

A part goes to the first message that still misses it. Where that turns out wrong (an opening comes, and the file with
it was met before, or another one was not), equal files change hands.
"""

from dataclasses import dataclass, field

from . import words
from .contexts import Group
from .view import View


@dataclass(slots=True)
class Holders:
    """The context messages, and where each of their files was met: the sent message's index, and its header."""

    groups: list[Group]
    used: dict[tuple[int, int], tuple[int, str]] = field(default_factory=dict)

    def of_part(self, message: View, header: str) -> tuple[Group, list[int]] | None:
        """The group whose whole files this part holds; one that may stand under the header if there is one."""
        start = len(words.HEADERS[header])
        fitting = [group for group in self.groups if group.entries is not None]
        found = [(group, group.tile(message.joined, start, after_opening=False)) for group in fitting]
        owners = [(group, entries) for group, entries in found if entries]
        # Of two messages that hold the same file, the one whose own is still to come.
        return min(
            owners, key=lambda own: (header not in own[0].claims, not own[0].wants(own[1]), own[0].met), default=None
        )

    def use(self, group: Group, entries: list[int], message: View, header: str) -> None:
        """These files of the group stand in this message."""
        group.remaining -= set(entries)
        self.used.update({(group.message.index, entry): (message.index, header) for entry in entries})

    def hand_on(self, group: Group, entry: int) -> bool:
        """Whether the part that this file was found in before may as well be of another message with the same file."""
        at, header = self.used.get((group.message.index, entry), (-1, ""))
        assert group.entries is not None
        for other in self.groups:
            if other is group or other.entries is None or header not in other.claims:
                continue
            if other.met and other.met_at < at:
                continue
            core = group.entries.cores[entry]
            same = next((index for index in other.remaining if other.entries.cores[index] == core), None)
            if same is not None:
                other.remaining.discard(same)
                other.parts += 1
                self.used[(other.message.index, same)] = (at, header)
                return True
        return False

    def of_opening(self, message: View) -> tuple[Group, list[int]] | None:
        """The group whose opening this is, and its files behind it; of several, one that this completes."""
        owners = []
        for group in self.groups:
            if group.met or group.entries is None or not message.joined.startswith(group.entries.opening):
                continue
            opening = group.entries.opening
            entries = group.tile(message.joined, len(opening), after_opening=bool(opening))
            if entries is not None:
                owners.append((group, entries))
        if len(owners) < 2:
            return owners[0] if owners else None
        group, entries = min(owners, key=lambda own: (len(self._missing(*own)), not own[0].wants(own[1])))
        for entry in group.remaining - set(entries) - self._missing(group, entries):
            self._borrow(group, entry)
        return group, entries

    def _missing(self, group: Group, entries: list[int]) -> set[int]:
        """The group's files that were not met, and that no other message lends which holds them as well."""
        return {e for e in group.remaining - set(entries) if self._lender(group, e) is None}

    def _lender(self, group: Group, entry: int) -> tuple[Group, int] | None:
        assert group.entries is not None
        for other in self.groups:
            if other is group or other.met or other.entries is None:
                continue
            for index, core in enumerate(other.entries.cores):
                _, header = self.used.get((other.message.index, index), (-1, ""))
                if core == group.entries.cores[entry] and index not in other.remaining and header in group.claims:
                    return other, index
        return None

    def _borrow(self, group: Group, entry: int) -> None:
        """A part that was taken for another message's is this one's; the other's is still to come."""
        found = self._lender(group, entry)
        if found is not None:
            other, index = found
            other.remaining.add(index)
            group.remaining.discard(entry)
            group.parts += 1
            self.used[(group.message.index, entry)] = self.used.pop((other.message.index, index))

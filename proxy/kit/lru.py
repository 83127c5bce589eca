"""Tables that are bounded by the memory or by the number of their entries. The least recently used entries are dropped
first.

The weights of entries are estimates in bytes, taken from the lengths of what an entry holds: an exact count would cost
more than it is worth. A test compares the estimates with real memory (tests/unit/planner/test_init_memory.py).
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(OrderedDict[K, V]):
    """Entries in the order of their use. ``used`` records that an entry was used, and may have grown. There are never
    more than ``most_entries`` entries."""

    def __init__(self, most_bytes: int, weigh: Callable[[V], int], most_entries: float = math.inf) -> None:
        super().__init__()
        self._most = most_bytes
        self._weigh = weigh
        self._most_entries = most_entries
        self._weights: dict[K, int] = {}
        self.bytes = 0

    def used(self, key: K) -> None:
        """Weigh the entry again. This counts as a use."""
        self.put(key, self[key])

    def put(self, key: K, entry: V) -> None:
        """Set an entry, and drop the least recently used others until there is room. The entry itself is never
        dropped. This counts as a use."""
        self[key] = entry
        weight = self._weigh(entry)
        self.bytes += weight - self._weights.get(key, 0)
        self._weights[key] = weight
        self.move_to_end(key)
        while len(self) > 1 and (self.bytes > self._most or len(self) > self._most_entries):
            self.drop_oldest()

    @property
    def is_half_empty(self) -> bool:
        """Whether there is room for as much again."""
        return self.bytes < self._most / 2 and len(self) < self._most_entries / 2

    def weight_of(self, key: K) -> int:
        """The weight of the entry when it was last used; 0 if there is no such entry."""
        return self._weights.get(key, 0)

    def drop(self, key: K) -> None:
        """Forget an entry. It must exist."""
        del self[key]
        self.bytes -= self._weights.pop(key, 0)

    def drop_oldest(self) -> None:
        """Forget the least recently used entry."""
        key, _ = self.popitem(last=False)
        self.bytes -= self._weights.pop(key, 0)


class LastUsed(OrderedDict[K, V]):
    """At most ``most`` entries, in the order of their use."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def find(self, key: K) -> V | None:
        """The entry, or None if there is none. This counts as a use."""
        entry = self.get(key)
        if entry is not None:
            self.move_to_end(key)
        return entry

    def put(self, key: K, entry: V) -> None:
        """Set an entry; this counts as a use. If there is no room, the least recently used entry is dropped."""
        self[key] = entry
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)

    def trim(self) -> None:
        """Drop the least recently used entries after entries were set without ``put``."""
        while len(self) > self._most:
            self.popitem(last=False)

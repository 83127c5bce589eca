"""A table that is bounded by the memory of its entries. The least recently used entries are dropped first.

The weights of entries are estimates in bytes, taken from the lengths of what an entry holds: an exact count would cost
more than it is worth. A test compares the estimates with real memory (tests/unit/core/planner/test_planner_memory.py).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(OrderedDict[K, V]):
    """Entries in the order of their use. ``used`` says that an entry was used, and may have grown."""

    def __init__(self, most_bytes: int, weigh: Callable[[V], int]) -> None:
        super().__init__()
        self._most = most_bytes
        self._weigh = weigh
        self._weights: dict[K, int] = {}
        self.bytes = 0

    def used(self, key: K) -> None:
        """Re-weigh the entry, move it to the end, and drop the least recently used others while there is no room. The
        entry itself is never dropped."""
        weight = self._weigh(self[key])
        self.bytes += weight - self._weights.get(key, 0)
        self._weights[key] = weight
        self.move_to_end(key)
        while self.bytes > self._most and len(self) > 1:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Forget the entry whose use is the longest ago."""
        key, _ = self.popitem(last=False)
        self.bytes -= self._weights.pop(key, 0)

"""A table bounded by what its entries weigh in memory, least recently used out first.

Weights are estimates, in bytes, from the lengths of what an entry holds: counting them exactly would cost more than it
is worth. What the estimates are worth is tested (tests/unit/core/planner/test_planner_memory.py).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(OrderedDict[K, V]):
    """Entries in the order of their use. ``used`` says that one was, and may have grown."""

    def __init__(self, most_bytes: int, weigh: Callable[[V], int]) -> None:
        super().__init__()
        self._most = most_bytes
        self._weigh = weigh
        self._weights: dict[K, int] = {}
        self.bytes = 0

    def used(self, key: K) -> None:
        """Weigh an entry anew and move it to the end; others go where there is no more room. It stays itself."""
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

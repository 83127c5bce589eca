"""Waits for calls as long as a limit says, in seconds that the event loop attended (``proxy.core.timing.attention``).

All waits share one timer, which runs only while something is waited for.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from proxy.core.timing.attention import Attention

_T = TypeVar("_T")

TICKS = 25
"""The fewest turns of the loop within a limit: to connect and to ask takes about a dozen."""


class Patience:
    """A limit for any number of waits at once, in one event loop."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._tick_s = limit_s / TICKS
        self._attention = Attention(self._tick_s)
        self._waits: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def wait_for(self, call: Awaitable[_T]) -> _T:
        """What the call returns. Raises TimeoutError beyond the limit."""
        async with asyncio.timeout(None) as wait:
            if self._timer is None:
                self._attention.rest()
                self._tick()
            # A tick is under way: the wait ends with the one behind the limit, never before it.
            self._waits[wait] = self._attention.attended_s + self._limit_s + self._tick_s
            try:
                return await call
            finally:
                self._waits.pop(wait, None)

    def give_up(self) -> None:
        """End every wait now: its call would wait in vain."""
        now = asyncio.get_running_loop().time()
        for wait in self._waits:
            wait.reschedule(now)
        self._waits.clear()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        attended_s = self._attention.look(now)
        for wait in [wait for wait, until_s in self._waits.items() if until_s <= attended_s]:
            wait.reschedule(now)
            del self._waits[wait]
        self._timer = loop.call_later(self._tick_s, self._next)

    def _next(self) -> None:
        self._timer = None
        if self._waits:
            self._tick()

"""Keeps open pages up to date.

Each open page asks for its part every two seconds. The part of one address is made once, however many look at it, and
one that has not changed is not sent. After a part was made, none is made for a hundred times as long as that took, so
that requests of clients are not held up by pages; then the oldest part that a page asks for is made.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from proxy.engine import suppress_and_log
from proxy.errors import ProxyError
from proxy.ui.templates import mark_of

EVERY_S: Final = 2.0
MOST_STREAMS: Final = 100
_REST, _MOST_REST_S = 100.0, 30.0


@dataclass(slots=True)
class _Shown:
    """The part of one address as it is now, when it was made and last asked for, and how many look at it."""

    part: str = ""
    mark: str = ""
    made_at: float = float("-inf")
    asked_at: float = float("-inf")
    streams: int = 0


class Live:
    """``make`` makes the part of a page that changes, by the page's address. ``is_stopping`` says that the server
    ends, which waits for its streams."""

    def __init__(self, make: Callable[[str], Awaitable[str]], every_s: float = EVERY_S) -> None:
        self._make = make
        self._every_s = every_s
        self._open: dict[str, _Shown] = {}
        self._rests_until = 0.0
        self.is_stopping: Callable[[], bool] = bool

    @property
    def streams(self) -> int:
        """How many pages are open."""
        return sum(shown.streams for shown in self._open.values())

    async def follow(self, address: str, seen: str) -> AsyncIterator[str]:
        """The part of a page, whenever it differs from what was ``seen`` last. A page that reads slowly misses what is
        outdated. Ends when the server does."""
        shown = self._open.setdefault(address, _Shown())
        shown.streams += 1
        try:
            while not self.is_stopping():
                shown.asked_at = now = perf_counter()
                rest_s = self._rests_until - now
                if rest_s <= 0 and self._is_next(shown):
                    await self._renew(address, shown, now)
                if shown.mark not in ("", seen):
                    seen = shown.mark
                    yield shown.part
                await asyncio.sleep(rest_s if 0 < rest_s < self._every_s else self._every_s)
        finally:
            shown.streams -= 1
            if not shown.streams:
                del self._open[address]

    def _is_next(self, shown: _Shown) -> bool:
        """Whether a part is made now: it is due, and no older one waits. A page that reads slowly does not ask, and no
        other page waits for it."""
        due = shown.asked_at - self._every_s
        waiting = (one.made_at for one in self._open.values() if one.asked_at > due - self._every_s)
        return shown.made_at <= min(due, *waiting)

    async def _renew(self, address: str, shown: _Shown, now: float) -> None:
        """Make a part anew. Others that look at it meanwhile go on with the old one."""
        self._rests_until, shown.made_at = float("inf"), now
        # A page that is gone says so when it is loaded again; what it shows stays true as far as it goes.
        with suppress_and_log("ui.live"), suppress(ProxyError):
            try:
                shown.part = await self._make(address)
                shown.mark = mark_of(shown.part)
            finally:
                ended = perf_counter()
                self._rests_until = ended + min(_MOST_REST_S, _REST * (ended - now))

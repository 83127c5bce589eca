"""Keeps open pages up to date.

Each open page asks for its part every two seconds. The part of one address is made once for all pages that show it. A
part that has not changed is not sent. After a part was made, no part is made for a hundred times as long as that took,
so that pages do not hold up requests of clients. Then the oldest part that a page asks for is made.
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
    """The current part of one address, when it was made and last asked for, and how many pages show it."""

    part: str = ""
    mark: str = ""
    made_at: float = float("-inf")
    asked_at: float = float("-inf")
    streams: int = 0


class Live:
    """``make`` makes the part of a page that changes, by the page's address. ``is_stopping`` says that the server
    is about to end; the server waits for its streams."""

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
        """The part of a page, whenever it differs from the version that was ``seen`` last. A page that reads slowly
        misses outdated versions. The iterator ends when the server ends."""
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
        """Whether a part is made now: it is due, and no older part waits. A page that reads slowly does not ask, so no
        other page waits for it."""
        due = shown.asked_at - self._every_s
        waiting = (one.made_at for one in self._open.values() if one.asked_at > due - self._every_s)
        return shown.made_at <= min(due, *waiting)

    async def _renew(self, address: str, shown: _Shown, now: float) -> None:
        """Make a part anew. Meanwhile, other pages go on with the old part."""
        self._rests_until, shown.made_at = float("inf"), now
        # If the page no longer exists, loading it again says so. Until then it keeps its last content.
        with suppress_and_log("ui.live"), suppress(ProxyError):
            try:
                shown.part = await self._make(address)
                shown.mark = mark_of(shown.part)
            finally:
                ended = perf_counter()
                self._rests_until = ended + min(_MOST_REST_S, _REST * (ended - now))

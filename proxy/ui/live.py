"""Keeps open pages up to date.

One task of a worker looks for all pages that are open: pages of one address are made once, however many look at it. A
page that has not changed sends nothing. Between two rounds the task rests much longer than it has worked, so that
requests of clients are not held up by pages. Without open pages there is no task.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from proxy.engine import suppress_and_log
from proxy.errors import ProxyError
from proxy.tasks import Tasks, cancel, spawn
from proxy.ui.templates import mark_of

EVERY_S: Final = 2.0
MOST_STREAMS: Final = 100
_REST, _MOST_REST_S = 100.0, 30.0
"""The task rests this many times as long as it has worked."""

Make = Callable[[str], Awaitable[str]]


@dataclass(slots=True)
class _Shown:
    """The part of one address as it is now, and how many look at it."""

    part: str = ""
    mark: str = ""
    streams: int = 0


class Live:
    """``make`` makes the part of a page that changes, by the page's address. ``is_stopping`` says that the server
    ends, which waits for its streams."""

    def __init__(self, make: Make, every_s: float = EVERY_S) -> None:
        self._make = make
        self._every_s = every_s
        self._open: dict[str, _Shown] = {}
        self._news = asyncio.Condition()
        self._tasks: Tasks = set()
        self.is_stopping: Callable[[], bool] = bool
        self.rounds = 0

    @property
    def streams(self) -> int:
        """How many pages are open."""
        return sum(shown.streams for shown in self._open.values())

    async def follow(self, address: str, seen: str) -> AsyncIterator[str]:
        """The part of a page, whenever it differs from what was ``seen`` last. A page that reads slowly misses what is
        outdated. Ends when the server does."""
        shown = self._open.setdefault(address, _Shown())
        shown.streams += 1
        if not self._tasks:
            spawn(self._rounds(), self._tasks)
        try:
            while True:
                async with self._news:
                    while not self.is_stopping() and shown.mark in ("", seen):
                        await self._news.wait()
                if self.is_stopping():
                    return
                seen = shown.mark
                yield shown.part
        finally:
            shown.streams -= 1
            if not shown.streams:
                del self._open[address]
            if not self._open:
                # A page that is opened while the task ends gets a task of its own.
                tasks, self._tasks = self._tasks, set()
                await cancel(tasks)

    async def aclose(self) -> None:
        """End the task and all streams."""
        self.is_stopping = lambda: True
        await self._tell()
        await cancel(self._tasks)

    async def _rounds(self) -> None:
        while not self.is_stopping():
            worked_s = 0.0
            for address in list(self._open):
                began = perf_counter()
                await self._look(address)
                worked_s += perf_counter() - began
            self.rounds += 1
            await self._rest(max(self._every_s, min(_MOST_REST_S, _REST * worked_s)))
        await self._tell()

    async def _rest(self, rest_s: float) -> None:
        """Wait, but not beyond the end of the server."""
        while rest_s > 0 and not self.is_stopping():
            await asyncio.sleep(min(rest_s, self._every_s))
            rest_s -= self._every_s

    async def _look(self, address: str) -> None:
        # A page that is gone says so when it is loaded again; what it shows stays true as far as it goes.
        with suppress_and_log("ui.live"), suppress(ProxyError):
            part = await self._make(address)
            if address in self._open:
                self._open[address].part, self._open[address].mark = part, mark_of(part)
                await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

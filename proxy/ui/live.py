"""Keeps open pages up to date.

One task of a worker looks for all pages that are open: pages of one address are made once, however many look at it. A
page that has not changed sends nothing. Between two rounds the task rests much longer than it has worked, so that
requests of clients are not held up by pages. Without open pages there is no task.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
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


class _Stream:
    """One open page: what it has seen, and what it is to be sent. A page that reads slowly misses what is outdated."""

    def __init__(self, seen: str) -> None:
        self.seen = seen
        self.part: str | None = None
        self.news = asyncio.Event()

    def tell(self, part: str, mark: str) -> None:
        if mark != self.seen:
            self.seen, self.part = mark, part
            self.news.set()


class Live:
    """``make`` makes the part of a page that changes, by the page's address. ``is_stopping`` says that the server
    ends, which waits for its streams."""

    def __init__(self, make: Make, every_s: float = EVERY_S) -> None:
        self._make = make
        self._every_s = every_s
        self._open: dict[str, set[_Stream]] = {}
        self._tasks: Tasks = set()
        self.is_stopping: Callable[[], bool] = bool
        self.rounds = 0

    @property
    def streams(self) -> int:
        """How many pages are open."""
        return sum(map(len, self._open.values()))

    async def follow(self, address: str, seen: str) -> AsyncIterator[str]:
        """The part of a page, whenever it differs from what was ``seen`` last. Ends when the server does."""
        stream = _Stream(seen)
        self._open.setdefault(address, set()).add(stream)
        if not self._tasks:
            spawn(self._rounds(), self._tasks)
        try:
            while not self.is_stopping():
                await stream.news.wait()
                stream.news.clear()
                part, stream.part = stream.part, None
                if part is not None:
                    yield part
        finally:
            streams = self._open[address]
            streams.discard(stream)
            if not streams:
                del self._open[address]
            if not self._open:
                # A page that is opened while the task ends gets a task of its own.
                tasks, self._tasks = self._tasks, set()
                await cancel(tasks)

    async def aclose(self) -> None:
        """End the task and all streams."""
        self.is_stopping = lambda: True
        self._wake()
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
        self._wake()

    async def _rest(self, rest_s: float) -> None:
        """Wait, but not beyond the end of the server."""
        while rest_s > 0 and not self.is_stopping():
            await asyncio.sleep(min(rest_s, self._every_s))
            rest_s -= self._every_s

    async def _look(self, address: str) -> None:
        part = None
        with suppress_and_log("ui.live"):
            try:
                part = await self._make(address)
            except ProxyError:
                return  # the page says so when it is loaded again; what it shows stays true as far as it goes
        if part is None:
            return
        mark = mark_of(part)
        for stream in self._open.get(address, ()):
            stream.tell(part, mark)

    def _wake(self) -> None:
        for streams in self._open.values():
            for stream in streams:
                stream.news.set()

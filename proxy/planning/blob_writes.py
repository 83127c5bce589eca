"""Writes blobs of layout state behind whoever leaves them.

What waits is written in batches, the newest version of each name, one batch behind the other: an older version never
replaces a newer one. What could not be written goes on waiting, so that a store that was away for a while misses
nothing that there is room for.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

from proxy.core.lru import Bounded
from proxy.ports import StoreError
from proxy.storage.port import StateStore
from proxy.tasks import Tasks, drain, spawn

TTL_S: Final = 86400.0
"""How long something is kept that nobody asks for any more."""

# What waits to be written: beyond that the oldest is forgotten.
_MOST_WAITING = 20_000
# Names that one call writes: others wait no longer than it takes.
_MOST_NAMES = 500
_MOST_CALLS = 4
# After a failure the store is tried again so much later.
_PAUSE_S = 1.0
# How long a process that ends waits for the store.
_CLOSE_S = 5.0

Key = tuple[str, str]
"""A scope and a name in it."""


class BlobWrites:
    """What waits for one store. ``every_s``: how long things may gather before they are written; ``failed`` is told of
    each call that failed."""

    def __init__(self, store: StateStore, failed: Callable[[], None], *, every_s: float, most_bytes: int) -> None:
        self._store = store
        self._failed = failed
        self._every_s = every_s
        self._most_bytes = most_bytes
        self._waiting = self._empty()
        self._now = 0.0
        self._tasks: Tasks = set()
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def put(self, scope: str, blobs: Mapping[str, bytes], now: float) -> None:
        """Have these written."""
        for name, blob in blobs.items():
            self._waiting.put((scope, name), blob)
        self._now = now
        if self._writing is None or self._writing.done():
            self._writing = spawn(self._write_on(), self._tasks)

    async def aclose(self) -> None:
        """Write what waits. What cannot be written now is lost."""
        self._closing.set()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await drain(self._tasks)
                await self._write_all()
        except TimeoutError:
            self._failed()

    async def _write_on(self) -> None:
        pause_s = self._every_s
        while self._waiting and not self._closing.is_set():
            if pause_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._closing.wait()
            pause_s = self._every_s if await self._write_all() else max(self._every_s, _PAUSE_S)

    async def _write_all(self) -> bool:
        """Write what waits by now; False where the store could not take all of it."""
        taken, self._waiting = self._waiting, self._empty()
        by_scope: dict[str, dict[str, bytes]] = {}
        for (scope, name), blob in taken.items():
            by_scope.setdefault(scope, {})[name] = blob
        calls = [(scope, part) for scope, blobs in by_scope.items() for part in _parts(blobs)]
        for start in range(0, len(calls), _MOST_CALLS):
            written = await asyncio.gather(*(self._write(*call) for call in calls[start : start + _MOST_CALLS]))
            if not all(written):
                self._wait_on(calls[start:])
                return False
        return True

    async def _write(self, scope: str, blobs: Mapping[str, bytes]) -> bool:
        try:
            await self._store.save(scope, blobs, TTL_S, self._now)
        except StoreError:
            self._failed()
            return False
        return True

    def _wait_on(self, calls: list[tuple[str, dict[str, bytes]]]) -> None:
        """What was not written waits again, unless a newer version does."""
        newer, self._waiting = self._waiting, self._empty()
        for scope, blobs in calls:
            for name, blob in blobs.items():
                self._waiting.put((scope, name), blob)
        for key, blob in newer.items():
            self._waiting.put(key, blob)

    def _empty(self) -> Bounded[Key, bytes]:
        return Bounded(self._most_bytes, len, _MOST_WAITING)


def _parts(blobs: Mapping[str, bytes]) -> list[dict[str, bytes]]:
    pairs = iter(blobs.items())
    return [part for part in iter(lambda: dict(islice(pairs, _MOST_NAMES)), {})]

"""What layouts have learnt, kept in the store: for other workers, and for the next start.

The store is asked before a request is planned, and gets what was learnt behind its answer. It is never waited for: one
that does not answer within its time is left alone for a moment, and this process goes by its own memory. In a store
that no other process writes, each thing is asked for once, and what was learnt is written every few seconds.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from proxy.core.bounded import Bounded
from proxy.ports import StoreError
from proxy.store import StateStore
from proxy.tasks import Tasks, drain, spawn

TTL_S = 86400.0
"""How long something is kept that nobody asks for any more."""
_TIMEOUT_S = 0.05
_PAUSE_S = 1.0
_ROUNDS = 3
_WRITE_EVERY_S = 2.0
# What waits to be written, and what was asked for: beyond that the oldest is forgotten.
_MOST_WAITING = 2_000
_MOST_ASKED = 100_000
# One takes 300 bytes, about.
_ASKED_SHARE = 5_000
_MOST_WRITES = 64
# Blobs as this process saw them last: what comes back unchanged need not be read again.
_SEEN_BYTES = 16 << 20
_WORTH_BYTES = 256


class Wanted(Protocol):
    """Something that wants to know (``proxy.core.handover.Lookout``)."""

    def names(self) -> Sequence[str]:
        """Under what names something may be known, as far as can be told by now."""
        ...

    def adopt(self, blobs: Mapping[str, bytes]) -> None:
        """Take over what is known."""
        ...


class LayoutState:
    """Reads and writes blobs of one store. ``failed`` is told what could not be done."""

    def __init__(
        self,
        store: StateStore,
        failed: Callable[[str], None],
        *,
        is_shared: bool,
        memory_bytes: int = 512 * 2**20,
    ) -> None:
        """``memory_bytes``: the room for all layout state, of which a sixteenth may wait to be written."""
        self._store = store
        self._failed = failed
        self._is_shared = is_shared
        self._asked: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._most_asked = min(_MOST_ASKED, memory_bytes // _ASKED_SHARE)
        self._most_waiting_bytes = memory_bytes // 16
        self._waiting: Bounded[tuple[str, str], bytes] = Bounded(self._most_waiting_bytes, len)
        self._seen: Bounded[tuple[str, str], bytes] = Bounded(_SEEN_BYTES, len)
        self._now = 0.0
        self._again_at = 0.0
        self._tasks: Tasks = set()
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def recall(self, scope: str, wanted: Wanted, now: float) -> None:
        """Let it know what the store knows. One round trip, and another where that leads to more."""
        asked: set[str] = set()
        for _ in range(_ROUNDS):
            if self._is_out():
                return
            names = [name for name in wanted.names() if name not in asked and self._is_news(scope, name)]
            if not names:
                return
            asked.update(names)
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    blobs = await self._store.load(scope, names, now)
            except (StoreError, TimeoutError):
                self._fails("load")
                return
            found = {name: blob for name, blob in zip(names, blobs, strict=True) if blob is not None}
            news = {name: blob for name, blob in found.items() if self._seen.get((scope, name)) != blob}
            if news:
                wanted.adopt(news)
                self._see(scope, news)

    def keep(self, scope: str, blobs: Mapping[str, bytes], now: float) -> None:
        """Have it written, behind whoever calls."""
        if not blobs:
            return
        if self._is_shared:
            self._see(scope, blobs)
            if not self._is_out() and len(self._tasks) < _MOST_WRITES:
                spawn(self._write(scope, blobs, now), self._tasks)
            return
        for name, blob in blobs.items():
            self._waiting[scope, name] = blob
            self._waiting.used((scope, name))
            self._asked[scope, name] = None
        while len(self._waiting) > _MOST_WAITING:
            self._waiting.drop_oldest()
        while len(self._asked) > self._most_asked:
            self._asked.popitem(last=False)
        self._now = now
        if self._writing is None or self._writing.done():
            self._writing = spawn(self._write_later(), self._tasks)

    async def aclose(self) -> None:
        """Write what waits."""
        self._closing.set()
        await drain(self._tasks)
        await self._write_waiting()

    async def _write_later(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WRITE_EVERY_S):
                    await self._closing.wait()
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, Bounded(self._most_waiting_bytes, len)
        by_scope: dict[str, dict[str, bytes]] = {}
        for (scope, name), blob in waiting.items():
            by_scope.setdefault(scope, {})[name] = blob
        for scope, blobs in by_scope.items():
            await self._write(scope, blobs, self._now)

    async def _write(self, scope: str, blobs: Mapping[str, bytes], now: float) -> None:
        try:
            await self._store.save(scope, blobs, TTL_S, now)
        except (StoreError, TimeoutError):
            self._fails("save")

    def _see(self, scope: str, blobs: Mapping[str, bytes]) -> None:
        for name, blob in blobs.items():
            if len(blob) >= _WORTH_BYTES:
                self._seen[scope, name] = blob
                self._seen.used((scope, name))

    def _is_news(self, scope: str, name: str) -> bool:
        """Whether it has to be asked for: always, where others write, too."""
        if self._is_shared:
            return True
        if (scope, name) in self._asked:
            return False
        self._asked[scope, name] = None
        if len(self._asked) > self._most_asked:
            self._asked.popitem(last=False)
        return True

    def _is_out(self) -> bool:
        return asyncio.get_running_loop().time() < self._again_at

    def _fails(self, operation: str) -> None:
        self._failed(operation)
        self._again_at = asyncio.get_running_loop().time() + _PAUSE_S

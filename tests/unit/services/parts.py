"""Stores that tests of this room look into."""

import asyncio
from collections.abc import Mapping, Sequence

from proxy.kit.errors import StoreError
from proxy.storage.sqlite import MemoryStore


class Recorder(MemoryStore):
    """A store whose calls are noted, and that can be held up or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[str]]] = []
        self.loads: list[tuple[str, list[str]]] = []
        self.saves: list[tuple[str, dict[str, bytes]]] = []
        self.fails = False
        self.answers, self.saved = asyncio.Event(), asyncio.Event()
        self.answers.set()

    async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
        self.calls.append(("load", list(names)))
        self.loads.append((scope, list(names)))
        await self._trouble()
        return await super().load(scope, names, now)

    async def save(self, scope: str, blobs: Mapping[str, bytes], ttl_s: float, now: float) -> None:
        self.calls.append(("save", sorted(blobs)))
        await self._trouble()
        self.saves.append((scope, dict(blobs)))
        await super().save(scope, blobs, ttl_s, now)
        self.saved.set()

    @property
    def blobs(self) -> list[bytes]:
        """All that was written."""
        return [blob for _, blobs in self.saves for blob in blobs.values()]

    def parts(self) -> list[list[str]]:
        """Which parts of a session each call has written."""
        return [sorted(name.partition(":")[0] for name in blobs) for _, blobs in self.saves]

    async def _trouble(self) -> None:
        await self.answers.wait()
        if self.fails:
            raise StoreError("gone fishing")

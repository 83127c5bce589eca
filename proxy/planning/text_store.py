"""Keeps the texts that clients send in the store, for other workers and for the next start. It must be switched on.

Texts are compressed and written in the background: the request that brings them does not wait. A request that names a
digest whose text this process does not have waits a short time for the store. Texts that have not come by then count as
missing, and the client sends them again. If the store is unavailable, nothing waits for it. The blobs are in a scope of
their own, separate from the layout state of the same client. So texts and layouts do not push each other out of a
Redis.

A text that is in use is written again several times a day, so that it expires a day after its last use at the latest,
and not while it is in use. No part of a text is ever logged.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from sys import getsizeof
from typing import Final

from proxy.aside import Aside
from proxy.core.lru import Bounded, LastUsed
from proxy.core.structured.form.form import StructuredForm
from proxy.core.structured.session.uploads import KeptText, blob_name, is_kept, packed, texts_of, unpacked
from proxy.planning.shared_blobs import TTL_S, SharedBlobs
from proxy.storage.port import Store
from proxy.tasks import Tasks, cancel, drain, spawn

WAIT_S: Final = 0.5
"""How long a request waits for texts. A client takes about as long to send them again."""
RENEWED_S: Final = TTL_S / 4
"""A text that is used this long after it was written is written again."""

# To compress one piece takes about 10 ms. After each piece, other work of the thread gets its turn.
_PIECE_BYTES = 1 << 20
# This many names are asked for in one call. Their texts take 100 MiB at most.
_NAMES_AT_ONCE = 50
# Texts of one request beyond this size count as missing.
_MOST_RECALLED_BYTES = 64 << 20
_RECALLS_AT_ONCE = 4
_CLOSE_S = 5.0
# The most texts whose time of writing is remembered. One entry takes about 400 bytes, so that all entries take at most
# a twentieth of the room for layout state.
_MOST_SAVED = 100_000
_SAVED_SHARE = 8_000

_Key = tuple[str, str]
"""A client's scope, and a digest."""


class TextStore:
    """Reads and writes the texts of one store. ``failed`` is called with the operation that could not be done or came
    too late. ``now`` gives unix seconds."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        failed: Callable[[str], None],
        aside: Aside,
        *,
        is_shared: bool,
        memory_bytes: int = 512 << 20,
    ) -> None:
        """``memory_bytes`` is the room for layout state, which is separate from the texts. Texts of a sixteenth of this
        size may wait to be compressed, and of another sixteenth to be written."""
        self._now = now
        self._failed = failed
        self._aside = aside
        self._blobs = SharedBlobs(store, failed, is_shared=is_shared, memory_bytes=memory_bytes)
        self._waiting: Bounded[_Key, str] = Bounded(memory_bytes // 16, getsizeof)
        self._saved: LastUsed[_Key, float] = LastUsed(min(_MOST_SAVED, memory_bytes // _SAVED_SHARE))
        self._turns = asyncio.Semaphore(_RECALLS_AT_ONCE)
        self._packing: Tasks = set()

    def keep(self, scope: str, form: StructuredForm) -> None:
        """Write the texts that a request shows in the background, unless they were written a short time ago."""
        now = self._now()
        for digest, text in texts_of(form):
            saved_at = self._saved.get((scope, digest))
            is_fresh = saved_at is not None and 0 <= now - saved_at < RENEWED_S
            if not is_fresh and is_kept(text):
                self._waiting.put((scope, digest), text)
        self._pack_behind()

    async def recall(self, scope: str, digests: Sequence[str]) -> Mapping[str, str]:
        """The texts of these digests that the store has and delivers in time."""
        found: dict[str, str] = {}
        left = deque(digests)
        if not self._blobs.is_away and not await self._blobs.recall(partial(self._learn, scope, left, found), WAIT_S):
            left.clear()
        return dict(found)

    async def aclose(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                self._pack_behind()
                await drain(self._packing)
        except TimeoutError:
            self._failed("save")
            await cancel(self._packing)
        await self._blobs.aclose()

    def _pack_behind(self) -> None:
        if self._waiting and all(task.done() for task in self._packing):
            spawn(self._pack_on(), self._packing)

    async def _pack_on(self) -> None:
        while self._waiting:
            texts = self._piece()
            now = self._now()
            blobs = await self._aside.run(_PIECE_BYTES, partial(_packed, texts, now))
            for (scope, digest), blob in blobs.items():
                self._blobs.put(_texts_of(scope), {blob_name(digest): blob}, now)
                self._saved.put((scope, digest), now)

    def _piece(self) -> dict[_Key, str]:
        """Take the texts that have waited longest."""
        texts: dict[_Key, str] = {}
        size = 0
        while self._waiting and size < _PIECE_BYTES:
            key = next(iter(self._waiting))
            texts[key] = self._waiting[key]
            size += getsizeof(texts[key])
            self._waiting.drop_oldest()
        return texts

    async def _learn(self, scope: str, left: deque[str], found: dict[str, str]) -> None:
        """Ask for these digests until none is left."""
        room = _MOST_RECALLED_BYTES
        async with self._turns:
            while left and room > 0:
                part = [left.popleft() for _ in range(min(_NAMES_AT_ONCE, len(left)))]
                blobs = await self._blobs.load(_texts_of(scope), [blob_name(digest) for digest in part], self._now())
                if blobs is None:
                    return
                texts = await self._aside.run(_PIECE_BYTES, partial(_unpacked, part, blobs)) if blobs else {}
                for digest in part:
                    self._note(scope, digest, texts.get(digest))
                for digest, kept in texts.items():
                    found[digest] = kept.text
                    room -= getsizeof(kept.text)

    def _note(self, scope: str, digest: str, kept: KeptText | None) -> None:
        """Note what the store has of a text. A text that the store has lost is written again at its next use."""
        if kept is None:
            self._saved.pop((scope, digest), None)
        else:
            self._saved.put((scope, digest), kept.saved_at)


def _texts_of(scope: str) -> str:
    return f"{scope}:texts"


def _packed(texts: Mapping[_Key, str], now: float) -> dict[_Key, bytes]:
    return {key: packed(text, now) for key, text in texts.items()}


def _unpacked(digests: Sequence[str], blobs: Mapping[str, bytes]) -> dict[str, KeptText]:
    """The texts whose digest is the one by which they are named."""
    found = {digest: unpacked(blobs[name], digest) for digest in digests if (name := blob_name(digest)) in blobs}
    return {digest: kept for digest, kept in found.items() if kept is not None}

"""Keeps the texts that clients send in the store, for other workers and for the next start, where that is asked for.

Texts are compressed and written behind the request that brings them; it waits for nothing. A request that names a
digest whose text this process lacks waits a short time for the store; what has not come until then counts as missing,
and the client sends it again. A store that is away is not waited for. Blobs stand in a scope of their own beside the
layout state of the same client, so that in a Redis texts and layouts do not push each other out.

A text that is in use is written again some times a day, so that it ends a day after its last use at the latest, and not
before it. Nothing is ever logged of a text.
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
"""How long a request waits for texts. To send them again takes a client about as long."""
RENEWED_S: Final = TTL_S / 4
"""A text that is used so long after it was written is written again."""

# One piece of compression takes about 10 ms, and other work of the thread gets its turn behind it.
_PIECE_BYTES = 1 << 20
# So many names are asked for at once: their texts take 100 MiB at most.
_NAMES_AT_ONCE = 50
# The texts of one request beyond that are missing.
_MOST_RECALLED_BYTES = 64 << 20
_RECALLS_AT_ONCE = 4
_CLOSE_S = 5.0
# When texts were written. An entry takes 400 bytes, about: a twentieth of the room for layout state.
_MOST_SAVED = 100_000
_SAVED_SHARE = 8_000

_Key = tuple[str, str]
"""A client's scope, and a digest."""


class TextStore:
    """Reads and writes the texts of one store. ``failed`` is told which operation could not be done, or came too late;
    ``now`` gives unix seconds."""

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
        """``memory_bytes`` is the room for the layout state beside it. Of as much, a sixteenth may wait to be
        compressed, and a sixteenth to be written."""
        self._now = now
        self._failed = failed
        self._aside = aside
        self._blobs = SharedBlobs(store, failed, is_shared=is_shared, memory_bytes=memory_bytes)
        self._waiting: Bounded[_Key, str] = Bounded(memory_bytes // 16, getsizeof)
        self._saved: LastUsed[_Key, float] = LastUsed(min(_MOST_SAVED, memory_bytes // _SAVED_SHARE))
        self._turns = asyncio.Semaphore(_RECALLS_AT_ONCE)
        self._packing: Tasks = set()

    def keep(self, scope: str, form: StructuredForm) -> None:
        """Write what a request shows in the background, unless it was written a short time ago."""
        now = self._now()
        for digest, text in texts_of(form):
            saved_at = self._saved.get((scope, digest))
            is_fresh = saved_at is not None and 0 <= now - saved_at < RENEWED_S
            if not is_fresh and is_kept(text):
                self._waiting.put((scope, digest), text)
        self._pack_behind()

    async def recall(self, scope: str, digests: Sequence[str]) -> Mapping[str, str]:
        """The texts of these digests, as far as the store has them and gives them in time."""
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
        """Take what has waited for the longest time."""
        texts: dict[_Key, str] = {}
        size = 0
        while self._waiting and size < _PIECE_BYTES:
            key = next(iter(self._waiting))
            texts[key] = self._waiting[key]
            size += getsizeof(texts[key])
            self._waiting.drop_oldest()
        return texts

    async def _learn(self, scope: str, left: deque[str], found: dict[str, str]) -> None:
        """Ask for these digests, as long as there are some left."""
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
        """What the store has lost is written again with its next use."""
        if kept is None:
            self._saved.pop((scope, digest), None)
        else:
            self._saved.put((scope, digest), kept.saved_at)


def _texts_of(scope: str) -> str:
    return f"{scope}:texts"


def _packed(texts: Mapping[_Key, str], now: float) -> dict[_Key, bytes]:
    return {key: packed(text, now) for key, text in texts.items()}


def _unpacked(digests: Sequence[str], blobs: Mapping[str, bytes]) -> dict[str, KeptText]:
    """The texts that are what they are named."""
    found = {digest: unpacked(blobs[name], digest) for digest in digests if (name := blob_name(digest)) in blobs}
    return {digest: kept for digest, kept in found.items() if kept is not None}

"""Keeps the state of conversations with live panels in the store, for other workers and for the next start.

The position of a panel depends on when it last changed. Two workers without shared state would therefore send the same
panels in two orders, and a worker that has just started would move all of them. A request with panels loads its session
before it is assembled. Its changes are written afterwards: its panels once it is assembled, and their cost once it is
settled. It waits for the store by its size, as for a layout (``layout_state``). If the store is unavailable, nothing
waits for it, and this process uses its own memory. If no other process writes the store, a session is asked for until
it has begun.

The summary of a compaction is a text. It is kept in the store if texts may be kept there, and otherwise only in memory.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from proxy.core.digest import digest
from proxy.core.structured.session.live_state import LiveState, Part, packed, unpacked
from proxy.core.structured.session.session import ContextSession
from proxy.core.wire.surrogates import utf8
from proxy.engine.suppress import suppress_and_log
from proxy.planning.context_sessions import ContextSessions
from proxy.planning.layout_state import wait_for_s
from proxy.planning.shared_blobs import TTL_S, SharedBlobs
from proxy.storage.port import Store

RENEWED_S: Final = TTL_S / 4
"""The interval at which the compaction of a session in use is written again, so that it expires together with the
session's other parts."""


class SessionStore:
    """Reads and writes the sessions of one store. ``failed`` is called with the operation that could not be done, or
    came too late for a request. ``now`` gives unix seconds."""

    def __init__(
        self,
        sessions: ContextSessions,
        store: Store,
        now: Callable[[], float],
        failed: Callable[[str], None],
        *,
        is_shared: bool,
        keeps_texts: bool = False,
        memory_bytes: int = 512 << 20,
    ) -> None:
        """``memory_bytes`` is the room for all layout state. A sixteenth of it may wait to be written."""
        self._sessions = sessions
        self._now = now
        self._keeps_texts = keeps_texts
        self._blobs = SharedBlobs(store, failed, is_shared=is_shared, memory_bytes=memory_bytes)

    async def recall(self, scope: str, name: str, size_bytes: int) -> None:
        """Update the session with what the store knows. ``size_bytes`` is the size of the request, which decides how
        long the request waits."""
        session = self._sessions.session(scope, name)
        self.keep(scope, name, session, self._now())
        # This process's state may be old: another process may have served the conversation's last request.
        if not self._blobs.is_away and (self._blobs.is_shared or not session.board.is_begun):
            await self._blobs.recall(partial(self._learn, scope, name), wait_for_s(size_bytes))

    def keep(self, scope: str, name: str, session: ContextSession, now: float) -> None:
        """Write in the background what has changed since the session was last kept or recalled. ``now`` is when it
        changed."""
        before, state = session.dated, session.live(now)
        session.dated = state
        has_text = state.compaction is not None and state.compaction.summary != ""
        unkept = Part.COMPACTION if has_text and not self._keeps_texts else None
        parts = [part for part in _changed(before, state) if part is not unkept]
        blobs = {_blob_name(part, name): blob for part in parts if (blob := packed(state, part))}
        if blobs:
            self._blobs.put(_sessions_of(scope), blobs, now)

    def changed(self, scope: str, name: str) -> None:
        """Write what has just changed after an answer."""
        with suppress_and_log("context.keep"):
            self.keep(scope, name, self._sessions.session(scope, name), self._now())

    async def aclose(self) -> None:
        await self._blobs.aclose()

    async def _learn(self, scope: str, name: str) -> None:
        parts = {_blob_name(part, name): part for part in Part}
        blobs = await self._blobs.load(_sessions_of(scope), list(parts), self._now())
        if not blobs:
            return
        state = unpacked({parts[found]: blob for found, blob in blobs.items()})
        self._sessions.session(scope, name).adopt(state, self._now())
        self._sessions.grown(scope, name)


def _changed(before: LiveState, state: LiveState) -> Iterator[Part]:
    """The parts that differ from before. An equal part that is not the same object also counts, because another request
    made it."""
    old, new = before.board, state.board
    if new.panels is not old.panels or new.prompts is not old.prompts:
        yield Part.BOARD
    if new.costs is not old.costs:
        yield Part.COSTS
    if state.compaction is not before.compaction or new.last_s // RENEWED_S != old.last_s // RENEWED_S:
        yield Part.COMPACTION


def _sessions_of(scope: str) -> str:
    return f"{scope}:panels"


def _blob_name(part: Part, name: str) -> str:
    """The name of a part's blob. It has a digest of the session's name, because that name comes from the client and
    may be long."""
    return f"{part.value}:{digest(utf8(name)).hex()}"

"""Keeps what layouts have learnt in the store, for other workers and for the next start.

The store is asked before a request is planned, and gets what was learnt behind its answer. A request waits for the
store no longer than a lost prefix is worth: without what the store knows, a long prompt that the provider has cached
may be laid out in another way, and is then paid for in full. A store that is away is not waited for, and this process
goes by its own memory. What comes too late for one request is there for the next one of its session. In a store that
no other process writes, each thing is asked for until the store has answered once, and what was learnt is written every
few seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from proxy.core.lru import Bounded, LastUsed
from proxy.core.sessions.sharing import StateLookup
from proxy.core.window.token_factor import TokenFactor
from proxy.planning.shared_blobs import LEAST_WAIT_S, SharedBlobs
from proxy.storage.port import Store

WAIT_S_PER_BYTE: Final = 1.5e-5
"""How long a request waits for the store, by its size: 1.5 s for 100 kB, which are about 25,000 tokens. To write these
to a provider's cache anew costs seven US cents more than to read them (Anthropic's Sonnet: 3.75 against 0.30 USD for a
million tokens), so that a second of waiting stands against five cents."""

MOST_WAIT_S: Final = 1.5
"""The bound of this time. Where this process knows the session itself, a request waits for the shortest time."""

_ROUNDS = 3
# Names that the store has answered for: beyond that the oldest is asked for again.
_MOST_ASKED = 100_000
# One takes 300 bytes, about.
_ASKED_SHARE = 5_000
_WORTH_BYTES = 256


class SharedLayoutStore:
    """Reads and writes blobs of one store. ``failed`` is told what could not be done, and what came too late for a
    request whose session this process does not know."""

    def __init__(
        self,
        store: Store,
        failed: Callable[[str], None],
        *,
        is_shared: bool,
        memory_bytes: int = 512 * 2**20,
    ) -> None:
        """``memory_bytes``: the room for all layout state, of which a sixteenth may wait to be written. Half of that
        holds blobs as this process saw them last: a blob that comes back unchanged need not be read again."""
        self._blobs = SharedBlobs(store, failed, is_shared=is_shared, memory_bytes=memory_bytes)
        self._asked: LastUsed[tuple[str, str], None] = LastUsed(min(_MOST_ASKED, memory_bytes // _ASKED_SHARE))
        self._seen: Bounded[tuple[str, str], bytes] = Bounded(memory_bytes // 32, len)

    async def recall(self, scope: str, wanted: StateLookup | TokenFactor, now: float, size_bytes: int) -> None:
        """Load what the store knows about a request: one round trip, and another where the answer leads to further
        names. ``size_bytes`` is the size of the request, which decides how long it waits."""
        names = [] if self._blobs.is_away else self._news(scope, wanted.names())
        if names:
            is_known = wanted.is_known()
            most_s = wait_for_s(0 if is_known else size_bytes)
            await self._blobs.recall(partial(self._learn, scope, wanted, now, names), most_s, counts=not is_known)

    def keep(self, scope: str, blobs: Mapping[str, bytes], now: float) -> None:
        """Write the blobs in the background."""
        if not blobs:
            return
        if self._blobs.is_shared:
            self._see(scope, blobs)
        else:
            self._answered(scope, blobs)
        self._blobs.put(scope, blobs, now)

    async def aclose(self) -> None:
        await self._blobs.aclose()

    async def _learn(self, scope: str, wanted: StateLookup | TokenFactor, now: float, names: Sequence[str]) -> None:
        """Ask for these names, and for what the answers lead to."""
        asked: set[str] = set()
        for _ in range(_ROUNDS):
            asked.update(names)
            found = await self._blobs.load(scope, names, now)
            if found is None:
                return
            self._answered(scope, names)
            news = {name: blob for name, blob in found.items() if self._seen.get((scope, name)) != blob}
            if not news:
                return
            wanted.adopt(news)
            self._see(scope, news)
            names = [name for name in self._news(scope, wanted.names()) if name not in asked]
            if not names:
                return

    def _see(self, scope: str, blobs: Mapping[str, bytes]) -> None:
        for name, blob in blobs.items():
            if len(blob) >= _WORTH_BYTES:
                self._seen.put((scope, name), blob)

    def _news(self, scope: str, names: Sequence[str]) -> list[str]:
        """What has to be asked for: everything, where others write, too."""
        return [name for name in names if self._blobs.is_shared or (scope, name) not in self._asked]

    def _answered(self, scope: str, names: Iterable[str]) -> None:
        """The store need not be asked for these any more, where no other process writes it."""
        if self._blobs.is_shared:
            return
        for name in names:
            self._asked.put((scope, name), None)


def wait_for_s(bytes_at_stake: int) -> float:
    """How many seconds a request waits for the store at most."""
    return min(max(bytes_at_stake * WAIT_S_PER_BYTE, LEAST_WAIT_S), MOST_WAIT_S)

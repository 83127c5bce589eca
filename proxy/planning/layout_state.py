"""Keeps in the store what layouts have learnt, for other workers and for the next start.

The store is read before a request is planned, and is written after the request is answered. A request waits for the
store no longer than a lost prefix is worth: without the store's state, a long prompt that the provider has cached may
be laid out in another way, and is then paid for in full. If the store is unavailable, nothing waits for it, and this
process uses its own memory. State that comes too late for one request is there for the session's next request. If no
other process writes the store, each name is asked for until the store has answered once, and new state is written
every few seconds.
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
tokens to a provider's cache again costs seven US cents more than to read them (Anthropic's Sonnet: 3.75 against 0.30
USD for a million tokens). So one second of waiting is weighed against five cents."""

MOST_WAIT_S: Final = 1.5
"""The bound of this time. If this process already knows the session, a request waits only for the shortest time."""

_ROUNDS = 3
# How many names are remembered for which the store has answered. Beyond that, the oldest is asked for again.
_MOST_ASKED = 100_000
# One remembered name takes about 300 bytes.
_ASKED_SHARE = 5_000
_WORTH_BYTES = 256


class SharedLayoutStore:
    """Reads and writes blobs of one store. ``failed`` is called with operations that could not be done, and with those
    that came too late for a request whose session this process does not know."""

    def __init__(
        self,
        store: Store,
        failed: Callable[[str], None],
        *,
        is_shared: bool,
        memory_bytes: int = 512 * 2**20,
    ) -> None:
        """``memory_bytes`` is the room for all layout state. A sixteenth of it may wait to be written. Half of that
        holds blobs as this process saw them last: a blob that comes back unchanged need not be read again."""
        self._blobs = SharedBlobs(store, failed, is_shared=is_shared, memory_bytes=memory_bytes)
        self._asked: LastUsed[tuple[str, str], None] = LastUsed(min(_MOST_ASKED, memory_bytes // _ASKED_SHARE))
        self._seen: Bounded[tuple[str, str], bytes] = Bounded(memory_bytes // 32, len)

    async def recall(self, scope: str, wanted: StateLookup | TokenFactor, now: float, size_bytes: int) -> None:
        """Load what the store knows about a request. This takes one round trip, and another one if the answer leads to
        further names. ``size_bytes`` is the size of the request, which decides how long the request waits."""
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
        """The names that have to be asked for. These are all names if other processes also write the store."""
        return [name for name in names if self._blobs.is_shared or (scope, name) not in self._asked]

    def _answered(self, scope: str, names: Iterable[str]) -> None:
        """Note that the store need not be asked for these names again, if no other process writes the store."""
        if self._blobs.is_shared:
            return
        for name in names:
            self._asked.put((scope, name), None)


def wait_for_s(bytes_at_stake: int) -> float:
    """How many seconds a request waits for the store at most."""
    return min(max(bytes_at_stake * WAIT_S_PER_BYTE, LEAST_WAIT_S), MOST_WAIT_S)

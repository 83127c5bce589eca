"""Keeps in the store what layouts and token counts have learnt, for other workers and for the next start.

``SharedBlobs`` loads named blobs of one store before requests, and writes them after requests. Requests of the same
moment share their calls: the names that they ask for in one turn of the event loop go to the store in one call for each
scope, and a name that is already being loaded is not asked for again. So a crowd of clients that comes back after a
restart costs only a few calls. A request waits for its blobs no longer than it says. Blobs that come later are still
taken over. A store that is unavailable is not called for a moment, and nobody waits for it. A timer of the event loop
counts in slices how long the store has been silent. If the loop is busy with other work, the timer is late, but it
still counts only one slice. So only the store's time is counted, and not the time in which this process read no
answers. Waiting blobs are written in batches. Only the newest version of each name is written, so that an older version
never replaces a newer one. Blobs that could not be written go on waiting, within a bound.

``SharedLayoutStore`` keeps the state of layouts in such blobs. A request waits for the store no longer than a lost
prefix is worth: without the store's state, a long prompt that the provider has cached may be laid out in another way,
and is then paid for in full. If the store is unavailable, this process uses its own memory. State that comes too late
for one request is there for the session's next request. If no other process writes the store, each name is asked for
until the store has answered once, and new state is written every few seconds.

``TokenFactors`` keeps how models at their upstreams count tokens. Each principal's scope has a factor of its own for
each model, so that the texts of one client do not change how much the requests of another client may hold. A scope
without a factor begins with the model's factor, which learns from all scopes.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from proxy.kit.errors import StoreError
from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.tasks import Tasks, cancel, drain, pause, spawn
from proxy.kit.value import digest
from proxy.models import Deployment
from proxy.planner.sharing import StateLookup
from proxy.prompts.window import TokenFactor
from proxy.storage import Store

TTL_S: Final = 86400.0
"""How long a blob is kept that nobody asks for any more."""

LEAST_WAIT_S: Final = 0.05
"""How long a request waits for a store that has just failed."""

SLICE_S: Final = 0.02
"""The longest time of waiting that one turn of the event loop may count for."""
# A busy event loop looks for answers once a turn. If each client has its own key, this many are served in one turn.
_MOST_LOADS = 32
_MOST_SAVES = 4
# More names of a scope go into another call, so that no answer holds up the event loop for long.
_MOST_NAMES = 500
# After a failure and this pause, the next request asks the store again, and waiting blobs are written again.
_PAUSE_S = 0.1
_SAVE_PAUSE_S = 1.0
# If no other process reads the store, blobs may be collected for this time before they are written.
_GATHER_S = 2.0
# The most requests that have gone on without waiting, while their answers are still to come.
_MOST_LATE = 64
# The most blobs that wait to be written. Beyond that, the oldest is forgotten.
_MOST_WAITING = 20_000
# How long a process that is shutting down waits for the store.
_CLOSE_S = 5.0

Key = tuple[str, str]
"""A scope and a name in it."""


class SharedBlobs:
    """The loads and the saves of one store. ``failed`` is called with the one of the two that could not be done or came
    too late. A sixteenth of ``memory_bytes`` may wait to be written. Blobs are written at once if other processes read
    the store (``is_shared``)."""

    def __init__(
        self, store: Store, failed: Callable[[str], None], *, is_shared: bool, memory_bytes: int = 512 << 20
    ) -> None:
        self.is_shared = is_shared
        self.failed = failed
        self._store = store
        self._asked: dict[Key, asyncio.Future[bytes | None]] = {}
        self._gathered: OrderedDict[str, list[str]] = OrderedDict()
        self._asked_at = 0.0
        self._loads: Tasks = set()
        self._recalls: Tasks = set()
        self._is_failing = False
        self._again_at = 0.0
        self._silence_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._most_bytes = memory_bytes // 16
        self._waiting = self._empty()
        self._saved_at = 0.0
        self._writing: Tasks = set()
        self._closing = asyncio.Event()

    @property
    def is_away(self) -> bool:
        """Whether the last load failed, and either another one is under way or it is too early for one."""
        return self._is_failing and (bool(self._asked) or asyncio.get_running_loop().time() < self._again_at)

    async def recall(
        self, learn: Callable[[], Coroutine[Any, Any, None]], most_s: float, *, counts: bool = True
    ) -> bool:
        """Wait at most ``most_s`` seconds for work that loads blobs. There is no wait for work for which another
        request has already waited in vain. Returns whether the work has ended. The work goes on in any case.
        ``counts``: coming too late counts as a failure."""
        left_s = LEAST_WAIT_S if self._is_failing else most_s - self._silence_s
        is_waited_for = left_s > 0
        if not is_waited_for and len(self._recalls) >= _MOST_LATE:
            return False
        recall = spawn(learn(), self._recalls)
        while left_s > 0 and not recall.done():
            await asyncio.wait({recall}, timeout=min(left_s, SLICE_S))
            left_s -= SLICE_S
        if is_waited_for and counts and not recall.done():
            self.failed("load")
        return recall.done()

    async def load(self, scope: str, names: Iterable[str], now: float) -> Mapping[str, bytes] | None:
        """The blobs of these names. None if the store could not be asked for all of them."""
        answers = {name: self._answer(scope, name, now) for name in names}
        try:
            found = {name: await answer for name, answer in answers.items()}
        except StoreError:
            return None
        return {name: blob for name, blob in found.items() if blob is not None}

    def put(self, scope: str, blobs: Mapping[str, bytes], now: float) -> None:
        """Have these blobs written in the background."""
        for name, blob in blobs.items():
            self._waiting.put((scope, name), blob)
        self._saved_at = now
        if all(task.done() for task in self._writing):  # the set still holds a task that has just ended
            spawn(self._write_on(), self._writing)

    async def aclose(self) -> None:
        """Take over no more blobs, and write those that wait. Blobs that cannot be written now are lost."""
        self._gathered.clear()
        await cancel(self._recalls)
        await cancel(self._loads)
        self._closing.set()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await drain(self._writing)
                await self._write_all()
        except TimeoutError:
            self.failed("save")

    def _answer(self, scope: str, name: str, now: float) -> "asyncio.Future[bytes | None]":
        """The answer about a name that is being loaded, or will be from the next turn of the event loop on."""
        key = scope, name
        if key not in self._asked:
            loop = asyncio.get_running_loop()
            self._asked[key] = loop.create_future()
            if not self._gathered:
                loop.call_soon(self._ask)
            self._gathered.setdefault(scope, []).append(name)
            self._asked_at = now
        return self._asked[key]

    def _ask(self, ended: object = None) -> None:
        """Begin as many calls as may run at once. ``ended`` is a call that has ended."""
        while self._gathered and len(self._loads) < _MOST_LOADS:
            scope, names = self._gathered.popitem(last=False)
            if left := names[_MOST_NAMES:]:
                self._gathered[scope] = left
            spawn(self._call(scope, names[:_MOST_NAMES], self._asked_at), self._loads).add_done_callback(self._ask)
        if self._timer is None and self._loads:
            self._timer = asyncio.get_running_loop().call_later(SLICE_S, self._tick)

    async def _call(self, scope: str, names: Sequence[str], now: float) -> None:
        found: Mapping[str, bytes | None] | None = None
        try:
            found = dict(zip(names, await self._store.load(scope, names, now), strict=True))
            self._is_failing, self._silence_s = False, 0.0
        except StoreError:
            self._is_failing, self._again_at = True, asyncio.get_running_loop().time() + _PAUSE_S
            self.failed("load")
        finally:
            for name in names:
                answer = self._asked.pop((scope, name))
                if answer.done():  # the task that waited for it was cancelled
                    continue
                if found is not None:
                    answer.set_result(found[name])
                else:
                    answer.set_exception(StoreError("the store gave no answer"))
                    answer.exception()  # perhaps nobody waits for it any more

    def _tick(self) -> None:
        self._timer = None
        if self._loads:
            self._silence_s += SLICE_S
            self._timer = asyncio.get_running_loop().call_later(SLICE_S, self._tick)

    async def _write_on(self) -> None:
        gather_s = 0.0 if self.is_shared else _GATHER_S
        pause_s = gather_s
        while self._waiting and not self._closing.is_set():
            if pause_s:
                await pause(pause_s, self._closing)
            pause_s = gather_s if await self._write_all() else max(gather_s, _SAVE_PAUSE_S)

    async def _write_all(self) -> bool:
        """Write the blobs that wait now. The result is False if the store could not take all of them. The others then
        wait again, unless a newer version waits."""
        taken, self._waiting = self._waiting, self._empty()
        calls = list(_parts(taken))
        for start in range(0, len(calls), _MOST_SAVES):
            saves = (self._save(scope, names, taken) for scope, names in calls[start : start + _MOST_SAVES])
            if not all(await asyncio.gather(*saves)):
                newer, self._waiting = self._waiting, self._empty()
                left = [(scope, name) for scope, names in calls[start:] for name in names]
                for key, blob in (*((key, taken[key]) for key in left), *newer.items()):
                    self._waiting.put(key, blob)
                return False
        return True

    async def _save(self, scope: str, names: Sequence[str], taken: Mapping[Key, bytes]) -> bool:
        try:
            await self._store.save(scope, {name: taken[scope, name] for name in names}, TTL_S, self._saved_at)
        except StoreError:
            self.failed("save")
            return False
        return True

    def _empty(self) -> Bounded[Key, bytes]:
        return Bounded(self._most_bytes, len, _MOST_WAITING)


def _parts(keys: Iterable[Key]) -> Iterator[tuple[str, list[str]]]:
    """The names of each scope, in parts of at most as many names as one call takes."""
    by_scope: dict[str, list[str]] = {}
    for scope, name in keys:
        by_scope.setdefault(scope, []).append(name)
    for scope, names in by_scope.items():
        for start in range(0, len(names), _MOST_NAMES):
            yield scope, names[start : start + _MOST_NAMES]


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
        self.aclose = self._blobs.aclose
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
        self._answered(scope, blobs)
        if self._blobs.is_shared:
            self._see(scope, blobs)
        self._blobs.put(scope, blobs, now)

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


_MOST_FACTORS = 4_096
# The scope of the factors that learn from all scopes. The scopes of principals are digests.
_ALL = "models"


class TokenFactors:
    """The known factors of how models count tokens. ``shared`` holds the factors for other workers and the next start;
    None: they are not shared."""

    def __init__(self, shared: SharedLayoutStore | None = None, now: Callable[[], float] = float) -> None:
        self._shared = shared
        self._now = now
        self._factors: LastUsed[tuple[str, str], TokenFactor] = LastUsed(_MOST_FACTORS)

    async def known(self, deployment: Deployment, scope: str, size: int = 0) -> TokenFactor:
        """The factor by which the proxy's count is multiplied. If a ``size`` is given, the store is read first.
        ``size`` is the request's size in bytes, which decides how long it waits."""
        both = self._both(deployment, scope)
        if self._shared is not None and size:
            now = self._now()
            await asyncio.gather(*(self._shared.recall(name, one, now, size) for name, one in both.items()))
        own, shared = both.values()
        return own if own.is_known() else shared

    def teach(self, deployment: Deployment, scope: str, lesson: Callable[[TokenFactor], None]) -> None:
        """Have the factors learn from an answer or a refusal."""
        for name, factor in self._both(deployment, scope).items():
            lesson(factor)
            if self._shared is not None and factor.is_known():
                self._shared.keep(name, factor.packed(), self._now())

    def _both(self, deployment: Deployment, scope: str) -> dict[str, TokenFactor]:
        """The factor of this scope and the factor of all scopes, by scope."""
        name = "f" + digest(f"{deployment.id or deployment.name}/{deployment.model}".encode()).hex()
        keys = [(scope, name), (_ALL, name)]
        for key in keys:
            self._factors.put(key, self._factors.get(key) or TokenFactor(name))
        return {key[0]: self._factors[key] for key in keys}

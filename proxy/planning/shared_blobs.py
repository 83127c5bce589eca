"""Named blobs of one store, which are loaded before requests and written after them.

Requests of the same moment share their calls: the names that they ask for in one turn of the event loop go to the store
in one call for each scope, and a name that is already being loaded is not asked for again. So a crowd of clients that
comes back after a restart costs only a few calls. A request waits for its blobs no longer than it says. Blobs that come
later are still taken over. A store that is unavailable is not called for a moment, and nobody waits for it.

A timer of the event loop counts in slices how long the store has been silent. If the loop is busy with other work, the
timer is late, but it still counts only one slice. So only the store's time is counted, and not the time in which this
process read no answers.

Waiting blobs are written in batches. Only the newest version of each name is written, so that an older version never
replaces a newer one. Blobs that could not be written go on waiting, within a bound.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from proxy.core.lru import Bounded
from proxy.ports import StoreError
from proxy.storage.port import Store
from proxy.tasks import Tasks, cancel, drain, spawn

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
            call = self._call(scope, names[:_MOST_NAMES], self._asked_at)
            spawn(call, self._loads).add_done_callback(self._ask)
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
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._closing.wait()
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

"""Loads blobs of layout state for many requests at once.

Requests of the same moment share their calls: what they ask for in one turn of the event loop, or while ``_MOST_CALLS``
calls are under way, goes to the store in one call a scope, and a name that is under way already is not asked for again.
So a crowd of clients that comes back after a restart costs a handful of calls.

How long the store has been silent is counted here, for whoever decides how long to wait. The silence is counted in
slices by a timer of the event loop: a loop that is busy with other work delays the timer, and however long it was busy,
one slice is counted. The time of the store is counted, and not the time in which this process read nobody's answers.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from proxy.ports import StoreError
from proxy.storage.port import StateStore
from proxy.tasks import Tasks, drain, spawn

SLICE_S: Final = 0.02
"""The largest piece of waiting that one turn of the event loop may count for."""
# A busy event loop looks for answers once a turn: of clients with a key each it has so many served in one turn.
_MOST_CALLS = 32
# More names of a scope go into another call: no answer holds up the event loop for long.
_MOST_NAMES = 500
# After a failure the store is asked again, by the next request that comes so much later.
_PAUSE_S = 0.1

Answer = Mapping[str, bytes] | None
"""The blobs that were found; None where the call failed."""


@dataclass(slots=True, eq=False)
class Batch:
    """One call: the names of a scope, and the store's answer to come."""

    scope: str
    now: float
    answer: "asyncio.Future[Answer]"
    names: dict[str, None] = field(default_factory=dict)


class BlobLoads:
    """The calls to one store. ``failed`` is told of each call that failed."""

    def __init__(self, store: StateStore, failed: Callable[[], None]) -> None:
        self._store = store
        self._failed = failed
        self._open: dict[str, Batch] = {}
        self._gathered: deque[Batch] = deque()
        self._under_way: dict[str, list[Batch]] = {}
        self._calls: Tasks = set()
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_failing = False
        self._again_at = 0.0
        self.silence_s = 0.0
        """How long the store has owed an answer, in its own time; any answer ends the silence."""

    @property
    def is_away(self) -> bool:
        """Whether the last call failed, and either another one is under way or it is too early for one."""
        return self.is_failing and (self._running > 0 or asyncio.get_running_loop().time() < self._again_at)

    async def load(self, scope: str, names: Sequence[str], now: float) -> Answer:
        """The blobs of these names; None where the store could not be asked for all of them."""
        batches: dict[Batch, None] = {}
        for name in names:
            batches[self._batch_for(scope, name, now)] = None
        found: dict[str, bytes] = {}
        for batch in batches:
            answer = await batch.answer
            if answer is None:
                return None
            found.update((name, answer[name]) for name in names if name in answer)
        return found

    async def aclose(self) -> None:
        """End what is under way: nobody waits for it any more."""
        for batch in self._gathered:
            batch.answer.set_result(None)
        self._gathered.clear()
        for call in self._calls:
            call.cancel()
        await drain(self._calls)

    def _batch_for(self, scope: str, name: str, now: float) -> Batch:
        """The call that asks for this name: one under way, or one that is being gathered."""
        under_way = next((batch for batch in self._under_way.get(scope, ()) if name in batch.names), None)
        if under_way is not None:
            return under_way
        batch = self._open.get(scope)
        if batch is None or (len(batch.names) >= _MOST_NAMES and name not in batch.names):
            loop = asyncio.get_running_loop()
            batch = self._open[scope] = Batch(scope, now, loop.create_future())
            if not self._gathered:
                loop.call_soon(self._flush)
            self._gathered.append(batch)
        batch.names[name] = None
        return batch

    def _flush(self) -> None:
        while self._gathered and self._running < _MOST_CALLS:
            batch = self._gathered.popleft()
            if self._open.get(batch.scope) is batch:
                del self._open[batch.scope]
            self._under_way.setdefault(batch.scope, []).append(batch)
            self._running += 1
            spawn(self._call(batch), self._calls)
        if self._timer is None and self._running:
            self._timer = asyncio.get_running_loop().call_later(SLICE_S, self._tick)

    async def _call(self, batch: Batch) -> None:
        names = list(batch.names)
        answer: Answer = None
        try:
            blobs = await self._store.load(batch.scope, names, batch.now)
            answer = {name: blob for name, blob in zip(names, blobs, strict=True) if blob is not None}
            self.is_failing, self.silence_s = False, 0.0
        except StoreError:
            self.is_failing, self._again_at = True, asyncio.get_running_loop().time() + _PAUSE_S
            self._failed()
        finally:
            under_way = self._under_way[batch.scope]
            under_way.remove(batch)
            if not under_way:
                del self._under_way[batch.scope]
            self._running -= 1
            if not batch.answer.done():  # whoever waited for it was cancelled
                batch.answer.set_result(answer)
            self._flush()

    def _tick(self) -> None:
        self._timer = None
        if self._running:
            self.silence_s += SLICE_S
            self._timer = asyncio.get_running_loop().call_later(SLICE_S, self._tick)


async def ends_within(task: "asyncio.Task[None]", wait_s: float) -> bool:
    """Wait so many seconds for a task, which goes on in any case; whether it has ended. A turn of the event loop counts
    for no more than a slice."""
    while wait_s > 0 and not task.done():
        await asyncio.wait({task}, timeout=min(wait_s, SLICE_S))
        wait_s -= SLICE_S
    return task.done()

"""A clock for tests in which hours pass at once."""

import asyncio
import heapq
from itertools import count
from typing import Any


class FakeTime:
    """A clock that is set by hand, and the tasks that wait for it."""

    def __init__(self, time: float) -> None:
        self.time = time
        self._waiting: list[tuple[float, int, asyncio.Future[None], asyncio.Task[Any]]] = []
        self._order = count()

    def now(self) -> float:
        return self.time

    async def wait(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.current_task()
        assert task is not None
        heapq.heappush(self._waiting, (self.time + seconds, next(self._order), future, task))
        await future

    async def advance(self, seconds: float, held: asyncio.Event | None = None) -> None:
        """Let time pass. The task whose time comes next runs first, until it waits again, is done, or is ``held``
        elsewhere."""
        until = self.time + seconds
        await settle()
        while self._waiting and self._waiting[0][0] <= until:
            at, _, future, task = heapq.heappop(self._waiting)
            if future.done():
                continue
            self.time = at
            future.set_result(None)
            while not (task.done() or self._has(task) or (held is not None and held.is_set())):
                await asyncio.sleep(0)
        self.time = until

    def _has(self, task: "asyncio.Task[Any]") -> bool:
        return any(one is task for _, _, future, one in self._waiting if not future.done())


async def settle() -> None:
    """Let every ready task begin."""
    for _ in range(20):
        await asyncio.sleep(0)

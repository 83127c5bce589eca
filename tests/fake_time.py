"""Clocks for tests in which hours pass at once."""

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")


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


class _Jumping(selectors.SelectSelector):
    """Waits for no timer: where nothing else is ready, the time jumps to it."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout:
            self.passed_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time begins at zero, and passes at once where all tasks wait for it. What is for a thread is
    done at once as well. It is for tasks that wait for no socket: to these, time would pass too fast."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """The seconds that have passed."""
        return self._jumping.passed_s

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Do the work here and now."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run this in an event loop in which no timer takes time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(test())

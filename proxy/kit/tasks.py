"""Work that must not hold up or fail a request: large pieces of pure work in threads, background tasks that are not
lost, and blocks whose failure is contained.

Reading and writing a request of many megabytes takes a second. ``Aside`` has a thread do that in many C calls, each of
which takes some hundredths of a second at most. Python runs one thread at a time, so the event loop gets its turn
between any two of these calls. The work may use only values that nothing changes, and values that belong to its own
request. Only the event loop uses the planner's state, so that a layout never depends on which thread was faster. There
is one thread for large work and one for very large work, and work waits for earlier work of the same class. So no more
than two threads compete with the event loop.

The event loop keeps only weak references to tasks. A task without another reference may be collected while it runs
(https://docs.python.org/3/library/asyncio-task.html#asyncio.create_task). So the caller that spawns a task names the
set that holds it. When the caller closes, it can wait for that set.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from proxy.kit.value import dataclass

LARGE_BYTES = 512 << 10
"""Reading so many bytes takes about a millisecond. For smaller work a thread costs more time than it saves."""
_VAST_BYTES = 4 << 20
OBJECT_BYTES = 4_000
"""A message or a file takes about 50 us, however short it is. So many bytes of a long one take as long."""

T = TypeVar("T")
P = ParamSpec("P")


def work_in(body: bytes) -> int:
    """How much work a body takes, as a number of bytes of a long text. A body may consist of many short messages or
    files."""
    size = len(body)
    return size if size >= LARGE_BYTES else size + OBJECT_BYTES * body.count(b"{")


class Aside:
    """Two threads, each started when there is work for it."""

    def __init__(self) -> None:
        self._large = ThreadPoolExecutor(1, "stratiform-large")
        self._vast = ThreadPoolExecutor(1, "stratiform-vast")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of the work. ``size`` is the number of bytes that the work is about."""
        return await asyncio.get_running_loop().run_in_executor(self._large if size < _VAST_BYTES else self._vast, work)

    async def run_large(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of the work with these arguments. Small work is done at once, large work as in ``run``."""
        if size < LARGE_BYTES:
            return work(*args, **kwargs)
        return await self.run(size, partial(work, *args, **kwargs))

    def close(self) -> None:
        """End each thread when its current work is done."""
        for pool in (self._large, self._vast):
            pool.shutdown(wait=False, cancel_futures=True)


_log = logging.getLogger("stratiform")

Tasks = set[asyncio.Task[Any]]
REST_S: Final = 0.001
"""How many seconds long work on the event loop pauses between two of its parts. Each part is shorter than that."""
_TURNS = 25  # connecting and asking take about a dozen turns of the loop


def spawn(work: Coroutine[Any, Any, Any], held_in: Tasks) -> asyncio.Task[Any]:
    """Run ``work`` beside the caller; ``held_in`` holds the task until it ends. A failure is logged."""
    task = asyncio.get_running_loop().create_task(work)
    held_in.add(task)
    task.add_done_callback(partial(_ended, held_in))
    return task


async def drain(tasks: Tasks) -> None:
    """Wait until every task of the set has ended."""
    while tasks:
        await asyncio.wait(set(tasks))


async def cancel(tasks: Tasks) -> None:
    """End every task of the set."""
    for task in tasks:
        task.cancel()
    await drain(tasks)


async def end_within(tasks: Tasks, wait_s: float) -> None:
    """Give the tasks of the set so many seconds to end by themselves, and then end those that are left."""
    if tasks:
        await asyncio.wait(set(tasks), timeout=wait_s)
    await cancel(tasks)


@asynccontextmanager
async def within(limit_s: float) -> AsyncIterator[None]:
    """Raise TimeoutError if the block takes longer than the limit. The time in which the event loop is busy does not
    count as waiting: each part of the limit begins only when the loop has handled the end of the part before. So an
    answer that is still unread in the socket is read first."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as wait:

        def turn(left: int) -> None:
            nonlocal timer
            if left:
                timer = loop.call_later(limit_s / _TURNS, turn, left - 1)
            else:
                wait.reschedule(loop.time())

        turn(_TURNS)
        try:
            yield
        finally:
            timer.cancel()


async def pause(seconds: float, until: asyncio.Event) -> bool:
    """Wait for so many seconds, or until the event is set. Returns whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()
    return until.is_set()


async def repeat(every_s: float, work: Callable[[], Awaitable[None]]) -> None:
    """Repeat the work, with a pause before each time, until the task ends. A failure is logged and ends nothing."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except Exception:  # noqa: BLE001 - a surprise in one round is no reason never to look again
            _log.exception("a background task failed, and goes on")


async def in_turns(work: Iterable[T], at_once: int = 10) -> list[T]:
    """All results of the work. After every ``at_once`` results the event loop does other things, and these get most of
    the time."""
    found: list[T] = []
    for one in work:
        found.append(one)
        if len(found) % at_once == 0:
            await asyncio.sleep(REST_S)
    return found


def _ended(held_in: Tasks, task: asyncio.Task[Any]) -> None:
    held_in.discard(task)
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("a background task failed", exc_info=error)


@dataclass(slots=True)
class suppress_and_log(AbstractContextManager["suppress_and_log", bool]):
    """A block whose failure is logged and goes no further (fidelity rule 7: caching never fails a request). ``step`` is
    the block's name in the log.

    The log names only the error's type and place, because a message could quote the prompt.
    """

    step: str
    has_failed: bool = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.has_failed = True
        _log.error("contained a failure in %s: %s", self.step, place_of(error))
        return True


def place_of(error: Exception) -> str:
    """The type of an error and where it was raised, without its message."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
    return f"{type(error).__name__} at {where}"

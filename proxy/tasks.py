"""Background tasks that are not lost.

The event loop keeps only weak references to tasks. A task without another reference may be collected while it runs
(https://docs.python.org/3/library/asyncio-task.html#asyncio.create_task). So the caller that spawns a task names the
set that holds it. When the caller closes, it can wait for that set.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

_log = logging.getLogger("stratiform")

Tasks = set[asyncio.Task[Any]]
REST_S: Final = 0.001
"""How many seconds long work on the event loop pauses between two of its parts. Each part is shorter than that."""
_TURNS = 25  # connecting and asking take about a dozen turns of the loop
T = TypeVar("T")


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

"""Runs large pieces of pure work in threads, beside the event loop.

Reading and writing a request of many megabytes takes a second. A thread does that in many C calls, each of which takes
some hundredths of a second at most. Python runs one thread at a time, so the event loop gets its turn between any two
of these calls. The work may use only values that nothing changes, and values that belong to its own request. Only the
event loop uses the planner's state, so that a layout never depends on which thread was faster.

There is one thread for large work and one for very large work, and work waits for earlier work of the same class. So no
more than two threads compete with the event loop.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

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
        pool = self._large if size < _VAST_BYTES else self._vast
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def run_large(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of the work with these arguments. Small work is done at once, large work as in ``run``."""
        if size < LARGE_BYTES:
            return work(*args, **kwargs)
        return await self.run(size, partial(work, *args, **kwargs))

    def close(self) -> None:
        """End each thread when its current work is done."""
        for pool in (self._large, self._vast):
            pool.shutdown(wait=False, cancel_futures=True)

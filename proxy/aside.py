"""Large pieces of pure work, done beside the event loop.

A request of many megabytes takes a second to read and to write. That is done in a thread, in many calls of C that each
take some hundredths of a second at most: between any two of them the event loop gets its turn (Python lets one thread
run at a time). What work here may touch are values that nobody changes, and what belongs to its request alone; the
planner's state stays with the event loop, so that a layout never depends on who was faster.

Work waits its turn behind other work of its own class of size, so that threads never compete with the event loop in
larger numbers: one does the large, one the very large.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

LARGE_BYTES = 512 << 10
"""About a millisecond of reading: below that a thread costs more than it spares."""
_VAST_BYTES = 4 << 20
OBJECT_BYTES = 4_000
"""A message or a file takes about 50 us however short it is, which is what so many bytes of a long one take."""

T = TypeVar("T")
P = ParamSpec("P")


def work_in(body: bytes) -> int:
    """How much there is to do about a body, in bytes of a long text: it may consist of many short messages or files."""
    size = len(body)
    return size if size >= LARGE_BYTES else size + OBJECT_BYTES * body.count(b"{")


class Aside:
    """Two threads, begun when there is work for them."""

    def __init__(self) -> None:
        self._large = ThreadPoolExecutor(1, "stratiform-large")
        self._vast = ThreadPoolExecutor(1, "stratiform-vast")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The work's result. ``size`` is how many bytes it is about."""
        pool = self._large if size < _VAST_BYTES else self._vast
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def run_large(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of work with these arguments: small work is done at once, large work as ``run`` does it."""
        if size < LARGE_BYTES:
            return work(*args, **kwargs)
        return await self.run(size, partial(work, *args, **kwargs))

    def close(self) -> None:
        """End the threads, once their work is done."""
        for pool in (self._large, self._vast):
            pool.shutdown(wait=False, cancel_futures=True)

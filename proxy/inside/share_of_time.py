"""Bounds the share of the process's time that planning may take, so that planning never delays LiteLLM's own work."""

from collections.abc import Callable, Coroutine, Generator
from time import perf_counter, thread_time
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_BURST_S = 2.0
"""The most time that may be used in advance. Laying out a request of a megabyte takes a few hundredths of a second."""


class ShareOfTime:
    """Planning may take ``share`` of the time that passes, and time of its share that it has left unused, up to some
    seconds."""

    def __init__(self, share: float, now_s: float | None = None) -> None:
        self._share = share
        self._left_s = _BURST_S
        self._seen_s = perf_counter() if now_s is None else now_s

    def has_any(self, now_s: float | None = None) -> bool:
        """Whether some time of the share is left. ``now_s`` is a reading of the monotonic clock."""
        now_s = perf_counter() if now_s is None else now_s
        self._left_s = min(_BURST_S, self._left_s + self._share * (now_s - self._seen_s))
        self._seen_s = now_s
        return self._left_s > 0

    def take(self, seconds: float) -> None:
        """Subtract used seconds of the event loop's processor time."""
        self._left_s -= seconds


@coroutine
def timed(
    work: Coroutine[Any, Any, T], share: ShareOfTime, clock: Callable[[], float] = thread_time
) -> Generator[Any, Any, T]:
    """Await a coroutine, and take the processor time of its own steps from a share. The work of others while it waits
    is not counted. ``clock`` reads the processor time of this thread, in seconds."""
    step, value = work.send, None
    while True:
        began = clock()
        try:
            waits_for = step(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            share.take(clock() - began)
        try:
            step, value = work.send, (yield waits_for)
        except BaseException as error:  # noqa: BLE001 - the coroutine itself handles a cancellation
            step, value = work.throw, error

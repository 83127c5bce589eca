"""Measures how the processor time of a routine grows with its input: a ratio, never a number of seconds.

Seconds say more about the machine and its other processes than about the routine.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sized
from typing import TypeVar

Input = TypeVar("Input", bound=Sized)
Clock = Callable[[], float]

# Four times the input takes about four times as long; a quadratic routine takes sixteen times as long.
MOST_RATIO = 9.0
_FLOOR_S = 0.004
"""The small input counts with at least this time: below it, the clock is too coarse."""
_LOOKS = 5


def steps_of(run: Callable[[], object]) -> int:
    """How many functions are called: a measure of work that does not depend on the machine."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def cpu_s(work: Callable[[], object], times: int = 3, clock: Clock = time.thread_time) -> float:
    """The least processor time that the work takes by this clock, by default in this thread, without the garbage
    collector. Servers of other tests run in threads of this process, and the time of a collection depends on the
    objects that all tests have left."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return min(_once_s(work, clock) for _ in range(times))
    finally:
        if is_collecting:
            gc.enable()


def _once_s(work: Callable[[], object], clock: Clock) -> float:
    began = clock()
    work()
    return clock() - began


def assert_linear(
    work: Callable[[Input], object], make: Callable[[int], Input], size: int, clock: Clock = time.thread_time
) -> None:
    """Assert that the work on four times ``size`` takes at most about four times the processor time for ``size``. Only
    the clock ``time.process_time`` counts the work of other threads of this process. A result above the limit is
    measured again, because other processes disturb the measurement. A routine that is not linear exceeds the limit each
    time."""
    small, large = make(size), make(4 * size)
    assert len(large) > 2 * len(small), "the input does not grow"
    before = after = 0.0
    for before, after in _looks(lambda: work(small), lambda: work(large), clock):
        if after < MOST_RATIO * max(before, _FLOOR_S):
            return
    raise AssertionError(f"{before * 1e3:.1f} ms for {size}, {after * 1e3:.1f} ms for four times as much")


def _looks(small: Callable[[], object], large: Callable[[], object], clock: Clock) -> Iterator[tuple[float, float]]:
    """The times of both inputs, one measurement after another. The first one measures the large input once: a
    disturbance makes its time longer, and never hides a long time. Later ones measure both inputs in turns, so that a
    disturbance affects the small one as well."""
    yield cpu_s(small, 3, clock), cpu_s(large, 1, clock)
    for _ in range(_LOOKS - 1):
        turns = [(cpu_s(small, 1, clock), cpu_s(large, 1, clock)) for _ in range(3)]
        yield min(one for one, _ in turns), min(four for _, four in turns)

"""How the processor time of a routine grows with its input: a ratio, never a number of seconds.

Seconds say more about the machine, and what else runs on it, than about the routine.
"""

import time
from collections.abc import Callable, Sized
from typing import TypeVar

Input = TypeVar("Input", bound=Sized)

# Four times the input takes about four times as long; a quadratic routine takes sixteen times as long.
MOST_RATIO = 9.0
_FLOOR_S = 0.004
"""A quarter counts as if it took so long at least: below that, the clock is too coarse."""
_LOOKS = 3


def cpu_s(work: Callable[[], object], times: int = 3) -> float:
    """The least processor time that the work takes in this process."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def assert_linear(work: Callable[[Input], object], make: Callable[[int], Input], size: int) -> None:
    """The work on four times ``size`` takes no more than about four times its processor time for ``size``. What looks
    dearer is measured again, for another process may have disturbed it.

    The first look measures the large input once: a disturbance makes it dearer, and never hides what is dear.
    """
    small, large = make(size), make(4 * size)
    assert len(large) > 2 * len(small), "the input does not grow"
    before = after = 0.0
    for look in range(_LOOKS):
        before, after = cpu_s(lambda: work(small)), cpu_s(lambda: work(large), 3 if look else 1)
        if after < MOST_RATIO * max(before, _FLOOR_S):
            return
    raise AssertionError(f"{before * 1e3:.1f} ms for {size}, {after * 1e3:.1f} ms for four times as much")

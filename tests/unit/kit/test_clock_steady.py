"""The time that budgets go by: steps are held back, corrections are followed, and the store has the last word."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.clock import SETTLED_S, STEP_S, Departure, Readings, SteadyClock

WALL = 1_700_000_000.0
HOUR, DAY = 3600.0, 86400.0


class Machine:
    """A wall clock and a monotonic clock, and what is made of them."""

    def __init__(self) -> None:
        self.wall, self.monotonic = WALL, 5000.0
        self.restart()

    def restart(self) -> None:
        self.steady = SteadyClock(Readings(lambda: self.wall, lambda: self.monotonic))

    def passes(self, seconds: float) -> float:
        """Time passes, on both clocks; the time at its end. A reading is taken every ten seconds."""
        end = self.monotonic + seconds
        while self.monotonic < end:
            step = min(10.0, end - self.monotonic)
            self.wall += step
            self.monotonic += step
            self.at()
        return self.at()

    def at(self) -> float:
        return self.steady.now()


def test_steady_time_is_the_wall_clock_as_long_as_nobody_steps_it() -> None:
    one = Machine()
    one.passes(DAY)
    assert one.at() == one.wall


def test_a_step_is_held_back_until_it_has_stood_for_ten_minutes() -> None:
    for step in (HOUR, -HOUR, DAY, -DAY, STEP_S + 1, -STEP_S - 1):
        one = Machine()
        one.passes(1000)
        before = one.at()
        one.wall += step
        assert one.at() == before
        assert one.passes(SETTLED_S - 10) == before + SETTLED_S - 10
        assert one.steady.departure == Departure(held_back_s=step)
        one.passes(10)
        assert one.at() == one.wall
        assert one.steady.departure == Departure()


def test_back_an_hour_forward_a_day_and_back_again_moves_nothing() -> None:
    one = Machine()
    began = one.at()
    for step in (-HOUR, DAY + HOUR, -DAY):
        one.wall += step
        one.passes(500)
    assert one.at() == began + 1500 == one.wall
    assert one.steady.departure == Departure()


def test_a_correction_of_less_than_a_minute_is_followed_at_once() -> None:
    one = Machine()
    one.passes(100)
    one.wall -= 30
    assert one.at() == one.wall


def test_small_steps_do_not_add_up_to_a_large_one() -> None:
    one = Machine()
    began = one.at()
    for _ in range(20):
        one.wall += 50
        one.passes(1)
    assert one.at() <= began + 20 + STEP_S


def test_a_host_whose_clock_is_an_hour_off_goes_by_the_store_at_once() -> None:
    one = Machine()
    one.steady.told_by_store(one.wall - HOUR, one.monotonic)
    assert one.at() == one.wall - HOUR
    assert one.steady.departure == Departure(ahead_of_store_s=HOUR)
    one.passes(SETTLED_S * 2)
    assert one.at() == one.wall - HOUR


def test_a_host_that_agrees_with_the_store_goes_by_its_own_clock() -> None:
    one = Machine()
    one.steady.told_by_store(one.wall - STEP_S + 1, one.monotonic)
    assert one.at() == one.wall


def test_a_step_of_the_host_does_not_count_while_the_store_keeps_its_time() -> None:
    one = Machine()
    one.steady.told_by_store(one.wall, one.monotonic)
    began = one.at()
    one.wall += DAY
    assert one.passes(3 * SETTLED_S) == began + 3 * SETTLED_S
    assert one.steady.departure == Departure(ahead_of_store_s=DAY)


def test_a_step_of_the_stores_clock_is_held_back_as_any() -> None:
    one = Machine()
    one.steady.told_by_store(one.wall, one.monotonic)
    before = one.at()
    one.steady.told_by_store(one.wall + DAY, one.monotonic)
    assert one.at() == before
    one.steady.told_by_store(one.wall, one.monotonic)
    assert one.passes(2 * SETTLED_S) == one.wall == before + 2 * SETTLED_S


moves = st.lists(
    st.tuples(st.floats(0, 900), st.one_of(st.just(0.0), st.floats(-STEP_S, STEP_S), st.floats(-2 * DAY, 2 * DAY))),
    max_size=40,
)


@given(moves)
def test_what_is_given_goes_on_with_the_monotonic_clock_or_is_the_wall_clocks(steps: list[tuple[float, float]]) -> None:
    one = Machine()
    changed_at = one.monotonic
    for passed, step in steps:
        one.wall += passed
        one.monotonic += passed
        before = one.at()
        is_departed = one.steady.departure != Departure()
        # Either the wall clock is followed, or its departure is known and it has not stood long enough.
        assert is_departed or abs(before - one.wall) < 1e-3
        assert not is_departed or one.monotonic - changed_at < SETTLED_S + 900
        if abs(step) > 0:
            changed_at = one.monotonic
        one.wall += step
        after = one.at()
        # At the moment of a step nothing moves by more than is called a correction, twice where a base is renewed.
        assert abs(after - before) <= 2 * STEP_S


@given(moves)
def test_no_ten_minutes_hold_more_than_themselves_and_two_corrections_unless_a_time_has_stood(
    steps: list[tuple[float, float]],
) -> None:
    """Steps that each last shorter than ten minutes never move a window."""
    one = Machine()
    began, from_s = one.at(), one.monotonic
    for passed, step in steps:
        passed = min(passed, 90.0)
        one.wall += passed
        one.monotonic += passed
        one.at()
        one.wall += step if abs(step) > 3 * STEP_S else 0.0
        one.at()
        if abs(step) > 3 * STEP_S:
            one.wall -= step
            one.at()
    assert abs(one.at() - began - (one.monotonic - from_s)) < 1e-3


@given(moves, st.floats(-2 * DAY, 2 * DAY))
def test_hosts_of_one_store_agree(steps: list[tuple[float, float]], off: float) -> None:
    """Whatever each host's clock shows, they differ by no more than two corrections."""
    one, other = Machine(), Machine()
    true = WALL
    other.wall += off
    other.restart()
    for host in (one, other):
        host.steady.told_by_store(true, host.monotonic)
    for passed, step in steps:
        true += passed
        for host in (one, other):
            host.wall += passed
            host.monotonic += passed
        other.wall += step
        for host in (one, other):
            host.steady.told_by_store(true, host.monotonic)
        assert abs(one.at() - other.at()) <= 2 * STEP_S + 1e-3

"""Time by which a loop is judged, and not what it waits for."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.timing.attention import Attention


def test_a_loop_that_turns_in_time_attends_as_long_as_time_passes() -> None:
    attention = Attention(0.25)
    assert [attention.look(at) for at in (10.0, 10.25, 10.5, 10.625)] == [0.0, 0.25, 0.5, 0.625]


def test_a_loop_that_is_late_attends_no_longer_than_a_tick() -> None:
    attention = Attention(0.25)
    assert [attention.look(at) for at in (10.0, 60.0, 60.25, 3600.0)] == [0.0, 0.25, 0.5, 0.75]


def test_what_passes_while_nothing_is_waited_for_does_not_count() -> None:
    attention = Attention(0.25)
    attention.look(10.0)
    attention.rest()
    assert attention.look(10.2) == 0.0


@given(st.lists(st.floats(0, 1e6), max_size=60), st.floats(1e-3, 10.0))
def test_a_limit_is_never_passed_early_nor_within_fewer_turns(steps: list[float], tick_s: float) -> None:
    attention, at = Attention(tick_s), 0.0
    attention.look(at)
    for turn, step in enumerate(steps, start=1):
        at += step
        attended_s = attention.look(at)
        assert attended_s <= at * (1 + 1e-9)
        assert attended_s <= turn * tick_s * (1 + 1e-9)

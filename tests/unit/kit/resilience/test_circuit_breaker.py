"""The breaker's states."""

import pytest

from proxy.kit.resilience import ORDINARY, Breaker, BreakerPolicy, BreakerState

POLICY = BreakerPolicy(allowed_fails=2, cooldown_s=5.0, window_s=60.0)


def fail(breaker: Breaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        call = breaker.began(now)
        assert call is not None
        breaker.ended(now, call, is_failure=True)


def succeed(breaker: Breaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        call = breaker.began(now)
        assert call is not None
        breaker.ended(now, call, is_failure=False)


def test_a_breaker_opens_after_more_failures_than_are_allowed() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 1.0, 2)
    assert breaker.admits(1.0)
    fail(breaker, 2.0)
    assert breaker.state(2.0) is BreakerState.OPEN
    assert not breaker.admits(6.9)
    assert breaker.waits_s(4.0) == 3.0


def test_failures_that_are_few_among_many_calls_open_no_breaker() -> None:
    breaker = Breaker(POLICY)
    succeed(breaker, 1.0, 10)
    fail(breaker, 2.0, 9)
    assert breaker.admits(2.0)
    fail(breaker, 3.0)
    assert not breaker.admits(3.0)


def test_old_failures_are_forgotten() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 1.0, 2)
    fail(breaker, 62.0, 2)
    assert breaker.admits(62.0)


def test_half_open_lets_one_call_through_and_a_success_closes_it() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 0.0, 3)
    assert breaker.state(5.0) is BreakerState.HALF_OPEN
    assert breaker.admits(5.0)
    probe = breaker.began(5.0)
    assert probe is not None
    assert not breaker.admits(5.1)
    assert breaker.began(5.1) is None
    breaker.ended(5.2, probe, is_failure=False)
    assert breaker.state(5.2) is BreakerState.CLOSED
    fail(breaker, 6.0, 2)
    assert breaker.admits(6.0)


def test_a_probe_that_fails_opens_the_breaker_again() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 0.0, 3)
    fail(breaker, 5.0)
    assert not breaker.admits(9.9)
    assert breaker.admits(10.0)


def test_a_probe_whose_client_left_gives_its_place_to_the_next() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 0.0, 3)
    probe = breaker.began(5.0)
    assert probe is not None
    breaker.abandoned(probe)
    assert breaker.began(5.0) not in (None, probe)


@pytest.mark.parametrize("is_failure", [True, False, None])
def test_the_probes_place_is_its_own(is_failure: bool | None) -> None:
    """Whatever becomes of calls that began earlier, or of a probe of an earlier time."""
    breaker = Breaker(POLICY)
    earlier = breaker.began(0.0)
    assert earlier == ORDINARY
    fail(breaker, 0.0, 3)
    first = breaker.began(5.0)
    assert first is not None
    breaker.ended(5.1, first, is_failure=True)
    assert breaker.began(10.0) is None, "open again"
    probe = breaker.began(10.2)
    assert probe is not None
    for old in (earlier, first):
        if is_failure is None:
            breaker.abandoned(old)
        else:
            breaker.ended(10.3, old, is_failure=is_failure)
    if is_failure is False:
        assert breaker.state(10.3) is BreakerState.CLOSED, "the upstream has answered"
        return
    assert breaker.began(10.4) is None
    breaker.ended(10.5, probe, is_failure=False)
    assert breaker.state(10.5) is BreakerState.CLOSED


def test_late_failures_of_earlier_calls_do_not_prolong_an_open_breaker() -> None:
    breaker = Breaker(POLICY)
    for _ in range(5):
        breaker.began(0.0)
    for _ in range(3):
        breaker.ended(1.0, ORDINARY, is_failure=True)
    breaker.ended(2.0, ORDINARY, is_failure=True)
    assert breaker.waits_s(2.0) == 4.0, "a late failure does not prolong it"
    breaker.ended(3.0, ORDINARY, is_failure=False)
    assert breaker.state(3.0) is BreakerState.CLOSED


def test_an_upstream_that_asks_for_time_gets_it_and_needs_no_probe() -> None:
    breaker = Breaker(BreakerPolicy(most_rest_s=10.0))
    breaker.rest(0.0, 3.0)
    assert not breaker.admits(2.9)
    succeed(breaker, 2.0)
    assert not breaker.admits(2.9)
    assert breaker.state(3.0) is BreakerState.CLOSED
    breaker.began(3.0)
    breaker.began(3.0)
    assert breaker.admits(3.0)
    breaker.rest(4.0, 1e9)
    breaker.rest(5.0, 1.0)
    assert (breaker.admits(13.9), breaker.admits(14.0)) == (False, True)

"""The breaker's states."""

from proxy.core.breaker import Breaker, BreakerPolicy, BreakerState

POLICY = BreakerPolicy(allowed_fails=2, cooldown_s=5.0, window_s=60.0)


def fail(breaker: Breaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.began(now)
        breaker.ended(now, is_failure=True)


def succeed(breaker: Breaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.began(now)
        breaker.ended(now, is_failure=False)


def test_it_opens_after_more_failures_than_are_allowed() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 1.0, 2)
    assert breaker.admits(1.0)
    fail(breaker, 2.0)
    assert breaker.state(2.0) is BreakerState.OPEN
    assert not breaker.admits(6.9)
    assert breaker.waits_s(4.0) == 3.0


def test_failures_that_are_few_among_many_calls_do_not_open_it() -> None:
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
    breaker.began(5.0)
    assert not breaker.admits(5.1)
    breaker.ended(5.2, is_failure=False)
    assert breaker.state(5.2) is BreakerState.CLOSED
    fail(breaker, 6.0, 2)
    assert breaker.admits(6.0)


def test_a_probe_that_fails_opens_it_again() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 0.0, 3)
    fail(breaker, 5.0)
    assert not breaker.admits(9.9)
    assert breaker.admits(10.0)


def test_a_probe_whose_client_left_gives_its_place_to_the_next() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 0.0, 3)
    breaker.began(5.0)
    breaker.abandoned()
    assert breaker.admits(5.0)


def test_calls_that_began_before_it_opened() -> None:
    breaker = Breaker(POLICY)
    for _ in range(5):
        breaker.began(0.0)
    for _ in range(3):
        breaker.ended(1.0, is_failure=True)
    breaker.ended(2.0, is_failure=True)
    assert breaker.waits_s(2.0) == 4.0, "a late failure does not prolong it"
    breaker.ended(3.0, is_failure=False)
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

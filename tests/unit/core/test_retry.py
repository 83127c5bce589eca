"""Whether, where and when to try again."""

import pytest

from proxy.core.retry import Failure, Option, RetryPolicy, Step, backoff_s, kind_of, next_step

POLICY = RetryPolicy(retries=2, first_wait_s=1.0, most_wait_s=8.0, patience_s=2.0)
BUSY = Failure("rate-limited")
GONE = Failure("unavailable")


def option(tries: int = 0, level: int = 0, admitted: bool = True) -> Option:
    return Option(level, tries, admitted)


def step(options: list[Option], failure: Failure, current: int = 0, elapsed_s: float = 0.0) -> Step | None:
    return next_step(POLICY, options, current, failure, elapsed_s, luck=0.0)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(200, None), (400, None), (401, None), (404, None), (408, "timeout"), (409, None), (429, "rate-limited"),
     (500, "server-error"), (501, None), (503, "server-error"), (529, "server-error")],
)  # fmt: skip
def test_what_a_status_says(status: int, kind: str | None) -> None:
    assert kind_of(status) == kind


def test_waits_grow_and_are_drawn() -> None:
    assert [backoff_s(POLICY, n, BUSY, 0.0) for n in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert backoff_s(POLICY, 1, BUSY, 0.99) == pytest.approx(0.995)
    assert backoff_s(POLICY, 99, BUSY, 0.5) == POLICY.most_wait_s


def test_the_upstream_waits_are_kept_with_some_jitter() -> None:
    assert backoff_s(POLICY, 1, Failure("rate-limited", 3.0), 0.0) == pytest.approx(3.05)
    assert backoff_s(RetryPolicy(least_wait_s=4.0), 1, Failure("rate-limited", 3.0), 0.0) == 4.0
    assert backoff_s(RetryPolicy(least_wait_s=4.0), 1, BUSY, 0.0) == 4.0


def test_a_lone_deployment_is_tried_again_after_a_wait_until_there_were_enough() -> None:
    assert step([option(1)], BUSY) == Step(0, 0.5)
    assert step([option(2)], GONE) == Step(0, 1.0)
    assert step([option(3)], BUSY) is None


def test_a_long_wait_is_the_clients_own() -> None:
    for kind in ("rate-limited", "server-error"):
        assert step([option(1)], Failure(kind, 2.0)) == Step(0, pytest.approx(2.05))
        assert step([option(1)], Failure(kind, 2.1)) is None
        assert step([option(1), option(0, level=1)], Failure(kind, 2.1)) == Step(1, 0.0)
        assert step([option(1), option()], Failure(kind, 2.1)) == Step(1, 0.0)
        assert step([option(1), option(1)], Failure(kind, 2.1)) == Step(1, 1.0)


def test_an_upstream_that_says_not_to_retry() -> None:
    assert step([option(1), option()], Failure("rate-limited", is_final=True)) is None


def test_a_deployment_whose_breaker_opened_is_not_tried_again() -> None:
    assert step([option(1, admitted=False)], BUSY) is None


def test_nothing_is_tried_again_late() -> None:
    assert step([option(1)], GONE, elapsed_s=59.6) is None
    assert step([option(1), option()], GONE, elapsed_s=61.0) is None


def test_a_short_wait_is_cheaper_than_a_cold_cache() -> None:
    assert step([option(1), option()], BUSY) == Step(0, 0.5)
    assert step([option(2), option()], BUSY) == Step(1, 0.0)
    assert step([option(1), option()], Failure("rate-limited", 2.5)) == Step(1, 0.0)


@pytest.mark.parametrize("failure", [GONE, Failure("timeout")])
def test_what_cannot_be_reached_is_left_at_once(failure: Failure) -> None:
    assert step([option(1), option()], failure) == Step(1, 0.0)
    assert step([option(1), option(admitted=False)], failure) == Step(0, 0.5)


def test_where_all_were_tried_the_least_tried_is_next() -> None:
    assert step([option(1), option(1)], GONE, current=1) == Step(0, 0.5)
    assert step([option(2), option(1)], GONE, current=1) is None


def test_fallbacks_come_when_the_group_is_used_up() -> None:
    assert step([option(3), option(0, level=1)], BUSY) == Step(1, 0.0)
    assert step([option(1, admitted=False), option(0, level=1, admitted=False), option(0, level=2)], GONE) == Step(2, 0)
    assert step([option(3), option(1, level=1)], BUSY, current=1) == Step(1, 0.5)
    assert step([option(), option(3, level=1)], BUSY, current=1) is None, "never back up"


def test_no_retries_still_leaves_fallbacks() -> None:
    none = RetryPolicy(retries=0)
    assert next_step(none, [option(1)], 0, GONE, 0.0, 0.0) is None
    assert next_step(none, [option(1), option(0, level=1)], 0, GONE, 0.0, 0.0) == Step(1, 0.0)

"""Whether, where and when to try again."""

from dataclasses import replace

import pytest

from proxy.kit.resilience import (
    Failure,
    Option,
    RetryPolicy,
    Stays,
    backoff_s,
    is_quota,
    kind_of,
    next_step,
)
from tests.examples import for_every

POLICY = RetryPolicy(retries=2, first_wait_s=1.0, most_wait_s=8.0, patience_s=2.0)
BUSY = Failure("rate-limited")
GONE = Failure("unavailable")


def option(tries: int = 0, level: int = 0, admitted: bool = True) -> Option:
    return Option(level, tries, admitted)


def step(options: list[Option], failure: Failure, current: int = 0, elapsed_s: float = 0.0) -> tuple[int, float] | None:
    return next_step(POLICY, options, current, failure, elapsed_s, luck=0.0)


@for_every(
    [
        (200, None), (400, None), (401, None), (404, None), (408, "timeout"), (409, None), (429, "rate-limited"),
        (500, "server-error"), (501, None), (503, "server-error"), (529, "server-error"),
    ]
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
    assert step([option(1)], BUSY) == (0, 0.5)
    assert step([option(2)], GONE) == (0, 1.0)
    assert step([option(3)], BUSY) is None


def test_a_long_wait_is_the_clients_own() -> None:
    for kind in ("rate-limited", "server-error"):
        assert step([option(1)], Failure(kind, 2.0)) == (0, pytest.approx(2.05))
        assert step([option(1)], Failure(kind, 2.1)) is None
        assert step([option(1), option(0, level=1)], Failure(kind, 2.1)) == (1, 0.0)
        assert step([option(1), option()], Failure(kind, 2.1)) == (1, 0.0)
        assert step([option(1), option(1)], Failure(kind, 2.1)) == (1, 1.0)


def test_an_upstream_that_says_not_to_retry() -> None:
    assert step([option(1), option()], Failure("rate-limited", is_final=True)) is None


def test_a_deployment_whose_breaker_opened_is_not_tried_again() -> None:
    assert step([option(1, admitted=False)], BUSY) is None


def test_nothing_is_tried_again_late() -> None:
    assert step([option(1)], GONE, elapsed_s=59.6) is None
    assert step([option(1), option()], GONE, elapsed_s=61.0) is None


def test_a_short_wait_is_cheaper_than_a_cold_cache() -> None:
    assert step([option(1), option()], BUSY) == (0, 0.5)
    assert step([option(2), option()], BUSY) == (1, 0.0)
    assert step([option(1), option()], Failure("rate-limited", 2.5)) == (1, 0.0)


@pytest.mark.parametrize("failure", [GONE, Failure("timeout")])
def test_what_cannot_be_reached_is_left_at_once(failure: Failure) -> None:
    assert step([option(1), option()], failure) == (1, 0.0)
    assert step([option(1), option(admitted=False)], failure) == (0, 0.5)


def test_where_all_were_tried_the_least_tried_is_next() -> None:
    assert step([option(1), option(1)], GONE, current=1) == (0, 0.5)
    assert step([option(2), option(1)], GONE, current=1) is None


def test_fallbacks_come_when_the_group_is_used_up() -> None:
    assert step([option(3), option(0, level=1)], BUSY) == (1, 0.0)
    assert step([option(1, admitted=False), option(0, level=1, admitted=False), option(0, level=2)], GONE) == (2, 0)
    assert step([option(3), option(1, level=1)], BUSY, current=1) == (1, 0.5)
    assert step([option(), option(3, level=1)], BUSY, current=1) is None, "never back up"


def test_no_retries_still_leaves_fallbacks() -> None:
    none = RetryPolicy(retries=0)
    assert next_step(none, [option(1)], 0, GONE, 0.0, 0.0) is None
    assert next_step(none, [option(1), option(0, level=1)], 0, GONE, 0.0, 0.0) == (1, 0.0)


QUOTA = Failure("quota")


@for_every(
    [
        ("always", 0, [option(1)], BUSY, (0, 0.5)),
        ("beside-others", 0, [option(1)], BUSY, None),
        ("beside-others", 0, [option(1)], GONE, None),
        ("never", 0, [option(1)], BUSY, None),
        ("beside-others", 0, [option(1), option()], BUSY, (0, 0.5)),
        ("beside-others", 1, [option(1), option()], BUSY, (0, 0.5)),
        ("beside-others", 2, [option(1), option()], BUSY, (1, 0.0)),
        ("beside-others", 100, [option(1), option()], GONE, (1, 0.0)),
        ("beside-others", 0, [option(1), option(1)], GONE, None),
        ("never", 0, [option(1), option()], BUSY, (1, 0.0)),
        ("never", 0, [option(1), option(1)], GONE, None),
        ("beside-others", 0, [option(1), option(level=1)], BUSY, (0, 0.5)),
        ("beside-others", 100, [option(1), option(level=1)], BUSY, (1, 0.0)),
        ("always", 0, [option(1)], QUOTA, None),
        ("always", 0, [option(1), option()], QUOTA, (1, 0.0)),
        ("always", 0, [option(1), option(1)], QUOTA, None),
        ("always", 0, [option(1), option(level=1)], QUOTA, (1, 0.0)),
    ]
)
def test_what_is_left_to_the_client_and_what_no_wait_helps(
    stays: Stays, spent: int, options: list[Option], failure: Failure, expected: tuple[int, float] | None
) -> None:
    policy = replace(POLICY, stays=stays, spent=spent)
    assert next_step(policy, options, 0, failure, 0.0, luck=0.0) == expected


def test_an_account_without_money_may_be_told_by_the_message_alone() -> None:
    said = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."
    assert is_quota(400, None, "invalid_request_error", message=said)
    assert not is_quota(400, None, "invalid_request_error", message=f"cannot read '{said}'")
    assert not is_quota(404, None, "invalid_request_error", message=said)


@for_every(
    [
        (429, ("insufficient_quota", None), True),
        (429, (None, "insufficient_quota"), True),
        (403, ("insufficient_user_quota", "x"), True),
        (402, (), True),
        (429, ("rate_limit_exceeded", "requests"), False),
        (429, (["insufficient_quota"], {}), False),
        (403, (), False),
        (400, ("insufficient_quota",), False),
        (500, ("insufficient_quota",), False),
    ]
)
def test_an_account_without_money(status: int, names: tuple[object, ...], expected: bool) -> None:
    assert is_quota(status, *names) is expected


@for_every(
    [
        (None, None, "always", 0),
        (None, "python-requests/2.32", "always", 0),
        ("0", "OpenAI/Python 3.1", "beside-others", 0),
        ("2", "OpenAI/JS 6.0", "beside-others", 2),
        ("9" * 5000, None, "beside-others", 100),
        ("-1", None, "always", 0),
        ("two", None, "always", 0),
        ("\u0662", None, "always", 0),
        ("", None, "always", 0),
        (None, "ai/6.0.3 ai-sdk/provider-utils/4.0.1 runtime/node.js/20", "never", 0),
        (None, "ai-sdk/openai-compatible/2.0.1", "never", 0),
        (None, "codex_cli_rs/0.50.0 (Mac OS)", "never", 0),
        (None, "mail/1.0", "always", 0),
    ]
)
def test_which_clients_repeat_their_calls(count: str | None, agent: str | None, stays: str, spent: int) -> None:
    found = POLICY.of("", count, agent)
    assert (found.stays, found.spent, found.retries) == (stays, spent, POLICY.retries)

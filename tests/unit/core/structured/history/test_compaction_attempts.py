"""A conversation is not looked at again and again."""

from dataclasses import replace

import pytest

from proxy.core.structured.history.compaction import MOST_FAILURES, CompactionAttempts

NEW = CompactionAttempts()


def test_a_new_conversation_may_be_looked_at() -> None:
    assert NEW.allow(0)


@pytest.mark.parametrize(
    "earlier",
    [
        replace(NEW, declined_tokens=30_000),
        NEW.failed(30_000),
        replace(NEW, tried_tokens=30_000),
    ],
    ids=["declined", "failed", "put off, or succeeded"],
)
@pytest.mark.parametrize(("tokens", "expected"), [(30_000, False), (32_999, False), (33_000, True), (29_000, False)])
def test_after_a_no_and_after_a_call_it_has_to_grow_by_a_tenth(
    earlier: CompactionAttempts, tokens: int, *, expected: bool
) -> None:
    assert earlier.allow(tokens) is expected


def test_a_full_window_makes_no_account_of_the_price_but_of_failures() -> None:
    assert replace(NEW, declined_tokens=30_000).allow(30_000, is_full=True)
    assert not NEW.failed(30_000).allow(30_000, is_full=True)


def test_three_failures_in_a_row_end_it() -> None:
    found = NEW
    for number in range(MOST_FAILURES):
        assert found.allow(10**6 * (number + 1))
        found = found.failed(10)
    assert not found.allow(10**12)
    assert not found.allow(10**12, is_full=True)


def test_a_no_does_not_count_as_a_failure() -> None:
    found = NEW
    for _ in range(10):
        found = replace(found, declined_tokens=10)
    assert found.allow(11)

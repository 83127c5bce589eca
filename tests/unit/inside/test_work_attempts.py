"""Attempts under way are bounded in number, bytes and time, and none ends twice."""

from proxy.core.modes import Mode
from proxy.inside.work import LONGEST_S, Attempt, OpenAttempts
from proxy.ports import Plan
from tests.exchanges import make_exchange


def attempt(call_id: str, now: float = 0.0, size: int = 10, model_id: str = "") -> Attempt:
    body = b"x" * size
    return Attempt(call_id, model_id, make_exchange(now=now), Plan(body, body, Mode.TIER, "kept"))


def test_what_is_never_told_is_dropped_by_time() -> None:
    attempts = OpenAttempts()
    attempts.begin(attempt("old", 0.0), 0.0)
    attempts.begin(attempt("young", LONGEST_S), LONGEST_S)
    assert attempts.of("old") is not None
    attempts.begin(attempt("new", LONGEST_S + 1), LONGEST_S + 1)
    assert attempts.of("old") is None
    assert attempts.of("young") is not None


def test_number_and_bytes_are_bounded_and_the_newest_stays() -> None:
    attempts = OpenAttempts()
    for number in range(10_050):
        attempts.begin(attempt(str(number)), 0.0)
    assert [attempts.of(str(number)) is not None for number in (0, 49, 50, 10_049)] == [False, False, True, True]
    attempts.begin(attempt("large", size=200 << 20), 0.0)
    assert attempts.of("10049") is None
    assert attempts.of("large") is not None


def test_an_attempt_ends_once_and_leaves_nothing() -> None:
    attempts, one, other = OpenAttempts(), attempt("call", model_id="a"), attempt("call", model_id="b")
    attempts.begin(one, 0.0)
    attempts.begin(other, 0.0)
    assert attempts.of("call", model_id="a") is one
    assert attempts.of("call") is other
    assert attempts.end(one)
    assert not attempts.end(one)
    assert attempts.of("call", model_id="a") is other
    assert attempts.end(other)
    assert other not in attempts
    assert (attempts.of("call"), attempts.of("other")) == (None, None)


def test_of_many_calls_under_one_id_the_last_ones_stay() -> None:
    attempts, begun = OpenAttempts(), [attempt("chosen") for _ in range(300)]
    for one in begun:
        attempts.begin(one, 0.0)
    assert sum(one in attempts for one in begun) < 150
    assert all(one in attempts for one in begun[-50:])

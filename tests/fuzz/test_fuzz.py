"""A short run of what ``make fuzz`` does at length."""

import pytest

from tests.fuzz.cases import case
from tests.fuzz.run import MOST_GROWTH, run


def test_a_case_is_the_same_each_time() -> None:
    assert [case(3, n) for n in range(50)] == [case(3, n) for n in range(50)]
    assert case(3, 1) != case(4, 1)


def test_a_few_hundred_cases() -> None:
    report = run(400, seed=1)
    assert report.failures == []
    assert report.count == 400
    assert report.statuses[200] > 20


@pytest.mark.slow
def test_some_thousand_cases_and_the_memory_they_take() -> None:
    report = run(12_000, seed=2)
    assert report.failures == []
    # Too short for all tables to be full after a fifth of it; a leak would still show.
    assert report.growth < 4 * MOST_GROWTH

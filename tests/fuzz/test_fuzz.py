"""A short run of what ``make fuzz`` does at length."""

import pytest

from tests.examples import chosen
from tests.fuzz.run import MOST_GROWTH, run


@pytest.mark.parametrize("count", chosen([60, 150, 400], 60))
def test_a_few_hundred_cases(count: int) -> None:
    report = run(count, seed=1)
    assert report.failures == []
    assert report.count == count
    assert report.statuses[200] > count // 20


def test_a_list_is_answered_where_the_upstream_sends_a_status_that_is_none() -> None:
    report = run(1, seed=772, only=78_330)
    assert report.failures == []
    assert report.statuses == {502: 1}


@pytest.mark.slow
def test_some_thousand_cases_and_the_memory_they_take() -> None:
    report = run(5_000, seed=2)
    assert report.failures == []
    # Too short for all tables to be full after a fifth of it; a leak would still show.
    assert report.growth < 4 * MOST_GROWTH

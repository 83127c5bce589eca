"""A short run of what ``make fuzz`` does at length."""

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from tests.examples import chosen
from tests.fuzz.growth import superlinear
from tests.fuzz.run import MOST_GROWTH, run


@pytest.mark.slow
def test_an_app_whose_work_grows_too_fast_is_found() -> None:
    async def cubic(scope: Scope, receive: Receive, send: Send) -> None:
        # Sixty-four times the work for four times the bytes: far enough from four for a busy machine.
        sum(range(len((await receive())["body"]) ** 3 // 50_000_000))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def linear(scope: Scope, receive: Receive, send: Send) -> None:
        sum((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    assert "for four times the bytes" in asyncio.run(superlinear(cubic, 1, 3))
    assert asyncio.run(superlinear(linear, 1, 3)) == ""


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

"""Open pages hold up no request."""

import statistics

import pytest

from tests.bench.open_pages import paired

pytestmark = pytest.mark.slow

_MOST_S = 0.003


def test_ten_open_pages_cost_requests_less_than_three_milliseconds() -> None:
    found = paired(5, 120)
    assert statistics.median(after - before for before, after in found) < _MOST_S

"""Open pages hold up no request."""

import statistics

import pytest

from tests.bench.open_pages import paired

pytestmark = pytest.mark.slow

# On a machine that does nothing else it is 1.5 ms (``python -m tests.bench.open_pages``); beside other tests it varies.
# A page that is drawn in one go holds the loop for as long as this.
_MOST_S = 0.010


def test_ten_open_pages_hold_up_no_request() -> None:
    found = paired(5, 120)
    assert statistics.median(after - before for before, after in found) < _MOST_S

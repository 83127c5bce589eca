"""Ten thousand series are scraped in pieces, none of which holds up a request for long."""

import pytest

from tests.bench.scrapes import SERIES, filled, pieces_s

pytestmark = pytest.mark.slow

_MOST_PIECE_S = 0.005


def test_no_piece_of_a_scrape_takes_long() -> None:
    metrics = filled()
    assert sum(not line.startswith(b"#") for line in metrics.render().splitlines()) >= SERIES
    assert min(pieces_s(metrics)[1] for _ in range(5)) < _MOST_PIECE_S

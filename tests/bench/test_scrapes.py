"""Ten thousand series are scraped in pieces, none of which holds up a request for long."""

import itertools
import time

import pytest

from proxy.engine.telemetry.metrics import Metrics

pytestmark = pytest.mark.slow

_SERIES = 10_000
_MOST_PIECE_S = 0.005


def filled() -> Metrics:
    """Metrics with so many series at least, as many models, teams and clients make them."""
    teams = [f"team-{number}" for number in range(_SERIES // 40)]
    metrics = Metrics(teams=teams)
    for model, team in itertools.product(range(20), teams):
        metrics.saved(f"model-{model}", team, "reported", 1.0)
        metrics.saved(f"model-{model}", team, "shadow", -1.0)
        for client in ("aider", "cline", "opencode", ""):
            metrics.cost(f"model-{model}", team, client, by=1.5)
            metrics.input_cost(f"model-{model}", team)
            metrics.uncached_cost(f"model-{model}", team, by=2.0)
    return metrics


def largest_piece_s(metrics: Metrics) -> float:
    """The processor's time that the largest piece of a scrape takes."""
    largest_s, text = 0.0, metrics.pieces()
    while True:
        began = time.thread_time()
        if next(text, None) is None:
            return largest_s
        largest_s = max(largest_s, time.thread_time() - began)


def test_no_piece_of_a_scrape_takes_long() -> None:
    metrics = filled()
    assert sum(not line.startswith(b"#") for line in b"".join(metrics.pieces()).splitlines()) >= _SERIES
    assert min(largest_piece_s(metrics) for _ in range(5)) < _MOST_PIECE_S

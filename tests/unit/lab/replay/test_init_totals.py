"""Bills added up."""

import pytest

from proxy.lab.replay import OURS, Result, Total, geometric_mean, summary
from proxy.protocol.caches import Bill
from proxy.protocol.providers import ANTHROPIC


def total(*bills: Bill) -> Total:
    found = Total()
    for bill in bills:
        found.add(bill)
    return found


def result(ours: float, other: float, requests: int = 1) -> Result:
    totals = {"other": total(Bill(0, 0, 0, int(other * 1000))), OURS: total(Bill(0, 0, 0, int(ours * 1000)))}
    return Result("t", ANTHROPIC, requests, 1000.0, totals)


def test_every_kind_of_token_at_its_rate() -> None:
    both = total(Bill(read=1000, write_5m=100, write_1h=10, plain=1), Bill(read=0, write_5m=0, write_1h=0, plain=1000))
    assert both.prompt == 2111
    assert both.hit_rate == pytest.approx(1000 / 2111)
    assert both.cost(ANTHROPIC) == pytest.approx(100 + 125 + 20 + 1001)


def test_nothing_at_all() -> None:
    empty = Result("t", ANTHROPIC, 0, totals={OURS: Total()})
    assert (empty.ours.hit_rate, empty.share(OURS), empty.against_cheapest()) == (0.0, 1.0, 1.0)


def test_ours_against_the_cheapest_other() -> None:
    found = result(0.3, 0.6)
    found.totals["dear"] = total(Bill(0, 0, 0, 1250))
    assert found.share(OURS) == pytest.approx(0.3)
    assert found.against_cheapest() == pytest.approx(0.5)


def test_the_summary_is_the_geometric_mean_over_traces() -> None:
    means = summary([result(0.1, 1.0, requests=3), result(0.4, 1.0, requests=4)])
    assert (means.traces, means.requests, means.violations) == (2, 7, 0)
    assert means.shares == {"other": pytest.approx(1.0), OURS: pytest.approx(0.2)}
    assert means.against_cheapest == pytest.approx(0.2)


@pytest.mark.parametrize(("values", "mean"), [([2.0, 8.0], 4.0), ([3.0], 3.0), ([0.0, 5.0], 0.0), ([], 0.0)])
def test_geometric_means(values: list[float], mean: float) -> None:
    assert geometric_mean(values) == pytest.approx(mean)

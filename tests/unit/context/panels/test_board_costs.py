"""What panels cost: the vectors of ``costs.vectors``, and bounds."""

from pathlib import Path

import pytest

from proxy.context.panels import PanelMemory
from proxy.context.panels.board import MOST_GONE, PanelCosts, counted
from proxy.kit.value import digest
from tests.examples import for_every
from tests.vectors import Vector, read_vectors

VECTORS = read_vectors(
    Path(__file__).with_name("costs.vectors"), "before now hits tokens prices costs totals", "original ours"
)


def emitted(written: str) -> list[PanelMemory]:
    pairs = [word.split(":") for word in written.split()]
    return [PanelMemory(name, digest(content.encode()), 0.0) for name, content in pairs]


def counted_ones(costs: PanelCosts, *names: str, hit_usd: float = 1.0, miss_usd: float = 1.0) -> PanelCosts:
    """Costs after a request with these panels of a million tokens each."""
    return counted(
        costs, [PanelMemory(name, b"", 0.0) for name in names], dict.fromkeys(names, 10**6), hit_usd, miss_usd
    )


def numbers(written: str) -> dict[str, float]:
    words = written.split()
    return dict(zip(words[::2], map(float, words[1::2]), strict=True))


@for_every(VECTORS)
def test_panels_cost_what_the_vector_says(vector: Vector) -> None:
    given, before, now = numbers(vector.one("tokens")), emitted(vector.one("before")), emitted(vector.one("now"))
    tokens = {panel.id: int(given.get(panel.id, 1)) for panel in (*before, *now)}
    hit_usd, miss_usd = map(float, vector.one("prices", "1 2").split())
    first = counted(PanelCosts(), before, tokens, hit_usd, miss_usd)
    found = counted(first, now, tokens, hit_usd, miss_usd)

    assert not any(cost.is_hit for cost in first.last)
    for hits in vector.all("hits"):
        assert [cost.id for cost in found.last if cost.is_hit] == hits.split()
    for costs in vector.all("costs"):
        assert {cost.id: cost.cost_usd for cost in found.last} == pytest.approx(numbers(costs))
    for totals in vector.all("totals"):
        assert found.totals == pytest.approx(numbers(totals))
        assert {cost.id: cost.total_usd for cost in found.last}.items() <= dict(found.totals).items()


def test_the_totals_of_those_that_are_gone_are_bounded_and_the_oldest_go() -> None:
    costs = PanelCosts()
    for number in range(MOST_GONE + 3):
        costs = counted_ones(costs, f"p{number}", "stays")
    names = list(costs.totals)
    assert len(names) == MOST_GONE + 2
    assert names[0] == "p2"
    assert names[-2:] == [f"p{MOST_GONE + 2}", "stays"]
    assert costs.totals["stays"] == pytest.approx(MOST_GONE + 3)


def test_more_panels_than_the_bound_are_all_kept_while_they_are_shown() -> None:
    shown = [f"p{number}" for number in range(2 * MOST_GONE)]
    assert len(counted_ones(PanelCosts(), *shown).totals) == 2 * MOST_GONE


def test_what_was_counted_before_stays_as_it_was() -> None:
    first = counted_ones(PanelCosts(), "a", miss_usd=2.0)
    counted_ones(first, "a", miss_usd=2.0)
    assert dict(first.totals) == {"a": 2.0}


def test_the_size_grows_with_what_is_remembered() -> None:
    costs = counted_ones(PanelCosts(), "a" * 50)
    assert PanelCosts().size_bytes == 0
    assert costs.size_bytes > 3 * 100

"""Metrics whose labels are bounded."""

import math

import pytest
from prometheus_client import CollectorRegistry, Counter

from proxy.telemetry.metrics import OTHER, BoundedNames, Counters


def counted(names: BoundedNames, *given: str) -> dict[str, float]:
    registry = CollectorRegistry()
    counters = Counters(Counter("seen", "Seen.", ["name", "kind"], registry=registry), ["name", "kind"], [names, str])
    for name in given:
        counters(name, "a")
    samples = [sample for family in registry.collect() for sample in family.samples]
    return {sample.labels["name"]: sample.value for sample in samples if sample.name == "seen_total"}


def test_names_beyond_the_bound_are_counted_together() -> None:
    names = BoundedNames(["known"], most=2)
    assert counted(names, "first", "second", "third", "second", "known", "first") == {
        "first": 2.0, OTHER: 3.0, "known": 1.0,
    }  # fmt: skip


def test_a_name_that_holds_a_key_is_not_shown() -> None:
    (name,) = counted(BoundedNames(), "sk-stratiform-0123456789abcdef0123456789abcdef")
    assert "0123456789abcdef" not in name


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
def test_a_bad_value_leaves_a_counter_as_it_is(bad: float) -> None:
    counters = Counters(Counter("spent_usd", "Spent.", registry=CollectorRegistry()), [], [])
    for by in (2.0, bad, 3.0):
        counters(by=by)
    (family,) = counters.child().collect()
    assert next(sample.value for sample in family.samples if sample.name.endswith("_total")) == 5.0

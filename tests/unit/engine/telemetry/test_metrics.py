"""The metrics: what they count, that their labels are bounded, and the text that Prometheus scrapes."""

import asyncio
import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from proxy import __version__
from proxy.engine.telemetry.metrics import (
    ERROR_KINDS,
    OTHER,
    RETRIED_KINDS,
    BoundedNames,
    Counters,
    Metrics,
    Series,
    pieces,
)
from proxy.kit.modes import Edit, Mode, Reason
from proxy.planner.record import KINDS
from proxy.planner.shadow import Deviation
from proxy.protocol.response.outcome import CAUSES
from proxy.protocol.response.usage import Usage
from tests.doubles import make_deployment


def scraped(metrics):
    """Every sample: {(name, labels): value}."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(b"".join(metrics.pieces()).decode())
        for sample in family.samples
    }


def value(metrics, name, **labels):
    return scraped(metrics).get(("stratiform_" + name, tuple(sorted(labels.items()))))


@pytest.fixture
def metrics():
    return Metrics()


def test_tokens_by_kind_and_the_share_read(metrics):
    metrics.tokens("m", Usage(prompt=1000, output=7, read=900, write_5m=50, write_1h=10))
    assert value(metrics, "tokens_total", model="m", kind="read", client="unrecognised") == 900
    assert value(metrics, "tokens_total", model="m", kind="write", client="unrecognised") == 60
    assert value(metrics, "tokens_total", model="m", kind="uncached", client="unrecognised") == 40
    assert value(metrics, "tokens_total", model="m", kind="output", client="unrecognised") == 7
    assert value(metrics, "hit_ratio_sum", model="m") == 0.9


def test_estimates_are_a_kind_of_their_own(metrics):
    metrics.tokens("m", Usage(prompt=1000, output=7, read=900, estimated=True))
    assert value(metrics, "tokens_total", model="m", kind="estimated", client="unrecognised") == 1000
    assert value(metrics, "tokens_total", model="m", kind="output", client="unrecognised") == 7
    assert value(metrics, "tokens_total", model="m", kind="read", client="unrecognised") is None
    assert value(metrics, "hit_ratio_count", model="m") is None


def test_plugins_and_the_bounds_of_histograms(metrics):
    metrics.plan("tier", "ordered", {"L0": 500, "L1": 0}, {})
    metrics.overhead(0.0007)
    metrics.plugin_failed("aider", "recognise")
    metrics.plugin_reached("fenced", "pieces")
    metrics.plugin_switched_off("slow")
    assert value(metrics, "tier_tokens_total", tier="L1") == 0
    assert value(metrics, "overhead_seconds_bucket", le="0.0005") == 0
    assert value(metrics, "overhead_seconds_bucket", le="0.001") == 1
    assert value(metrics, "plugin_errors_total", plugin="aider", hook="recognise") == 1
    assert value(metrics, "plugin_bounds_total", plugin="fenced", bound="pieces") == 1
    assert value(metrics, "plugins_switched_off_total", plugin="slow") == 1


def test_budgets_are_asked_for_when_the_metrics_are_read(metrics):
    left = {"t": (3.0, 1e9)}
    metrics.remaining = lambda: left
    assert value(metrics, "budget_remaining_usd", team="t") == 3.0
    assert value(metrics, "budget_window_end_seconds", team="t") == 1e9
    left["t"] = (-0.5, math.inf)
    assert value(metrics, "budget_remaining_usd", team="t") == -0.5
    assert value(metrics, "budget_window_end_seconds", team="t") == math.inf


def test_build_info(metrics):
    assert value(metrics, "build_info", version=__version__) == 1


def test_names_that_clients_choose_are_bounded():
    metrics = Metrics([make_deployment(name="configured")], teams=["ours"])
    for number in range(1000):
        metrics.requests(f"junk-{number}", "tier", "200", "http")
        metrics.cost("configured", f"junk-{number}", "unrecognised", by=0)
    metrics.requests("configured", "tier", "200", "http")
    metrics.requests("", "tier", "200", "http")
    models = {dict(labels).get("model") for name, labels in scraped(metrics) if name == "stratiform_requests_total"}
    teams = {dict(labels).get("team") for name, labels in scraped(metrics) if name == "stratiform_cost_usd_total"}
    assert len(models) <= 201
    assert len(teams) <= 201
    assert {"configured", OTHER} <= models
    assert {"ours", OTHER} <= teams


KIND_OF = {
    "tokens": ("read", "write", "uncached", "output", "estimated"), "cache_deviations": tuple(Deviation),
    "cache_breaks": KINDS, "cache_break_usd": KINDS, "upstream_errors": ERROR_KINDS, "retries": RETRIED_KINDS,
    "panels": ("status", "page", "file", "list"),
}  # fmt: skip
TIERS = ("L0", "L1", "L2", "L3", "active")
# All values that a label can have at once, where 20 models, each at one transport, serve 20 teams.
VALUES = {
    "model": [f"m{n}" for n in range(20)], "team": [f"t{n}" for n in range(20)],
    "deployment": [f"d{n}" for n in range(20)], "client": ["unrecognised", *(f"client-{n}" for n in range(30))],
    "mode": [mode.name.lower() for mode in Mode], "status": [str(code) for code in range(200, 600)],
    "transport": ["http"], "basis": ["shadow", "reported", "observed"], "tier": TIERS, "source": TIERS,
    "target": [*TIERS, "removed"], "reason": list(Reason), "side": ["over", "under"], "cause": CAUSES,
    "arm": ["control", "treated"], "agreement": ["same", "other"], "version": ["1"], "unit": ["requests", "tokens"],
    "segment": ["1", "2", "3", "4", "unmarked"], "edit": list(Edit), "state": ["same", "new"],
    "bound": ["length", "pieces", "matches"], "hook": ["recognise", "plan"],
    **{label: [f"{label}-{n}" for n in range(6)] for label in ("outcome", "operation", "plugin", "assembly")},
    **{label: [f"{label}-{n}" for n in range(10)] for label in ("prompt", "profile")},
}  # fmt: skip


def test_twenty_teams_at_twenty_models_stay_below_ten_thousand_series_whatever_comes():
    """Every metric of the registry, with every combination of the values that its labels can have."""
    metrics = Metrics([make_deployment(name=name) for name in VALUES["model"]], teams=VALUES["team"])
    for series in metrics._series:
        name = series.name.removeprefix("stratiform_")
        for values in product(*(KIND_OF[name] if label == "kind" else VALUES[label] for label in series.label_names)):
            series.child(*values)
    found = scraped(metrics)
    clients = {dict(labels)["client"] for _, labels in found if "client" in dict(labels)}
    assert {"unrecognised", OTHER} <= clients
    assert len(clients) <= 8
    assert len(found) < 10_000
    money = [dict(labels) for name, labels in found if name == "stratiform_cost_usd_total"]
    assert {(one["model"], one["team"]) for one in money} == set(product(VALUES["model"], VALUES["team"])), "none lost"


def test_beyond_the_bound_a_client_and_a_cause_are_others_and_nothing_is_lost():
    metrics = Metrics()
    for model, team, client in product(range(20), range(20), range(3)):
        metrics.cost(f"m{model}", f"t{team}", f"client-{client}")
    found = {labels: cost for (name, labels), cost in scraped(metrics).items() if name == "stratiform_cost_usd_total"}
    assert sum(found.values()) == 1200
    assert 600 < len(found) < 1000
    metrics.cost("m0", "t0", "client-0")
    assert value(metrics, "cost_usd_total", model="m0", team="t0", client="client-0") == 2, "what is told stays told"


def test_a_status_that_nobody_knows_is_told_by_its_class():
    metrics = Metrics()
    for status in (200, 418, 451, 599):
        metrics.requests("m", "tier", str(status), "http")
    labels = {"model": "m", "mode": "tier", "transport": "http"}
    assert value(metrics, "requests_total", status="200", **labels) == 1
    assert value(metrics, "requests_total", status="4xx", **labels) == 2
    assert value(metrics, "requests_total", status="5xx", **labels) == 1


def test_what_is_known_to_come_starts_at_zero_so_that_its_first_increase_is_seen():
    metrics = Metrics([make_deployment(name="m")], teams=["t"])
    assert value(metrics, "tokens_total", model="m", kind="read", client="unrecognised") == 0
    assert value(metrics, "requests_total", model="m", mode="tier", status="200", transport="http") == 0
    assert value(metrics, "upstream_errors_total", model="m", kind="timeout") == 0
    assert value(metrics, "cost_usd_total", model="m", team="t", client="unrecognised") == 0
    assert value(metrics, "saved_usd_total", model="m", team="t", basis="reported") == 0
    assert value(metrics, "tier_tokens_total", tier="L0") == 0
    assert value(metrics, "segment_tokens_total", segment="unmarked") == 0
    many = Metrics([make_deployment(name=f"m{n}") for n in range(500)], teams=["t"])
    assert value(many, "tokens_total", model="m1", kind="read", client="unrecognised") is None


def test_tiers_have_one_spelling(metrics):
    metrics.plan("tier", "kept", {"active": 5}, {})
    metrics.moved("active", "L3")
    metrics.moved("L3", "removed")
    assert value(metrics, "tier_tokens_total", tier="active") == 5
    assert value(metrics, "tier_moves_total", source="active", target="L3") == 1
    assert value(metrics, "tier_moves_total", source="L3", target="removed") == 1


def test_two_apps_do_not_share_metrics():
    first, second = Metrics(), Metrics()
    first.disconnected()
    assert value(second, "client_disconnects_total") == 0


def test_no_label_tells_clients_apart(metrics):
    names = {label for family in metrics.registry.collect() for s in family.samples for label in s.labels}
    declared = {
        label for collector in metrics.registry._collector_to_names for label in getattr(collector, "_labelnames", ())
    }
    allowed = {
        "model", "mode", "status", "transport", "kind", "team", "basis", "tier", "source", "target", "reason",
        "side", "plugin", "hook", "version", "deployment", "cause", "arm", "outcome", "operation", "unit", "bound",
        "segment", "assembly", "edit", "state", "prompt", "profile", "client", "agreement",
    }  # fmt: skip
    assert declared == allowed
    assert names <= allowed | {"le"}


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


def without_created(text: bytes) -> bytes:
    """The text of the library without the families that say when a series was made."""
    return b"\n".join(line for line in text.split(b"\n") if b"_created" not in line.split(b"{")[0])


@given(st.lists(st.text(max_size=8), max_size=300, unique=True), st.integers(0, 130))
def test_pieces_are_the_whole_text(values: list[str], more: int) -> None:
    registry = CollectorRegistry()
    text = 'Help with a \\ and a\nline "end".'
    counters = Counters(Counter("c", text, ["z", "name"], registry=registry), ["z", "name"], [str, str])
    gauges = Series(Gauge("g", "Help.", registry=registry), [], [])
    sizes = Series(Histogram("h", "Help.", ["zone"], buckets=(0.1, 1.0), registry=registry), ["zone"], [str])
    empty = Counters(Counter("empty", "Help.", ["name"], registry=registry), ["name"], [str])
    counts = Counters(Counter("count_total", "Help.", registry=registry), [], [])
    gauges.child().set(more / 7 - 3)
    counts(by=1e20)
    for value in values:
        counters("z", value)
    for number in range(more):
        sizes.child(str(number)).observe(number / 10)
    found = list(pieces([counters, gauges, sizes, empty, counts]))
    assert b"".join(found) == without_created(generate_latest(registry))
    assert max(piece.count(b"\n") for piece in found) <= 60


def test_other_work_goes_on_while_the_text_is_written() -> None:
    metrics, seen = Metrics(), list[int]()
    for number in range(3_000):
        metrics.upstream_error("m", f"kind {number}")

    async def main() -> bytes:
        async def other() -> None:
            while True:
                seen.append(1)
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        text = await metrics.rendered()
        task.cancel()
        return text

    text = asyncio.run(main())
    assert text.count(b"stratiform_upstream_errors_total{") == 3_000
    assert len(seen) > 60


def test_a_scrape_is_the_librarys_own_text() -> None:
    metrics = Metrics()
    metrics.remaining = lambda: {"red": (1.5, 9.0)}

    def ours(text: bytes) -> list[bytes]:
        return [line for line in text.splitlines() if not line.startswith((b"process_", b"# "))]

    assert ours(asyncio.run(metrics.rendered())) == ours(without_created(generate_latest(metrics.registry)))
    assert b'stratiform_budget_window_end_seconds{team="red"} 9.0' in b"".join(metrics.pieces())

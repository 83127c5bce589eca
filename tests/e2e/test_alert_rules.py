"""Every alert fires once, in a real Prometheus with a day of figures that call for it, and none where all is well.

The figures are written into the database of a Prometheus before it starts. What an alert waits for (``for``) is left
out there, because a test has no fifteen minutes; promtool, which has all the time, checks the rules as they are.
"""

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prometheus_server import GRAFANA, Prometheus, running, tool
from tests.waiting import until

pytestmark = pytest.mark.slow

RULES: Any = yaml.safe_load((GRAFANA / "rules.yaml").read_text())
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
DAY_S, STEP_S = 25 * 3600, 60

Figure = Callable[[float], float]
"""The value of a series so many seconds before now."""


def steady(a_second: float) -> Figure:
    """A counter that grows evenly."""
    return lambda age_s: (DAY_S - age_s) * a_second


def turned(before: float, after: float, since_s: float) -> Figure:
    """A counter whose pace has changed so many seconds ago."""
    return lambda age_s: (DAY_S - max(age_s, since_s)) * before + max(0.0, since_s - age_s) * after


def level(value: float) -> Figure:
    """A gauge."""
    return lambda age_s: value


def ahead(seconds: float, now: float) -> Figure:
    """A gauge of a time that lies so many seconds behind now."""
    return lambda age_s: now + seconds


def well(name: str, now: float) -> dict[str, Figure]:
    """A proxy's figures where nothing is wrong; ``name`` stands in the labels."""
    buckets = {
        f'stratiform_overhead_seconds_bucket{{le="{le}",instance="{name}"}}': steady(9.0 if le != "0.001" else 5.0)
        for le in ("0.001", "0.005", "0.05", "0.1", "+Inf")
    }
    return {
        f'stratiform_tokens_total{{model="{name}",kind="read"}}': steady(800.0),
        f'stratiform_tokens_total{{model="{name}",kind="uncached"}}': steady(200.0),
        f'stratiform_cache_breaks_total{{model="{name}",kind="changed"}}': steady(0.05),
        f'stratiform_cache_break_usd_total{{model="{name}",kind="changed"}}': steady(0.001),
        f'stratiform_input_cost_usd_total{{model="{name}"}}': steady(0.01),
        f'stratiform_requests_total{{model="{name}"}}': steady(1.0),
        f'stratiform_upstream_errors_total{{model="{name}",kind="timeout"}}': steady(0.001),
        f'stratiform_upstream_errors_total{{model="{name}",kind="rejected"}}': steady(0.5),
        f'stratiform_cost_usd_total{{team="{name}"}}': steady(0.001),
        f'stratiform_budget_remaining_usd{{team="{name}"}}': level(50.0),
        # At this rate the budget lasts for 14 hours, and begins anew in ten.
        f'stratiform_budget_window_end_seconds{{team="{name}"}}': ahead(10 * 3600, now),
        f'stratiform_budget_overrun_usd_total{{team="{name}"}}': level(3.0),
        f'stratiform_breaker_state{{deployment="{name}"}}': level(0.0),
        f'stratiform_store_away{{instance="{name}"}}': level(0.0),
        f'stratiform_store_exchanged{{instance="{name}"}}': level(0.0),
        # What waits is being written.
        f'stratiform_spool_pending{{instance="{name}"}}': lambda age_s: age_s / 10,
        f'stratiform_settlements_lost_total{{instance="{name}"}}': level(2.0),
        f'stratiform_store_errors_total{{operation="{name}"}}': level(4.0),
        f'stratiform_reservations_expired_total{{instance="{name}"}}': level(1.0),
        f'stratiform_clock_held_back_seconds{{instance="{name}"}}': level(0.0),
        f'stratiform_clock_off_store_seconds{{instance="{name}"}}': level(0.0),
        **buckets,
    }


@dataclass(frozen=True)
class Trouble:
    """What is wrong: the figures that say so, and those of a healthy proxy."""

    alert: str
    figures: dict[str, Figure]


def troubles(now: float) -> list[Trouble]:
    """One for each alert; what is wrong has the alert's name in its labels."""

    def wrong(alert: str, **figures: Figure) -> Trouble:
        return Trouble(alert, {_series(name, alert): figure for name, figure in figures.items()})

    tokens = "stratiform_tokens_total"
    return [
        Trouble(
            "StratiformHitRatioDrops",
            {
                f'{tokens}{{model="StratiformHitRatioDrops",kind="read"}}': turned(800.0, 300.0, 2400.0),
                f'{tokens}{{model="StratiformHitRatioDrops",kind="uncached"}}': turned(200.0, 700.0, 2400.0),
            },
        ),
        wrong("StratiformBreakStorm", cache_breaks_total=turned(0.01, 0.1, 900.0)),
        wrong("StratiformBreaksCost", cache_break_usd_total=steady(0.001), input_cost_usd_total=steady(0.004)),
        wrong(
            "StratiformBudgetBurnsFast",
            cost_usd_total=turned(0.0001, 0.0045, 3600.0),
            budget_remaining_usd=level(60.0),
            # At the pace of six hours the budget would last.
            budget_window_end_seconds=ahead(5 * 3600, now),
        ),
        wrong(
            "StratiformBudgetBurns",
            cost_usd_total=turned(0.0001, 0.002, 6 * 3600.0),
            budget_remaining_usd=level(100.0),
            budget_window_end_seconds=ahead(math.inf, now),
        ),
        wrong("StratiformBudgetLow", budget_remaining_usd=level(-1.0), budget_window_end_seconds=ahead(9.0, now)),
        wrong("StratiformOverrun", budget_overrun_usd_total=turned(0.0, 0.001, 600.0)),
        Trouble(
            "StratiformOverhead",
            {
                f'stratiform_overhead_seconds_bucket{{le="{le}",instance="StratiformOverhead"}}': steady(pace)
                for le, pace in (("0.001", 5.0), ("0.005", 6.0), ("0.05", 7.0), ("0.1", 9.0), ("+Inf", 9.0))
            },
        ),
        Trouble(
            "StratiformUpstreamErrors",
            {
                'stratiform_requests_total{model="StratiformUpstreamErrors"}': steady(1.0),
                'stratiform_upstream_errors_total{model="StratiformUpstreamErrors",kind="timeout"}': turned(
                    0, 0.2, 900
                ),
            },
        ),
        wrong("StratiformProviderFails", breaker_state=level(2.0)),
        wrong("StratiformStoreAway", store_away=level(1.0)),
        wrong("StratiformSpoolGrows", spool_pending=lambda age_s: 1000 - age_s / 100, store_away=level(0.0)),
        wrong("StratiformStoreExchanged", store_exchanged=level(1.0)),
        wrong("StratiformSettlementsLost", settlements_lost_total=turned(0.0, 0.1, 300.0)),
        wrong("StratiformStoreErrors", store_errors_total=steady(0.1)),
        wrong("StratiformWorkersDie", reservations_expired_total=turned(0.0, 0.1, 300.0)),
        wrong("StratiformClockSet", clock_held_back_seconds=level(90.0), clock_off_store_seconds=level(0.0)),
    ]


_LABELS = {
    "cost_usd_total": "team", "budget_remaining_usd": "team", "budget_window_end_seconds": "team",
    "budget_overrun_usd_total": "team", "breaker_state": "deployment", "store_errors_total": "operation",
    "cache_breaks_total": "model", "cache_break_usd_total": "model", "input_cost_usd_total": "model",
}  # fmt: skip


def _series(metric: str, name: str) -> str:
    return f'stratiform_{metric}{{{_LABELS.get(metric, "instance")}="{name}"}}'


def openmetrics(figures: dict[str, Figure], now: float) -> str:
    """A day of samples."""
    found = []
    for series, figure in figures.items():
        times = range(DAY_S, -1, -STEP_S)
        found += [f"{series} {_number(figure(float(age_s)))} {now - age_s:.0f}" for age_s in times]
    return "\n".join([*found, "# EOF\n"])


def _number(value: float) -> str:
    return "+Inf" if value == math.inf else f"{value:.6f}"


@pytest.fixture(scope="module")
def alerted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that evaluates the rules over what was written into it."""
    folder, now = tmp_path_factory.mktemp("alerts"), float(int(time.time()))
    figures = well("well", now)
    for trouble in troubles(now):
        assert not trouble.figures.keys() & figures.keys()
        figures |= trouble.figures
    (folder / "figures").write_text(openmetrics(figures, now))
    words = ["tsdb", "create-blocks-from", "openmetrics", str(folder / "figures"), str(folder / "data")]
    done = subprocess.run([tool("promtool"), *words], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    hasty = json.loads(json.dumps(RULES))
    for group in hasty["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    (folder / "rules.yaml").write_text(yaml.safe_dump(hasty))
    config = {"global": {"evaluation_interval": "1s"}, "rule_files": [str(folder / "rules.yaml")]}
    with running(folder, config) as server:
        yield server


def firing(server: Prometheus) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for alert in server.get("/api/v1/alerts")["alerts"]:
        if alert["state"] == "firing":
            found.setdefault(alert["labels"]["alertname"], []).append(alert)
    return found


def test_there_is_a_trouble_for_every_alert() -> None:
    assert [trouble.alert for trouble in troubles(0.0)] == ALERTS


def test_every_alert_fires_once_and_tells_what_is_wrong(alerted: Prometheus) -> None:
    until(lambda: firing(alerted).keys() == set(ALERTS))
    for name, alerts in firing(alerted).items():
        (alert,) = alerts
        own = set(alert["labels"].values()) - {alert["labels"]["severity"]}
        assert own == {name}, alert
        assert alert["labels"]["severity"] in ("warning", "critical")
        assert "{{" not in alert["annotations"]["summary"]
        assert "error" not in alert["annotations"]["summary"].partition("<")[2]


def promtool_series(figures: dict[str, Figure], now: float) -> list[dict[str, str]]:
    values = {
        series: " ".join(_number(figure(float(age_s))) for age_s in range(DAY_S, -1, -STEP_S))
        for series, figure in figures.items()
    }
    return [{"series": series, "values": text} for series, text in values.items()]


@pytest.mark.parametrize("is_well", [True, False], ids=["well", "in trouble"])
def test_the_rules_as_they_are_fire_after_their_time_and_never_where_all_is_well(
    tmp_path: Path, *, is_well: bool
) -> None:
    # promtool's clock begins at 0.
    figures = well("well", float(DAY_S))
    if not is_well:
        for trouble in troubles(float(DAY_S)):
            figures |= trouble.figures
    cases = []
    for rule in (rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule):
        cases.append({"eval_time": f"{DAY_S}s", "alertname": rule["alert"], "exp_alerts": []})
    test = {
        "rule_files": [str(GRAFANA / "rules.yaml")],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": promtool_series(figures, DAY_S), "alert_rule_test": cases}],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [tool("promtool"), "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, timeout=300, text=True
    )
    if is_well:
        assert done.returncode == 0, done.stdout + done.stderr
        return
    said = done.stdout + done.stderr
    assert [alert for alert in ALERTS if f"alertname: {alert}," not in said] == []

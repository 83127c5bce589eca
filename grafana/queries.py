"""Queries of PromQL over the proxy's counters, and what several boards have in common."""

from collections.abc import Sequence

from grafana.panels import Query, label_variable, stat

MODEL, TEAM = 'model=~"$model"', 'team=~"$team"'
BOTH = f"{MODEL},{TEAM}"
PROMPT = 'kind=~"read|write|uncached"'


def increase(metric: str, labels: str = "", by: str = "") -> str:
    """By how much a counter has grown in the selected time."""
    return f"sum{_by(by)}(increase(stratiform_{metric}{_selector(labels)}[$__range]))"


def rate(metric: str, labels: str = "", by: str = "") -> str:
    """How fast a counter grows, a second."""
    return f"sum{_by(by)}(rate(stratiform_{metric}{_selector(labels)}[$__rate_interval]))"


def quantile(share: float, metric: str, labels: str = "", by: str = "le") -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({share:g}, {rate(metric + '_bucket', labels, by)})"


def net(function: str, labels: str) -> str:
    """What was saved less what was lost."""
    find = increase if function == "increase" else rate
    saved, lost = find("saved_usd_total", labels), find("lost_usd_total", labels)
    return f"({saved} or vector(0)) - ({lost} or vector(0))"


def count(metric: str, labels: str = "", legend: str = "") -> Query:
    """How often something happened in the selected time; 0 where it never did."""
    return Query(f"{increase(metric, labels)} or vector(0)", legend, instant=True)


def a_minute(metric: str, labels: str, by: str, legend: str) -> Query:
    """How often something happens in a minute."""
    return Query(f"{rate(metric, labels, by)} * 60", legend)


def most_often(metric: str, labels: str, by: str, legend: str, *, shows_none: bool = True) -> Query:
    """How often each of several things happened in the selected time, the most frequent one first. ``shows_none``:
    what never happened then is shown, too, where it is known."""
    happened = increase(metric, labels, by) + ("" if shows_none else " > 0")
    return Query(f"sort_desc({happened})", legend, instant=True)


def percentiles(metric: str, labels: str = "") -> Sequence[Query]:
    """Three percentiles of durations."""
    return [Query(quantile(share, metric, labels), f"p{100 * share:.0f}") for share in (0.5, 0.95, 0.99)]


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else " "


def _selector(labels: str) -> str:
    return "{" + labels + "}" if labels else ""


VARIABLES = [
    label_variable("model", "Model", "stratiform_requests_total"),
    label_variable("team", "Team", "stratiform_cost_usd_total"),
]

COST = stat(
    "Cost",
    increase("cost_usd_total", BOTH),
    "currencyUSD",
    "Prompts and answers, at the prices of LiteLLM's price map or the configuration.",
    decimals=2,
)
REQUESTS = stat("Requests", increase("requests_total", MODEL), "short", "Exchanges that ended.")

"""The dashboard, the documentation and the code name the same metrics and labels."""

import json
import re
from pathlib import Path

import pytest

from proxy.engine.telemetry.metrics import Metrics

GRAFANA = Path(__file__).parents[2] / "grafana"
DASHBOARDS = sorted(GRAFANA.glob("*.json"))
NAME = re.compile(r"\bstratiform_[a-z_0-9]+\b")
SELECTOR = re.compile(r"\b(stratiform_[a-z_0-9]+)\{([^}]*)\}")
GROUPING = re.compile(r"\bby \(([^)]*)\) \(\w+\((stratiform_[a-z_0-9]+)")
ROW = re.compile(r"^\| `(stratiform_\w+)` \| (\w+) \|([\w, ]*)\|", re.MULTILINE)


def in_the_code():
    """{name as documented: (type, labels)}."""
    found = {}
    for collector in Metrics().registry._collector_to_names:
        for family in collector.collect():
            if family.name.startswith("stratiform_"):
                name = family.name + ("_total" if family.type == "counter" else "")
                found[name] = (family.type, tuple(collector._labelnames))
    return found


def in_the_queries():
    return [
        target["expr"]
        for path in DASHBOARDS
        for panel in json.loads(path.read_text())["panels"]
        for target in panel.get("targets", [])
    ]


def in_the_table():
    text = (GRAFANA / "METRICS.md").read_text()
    return {
        name: (kind, tuple(label.strip() for label in labels.split(",") if label.strip()))
        for name, kind, labels in ROW.findall(text)
    }


def documented_name(name):
    """The metric that a histogram's series belongs to."""
    return re.sub(r"_(bucket|sum|count)$", "", name)


def test_there_is_something_to_check():
    assert len(in_the_code()) > 20
    assert len(in_the_queries()) > 20


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_every_metric_of_a_dashboard_exists(path):
    named = {documented_name(name) for name in NAME.findall(path.read_text())}
    assert named - in_the_code().keys() == set()


def test_every_label_of_a_query_exists():
    metrics = in_the_code()
    unknown = []
    for query in in_the_queries():
        used = [(name, re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) for name, selector in SELECTOR.findall(query)]
        used += [(name, re.findall(r"\w+", labels)) for labels, name in GROUPING.findall(query)]
        for name, labels in used:
            known = (*metrics[documented_name(name)][1], *(("le",) if name.endswith("_bucket") else ()))
            unknown += [(name, label) for label in labels if label not in known]
    assert unknown == []


def test_every_metric_is_documented_with_its_type_and_labels():
    assert in_the_table() == in_the_code()


def test_dashboards_have_no_duplicate_panel_ids_and_a_description_where_a_title_does_not_do():
    for path in DASHBOARDS:
        panels = json.loads(path.read_text())["panels"]
        ids = [panel["id"] for panel in panels]
        assert len(ids) == len(set(ids))
        for panel in panels:
            assert panel["title"]
            assert panel["type"] == "row" or panel["targets"]


def test_panels_do_not_overlap():
    for path in DASHBOARDS:
        taken = {}
        for panel in json.loads(path.read_text())["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert (x, y) not in taken, f"{panel['title']} lies on {taken.get((x, y))}"
                    taken[x, y] = panel["title"]

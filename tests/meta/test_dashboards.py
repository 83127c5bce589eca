"""The dashboards are what their generator makes, and the rules name what there is."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana.__main__ import boards, text_of
from tests.meta.test_metrics_documented import GRAFANA, NAME, documented_name, in_the_code
from tests.prometheus_server import tool

RULES: Any = yaml.safe_load((GRAFANA / "rules.yaml").read_text())
COMPOSE: Any = yaml.safe_load((GRAFANA / "compose.yaml").read_text())
_GRAFANA_IN_COMPOSE = "/var/lib/grafana/dashboards"


def rules(kind: str) -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"] if kind in rule]


@pytest.mark.parametrize("name", ["cache", "budgets", "proxy"])
def test_each_board_is_what_the_generator_makes(name: str) -> None:
    assert (GRAFANA / f"{name}.json").read_text("utf-8") == text_of(boards()[name]), "run python -m grafana"


def test_there_is_no_board_that_the_generator_does_not_make() -> None:
    assert {path.stem for path in GRAFANA.glob("*.json")} == boards().keys()
    assert len({board["uid"] for board in boards().values()}) == len(boards())


def test_each_variable_that_a_query_uses_is_one_of_its_board() -> None:
    for board in boards().values():
        known = {variable["name"] for variable in board["templating"]["list"]} | {"__range", "__rate_interval"}
        queries = json.dumps([panel.get("targets", []) for panel in board["panels"]])
        assert set(re.findall(r"\$\{?(\w+)", queries)) == known | {"datasource"}


def test_rules_are_rules() -> None:
    subprocess.run([tool("promtool"), "check", "rules", str(GRAFANA / "rules.yaml")], check=True, capture_output=True)
    assert all({"expr", "labels", "annotations"} <= rule.keys() for rule in rules("alert"))


def test_rules_name_metrics_and_records_that_there_are() -> None:
    records = {rule["record"] for rule in rules("record")}
    for rule in rules("expr"):
        expr = rule["expr"]
        for record in re.findall(r"\b(?:\w+:)?stratiform_\w+:\w+", expr):
            assert record in records, expr
        plain = re.sub(r"\b(?:\w+:)?stratiform_\w+:\w+", "", expr)
        assert {documented_name(name) for name in NAME.findall(plain)} <= in_the_code().keys(), expr
    used = " ".join(rule["expr"] for rule in rules("alert"))
    assert all(record in used for record in records), "a record that no alert goes by"


def test_the_page_names_every_alert() -> None:
    page = (GRAFANA / "README.md").read_text("utf-8")
    assert {rule["alert"] for rule in rules("alert")} - set(re.findall(r"Stratiform[A-Z]\w+", page)) == set()


def test_compose_has_the_four_services_and_every_file_that_it_mounts() -> None:
    services = COMPOSE["services"]
    assert services.keys() == {"stratiform", "redis", "prometheus", "grafana"}
    for service in services.values():
        assert "image" in service or "build" in service
        for volume in service.get("volumes", []):
            source, inside, *_ = volume.split(":")
            if source.startswith("."):
                path = (GRAFANA / source).resolve()
                assert path.exists() or path.name == "config.yaml", volume
                assert inside.startswith("/")
    named = {volume.split(":")[0] for one in services.values() for volume in one.get("volumes", [])}
    assert {name for name in named if not name.startswith(".")} == COMPOSE["volumes"].keys()
    for service in services.values():
        assert set(service.get("depends_on", [])) <= services.keys()


def test_compose_serves_what_prometheus_and_grafana_look_for() -> None:
    services = COMPOSE["services"]
    prometheus = yaml.safe_load((GRAFANA / "prometheus.yaml").read_text())
    mounted = {Path(volume.split(":")[1]).name for volume in services["prometheus"]["volumes"]}
    assert {"prometheus.yml", *prometheus["rule_files"]} <= mounted
    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in services
    command = services[host]["command"]
    assert command[command.index("--host") + 1] == "0.0.0.0"
    assert f"{port}:{port}" in services[host]["ports"]
    source = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yaml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    provider = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "stratiform.yaml").read_text())
    assert provider["providers"][0]["options"]["path"] == _GRAFANA_IN_COMPOSE
    shown = {
        Path(volume.split(":")[1]).name
        for volume in services["grafana"]["volumes"]
        if volume.split(":")[1].startswith(_GRAFANA_IN_COMPOSE)
    }
    assert shown == {f"{name}.json" for name in boards()}


def test_compose_gives_the_proxy_the_store_of_the_example() -> None:
    example = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", (GRAFANA / "README.md").read_text(), re.DOTALL)[0])
    assert example["stratiform"]["store"] == "redis://redis:6379/0"
    assert "appendonly" in " ".join(COMPOSE["services"]["redis"]["command"])

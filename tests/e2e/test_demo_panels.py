"""Sessions with live panels, over HTTP: they cost no more than they may, and every panel is shown once."""

from typing import Any

import orjson
import pytest

from proxy.cli import main
from proxy.lab.demo.panels import SCENARIOS


@pytest.mark.slow
def test_live_panels_cost_no_more_than_they_may_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "panels", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    report: dict[str, Any] = orjson.loads(shown.out)
    assert [session["name"] for session in report["sessions"]] == [scenario.name for scenario in SCENARIOS]
    for session, scenario in zip(report["sessions"], SCENARIOS, strict=True):
        assert session["losses"] == []
        assert [form["form"] for form in session["forms"]] == [form.value for form in scenario.forms]
        assert all(goal["is_reached"] for goal in session["goals"])
        assert session["goals"]

"""The planner is not dearer than the committed table, and the comparison would notice if it were."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.planner.observation import Again
from proxy.protocol.providers import PROFILES
from tests.documents import Page
from tests.economics import __main__ as command
from tests.economics import table
from tests.economics.features import FEATURES
from tests.economics.measure import RULES, Cost, Job, cost, measure
from tests.economics.sessions import OPERATOR_TEXTS, sessions
from tests.examples import in_turn, sampled

ROOT = Path(__file__).parents[2]


def committed(*shares: float) -> dict[tuple[str, str], Cost]:
    costs = [Cost(f"session-{number}", "anthropic", share, "mutable") for number, share in enumerate(shares)]
    return {(one.session, one.rules): one for one in costs}


def dearer(known: dict[tuple[str, str], Cost], *factors: float) -> list[str]:
    now = [replace(one, share=one.share * factor) for one, factor in zip(known.values(), factors, strict=True)]
    return [one.name for one in table.compared(now, known) if one.is_dearer]


@pytest.mark.slow
def test_no_session_and_no_class_is_dearer_than_in_the_committed_table() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.economics"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_session_that_is_made_here_is_in_the_table_under_all_rules() -> None:
    known = table.read()
    made = [name for name, session in sessions().items() if session.origin]
    assert [(name, rules) for name in made for rules in RULES if (name, rules) not in known] == []


def test_the_page_on_live_panels_says_what_the_table_says() -> None:
    known = table.read()
    costs = [
        known[session, "anthropic"].share for session in ("made-panels", "made-panels-agent", "made-panels-frozen")
    ]
    row = Page(Path("proxy/context/README.md")).row("40 turns with pauses; 6 turns of an agent; 60 turns with freezing")
    assert row[1] == "; ".join(f"{share:.3f}" for share in costs)


def test_a_session_costs_what_the_table_says() -> None:
    found = cost("demo-clock", "anthropic")
    assert [one for one in table.compared([found], table.read()) if one.is_dearer or one.is_cheaper] == []


def regret(session: str, rules: str) -> float:
    """How much dearer the choice by price is than the better one of the two fixed rules."""
    chosen, always, never = (measure(Job(session, rules, again=again)).cost.share for again in Again)
    return chosen / min(always, never) - 1


@pytest.mark.parametrize("session", sampled(["demo-agent-reminded", "made-environment-told", "made-chat-page-told"], 3))
@pytest.mark.parametrize("rules", sampled(["anthropic", "openai", "deepseek"], 3))
def test_sending_texts_again_by_price_is_hardly_dearer_than_the_better_fixed_rule(session: str, rules: str) -> None:
    assert regret(session, rules) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("session", "rules"),
    in_turn(
        (name for name, one in sessions().items() if one.origin == OPERATOR_TEXTS),
        (rules for rules in RULES if PROFILES[rules].read > 0),
    ),
)
def test_sending_texts_again_by_price_is_hardly_dearer_in_every_session_with_texts(session: str, rules: str) -> None:
    assert regret(session, rules) < 0.02


def test_a_planner_that_has_become_dearer_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    relocation = FEATURES[0].name
    found = [measure(Job("demo-clock", rules, relocation)) for rules in ("anthropic", "deepseek")]
    monkeypatch.setattr(command, "measured", lambda jobs: found)
    assert command.main(["demo-clock"]) == 1
    printed = capsys.readouterr().out
    assert "DEARER: class demo, anthropic" in printed
    assert "DEARER: session demo-clock, deepseek" in printed


def test_a_class_may_be_half_a_percent_dearer_and_no_more() -> None:
    known = committed(0.2, 0.5)
    assert dearer(known, 1.004, 1.004) == []
    assert dearer(known, 1.006, 1.006) == ["mutable"]


def test_a_session_may_be_three_percent_dearer_where_another_makes_up_for_it() -> None:
    known = committed(0.2, 0.5)
    assert dearer(known, 1.029, 0.97) == []
    assert dearer(known, 1.031, 0.96) == ["session-0"]

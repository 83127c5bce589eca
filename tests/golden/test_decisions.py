"""The table of decisions: what the planner decides for clients of every kind, under the rules of every cache."""

import difflib
from pathlib import Path

import pytest

from tests.golden.clients import KINDS, clients
from tests.golden.decisions import Decisions

FOLDER = Path(__file__).with_name("decisions")


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_are_those_of_the_table(kind: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{kind.replace(' ', '_')}.txt"
    got = "\n".join("\n".join([*Decisions(client).rows(), ""]) for client in clients(kind))
    if request.config.getoption("--update-golden"):
        path.write_text(got)
        return
    expected = path.read_text()
    diff = difflib.unified_diff(expected.splitlines(), got.splitlines(), "expected", "decided", lineterm="", n=3)
    assert got == expected, "\n".join([path.name, *diff])

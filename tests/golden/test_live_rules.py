"""The table of the rules of live panels and of the history names tests and vectors that are there."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
VECTORS = TESTS / "unit/core/structured"
RULES = "".join(Path(__file__).with_name(name).read_text() for name in ("HISTORY.md", "PANELS.md"))
ROWS = [line.strip("|").split(" | ") for line in RULES.splitlines() if line.startswith("|")]


@pytest.mark.parametrize(
    "name", ["history/rules.vectors", "history/freezing.vectors", "panels/panels.vectors", "panels/costs.vectors"]
)
def test_the_table_names_every_heading_of_the_vectors_and_no_other(name: str) -> None:
    named = set(re.findall(rf"`{re.escape(Path(name).name)}: ([^`]+)`", RULES))
    headings = set(re.findall(r"^## (.+)$", (VECTORS / name).read_text(), re.MULTILINE))

    assert named == headings


def test_the_tests_of_the_table_are_there() -> None:
    named = set(re.findall(r"`((?:unit|property|fidelity|golden|contract|e2e)/[\w/]+\.py)`", RULES))

    assert len(named) >= 4
    assert {path for path in named if not (TESTS / path).exists()} == set()


def test_each_row_says_where_the_rule_comes_from_and_names_a_test_or_the_reason_for_none() -> None:
    rules = [row for row in ROWS if not row[0].strip().startswith(("rule", "---"))]

    assert len(rules) > 30
    for rule, origin, *held in rules:
        assert origin in ("first", "later", "both", "tiered", "–"), rule
        assert len(held) == 1, rule
        assert "`" in held[0] or held[0].startswith("not applicable: "), rule


def test_no_rule_stands_twice() -> None:
    rules = [row[0] for row in ROWS if not row[0].strip().startswith(("rule", "---"))]

    assert len(set(rules)) == len(rules)

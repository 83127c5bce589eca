"""The table of the rules of prompts and windows names tests and vectors that are there."""

import re
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent
TESTS = GOLDEN.parent
RULES = "".join((GOLDEN / name).read_text() for name in ("PROMPTS.md", "WINDOWS.md"))
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in RULES.splitlines() if line.startswith("|")]
VECTORS = sorted(path for folder in ("prompts", "window") for path in (GOLDEN / folder).glob("*.vectors"))


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.name)
def test_the_table_names_every_heading_of_the_vectors_and_no_other(path: Path) -> None:
    named = set(re.findall(rf"`{re.escape(path.name)}: ([^`]+)`", RULES))
    headings = set(re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE))

    assert named == headings


def test_the_tests_of_the_table_are_there() -> None:
    named = set(
        re.findall(r"`((?:unit|property|fidelity|golden|contract|e2e|security|meta|economics)/[\w/]+\.py)`", RULES)
    )

    assert len(named) >= 10
    assert {path for path in named if not (TESTS / path).exists()} == set()


def test_tests_that_are_named_without_a_file_are_those_of_windows() -> None:
    named = set(re.findall(r"`(test_\w+)`", RULES))
    there = set(re.findall(r"^def (test_\w+)", (GOLDEN / "test_windows.py").read_text(), re.MULTILINE))

    assert named <= there
    assert len(named) >= 10


def test_each_row_says_where_the_rule_comes_from_and_names_a_test_or_the_reason_for_none() -> None:
    rules = [row for row in ROWS if row[0] != "rule" and not row[0].startswith("---")]

    assert len(rules) > 60
    for rule, origin, *held in rules:
        assert origin in ("document", "code", "both", "–"), rule
        assert len(held) == 1, rule
        assert "`" in held[0] or held[0].startswith("not applicable: "), rule


def test_no_rule_stands_twice() -> None:
    rules = [row[0] for row in ROWS if row[0] != "rule" and not row[0].startswith("---")]

    assert len(set(rules)) == len(rules)

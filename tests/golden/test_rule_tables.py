"""The tables of rules name tests and vectors that are there, and every heading of the vectors stands in a table."""

import re
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent
TESTS = GOLDEN.parent
TABLES = {
    name: (GOLDEN / name).read_text() for name in ("HISTORY.md", "PANELS.md", "PROMPTS.md", "TIERED.md", "WINDOWS.md")
}
VECTORS = [
    *(path for folder in ("prompts", "window") for path in sorted((GOLDEN / folder).glob("*.vectors"))),
    *(TESTS / "unit/context" / name for name in (
        "history/rules.vectors", "history/freezing.vectors", "panels/panels.vectors", "panels/costs.vectors"
    )),
]  # fmt: skip
ORIGINS = {"A, B", "A", "B", "first", "later", "both", "tiered", "document", "code", "–"}


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.name)
def test_the_tables_name_every_heading_of_the_vectors_and_no_other(path: Path) -> None:
    named = set(re.findall(rf"`{re.escape(path.name)}: ([^`]+)`", "".join(TABLES.values())))
    assert named == set(re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", TABLES)
def test_each_rule_stands_once_with_its_origin_and_a_test_that_is_there(name: str) -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in TABLES[name].splitlines() if line[:1] == "|"
    ]
    rules = [row for row in rows if row[0] != "rule" and not row[0].startswith("---")]
    assert [row for row in rules if len(row) != 3] == []
    assert len({rule for rule, *_ in rules}) == len(rules) > 10
    for rule, origin, held in rules:
        assert origin in ORIGINS or origin.startswith(("A: ", "B: ")), rule
        assert "`" in held or "vectors" in held or held.startswith("not applicable: "), rule
    files = re.findall(
        r"`((?:unit|property|fidelity|golden|contract|e2e|security|meta|economics)/[\w/]+\.py)`", TABLES[name]
    )
    assert [path for path in files if not (TESTS / path).exists()] == []


@pytest.mark.parametrize(
    ("table", "tests"), [("TIERED.md", "test_tiered_assembly.py"), ("WINDOWS.md", "test_windows.py")]
)
def test_a_test_that_is_named_without_a_file_is_in_the_file_of_its_table(table: str, tests: str) -> None:
    there = set(re.findall(r"^def (test_\w+)", (GOLDEN / tests).read_text(), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", TABLES[table]))
    assert named == there if table == "TIERED.md" else named <= there
    assert len(named) >= 10

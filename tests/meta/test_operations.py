"""The page for operators says nothing that no drill or test shows, and every drill stands on it."""

import re
from pathlib import Path

from tests.drill.drills import DRILLS
from tests.examples import for_every
from tests.meta.test_metrics_documented import NAME, documented_name, in_the_code

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "proxy" / "app" / "settings" / "OPERATIONS.md"
TEXT = PAGE.read_text("utf-8")
# A statement of what happens is an item of a list in one of the sections on outages; it ends in its proofs.
_OUTAGES = TEXT.partition("## Outages\n")[2].partition("\n## What to watch\n")[0]
_ITEM = re.compile(r"^- .*?(?=^- |^#|^\n|\Z)", re.MULTILINE | re.DOTALL)
_PROOFS = re.compile(r"\[([^\[\]]+)\]\s*$")
_PROOF = re.compile(r"`([^`]+)`")


def statements() -> list[str]:
    return [" ".join(item.split()) for item in _ITEM.findall(_OUTAGES)]


def proofs() -> set[str]:
    return {name for part in re.findall(r"\[((?:`[^`]+`[,\s]*)+)\](?!\()", TEXT) for name in _PROOF.findall(part)}


def test_there_are_statements() -> None:
    assert len(statements()) > 20


@for_every(statements())
def test_every_statement_on_an_outage_ends_in_its_proofs(statement: str) -> None:
    assert _PROOFS.search(statement), statement


@for_every(sorted(proofs()))
def test_every_proof_is_a_drill_or_a_test(name: str) -> None:
    path, _, function = name.partition("::")
    if path in {drill.name for drill in DRILLS}:
        return
    assert (ROOT / "tests" / path).is_file(), name
    assert not function or f"def {function}(" in (ROOT / "tests" / path).read_text("utf-8"), name


def test_every_drill_stands_on_the_page() -> None:
    assert {drill.name for drill in DRILLS} - proofs() == set()


def test_every_metric_on_the_page_exists() -> None:
    assert {documented_name(name) for name in NAME.findall(TEXT)} - in_the_code().keys() == set()

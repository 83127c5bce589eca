"""The table of rules leads to code that is there."""

import re
from pathlib import Path

from tests.examples import for_every

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| .+ \| `([\w./]+\.py)`.* \| `(\w+)` \|$", (ROOT / "proxy/README.md").read_text("utf-8"), re.M)


def test_each_row_of_the_table_names_a_file_and_a_name() -> None:
    lines = [line for line in (ROOT / "proxy/README.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    assert len(ROWS) == len(lines) - 2


@for_every(ROWS)
def test_what_decides_a_rule_is_in_the_file_that_is_named(place: str, name: str) -> None:
    text = (ROOT / "proxy" / place).resolve().read_text("utf-8")
    assert re.search(rf"^ *(?:async )?def {name}\(|^class {name}\b|\braise {name}\(", text, re.M), f"{place}: {name}"

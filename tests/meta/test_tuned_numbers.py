"""The table of tuned numbers in the planner's README says what the code has."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import proxy.core

_ROW = re.compile(r"^\| `([\w.]+)\.(_?[A-Z_]+)` \| (-?[\d.]+) \| ([\w ]+) \| (.+) \|$", re.MULTILINE)


_ROWS = _ROW.findall((Path(proxy.core.__file__).parent / "planner" / "README.md").read_text())


def test_each_tuned_number_is_as_the_table_has_it() -> None:
    assert len(_ROWS) > 20
    for module, name, value, _, _ in _ROWS:
        assert getattr(import_module(f"proxy.core.{module}"), name) == float(value), f"{module}.{name}"


@pytest.mark.parametrize(
    "module",
    [
        "structured.panels.placing",
        "structured.panels.moving",
        "structured.history.compaction_gain",
        "structured.history.compaction_proposal",
    ],
)
def test_every_tuned_number_of_live_panels_and_of_the_history_is_in_the_table(module: str) -> None:
    numbers = {
        name
        for name, value in vars(import_module(f"proxy.core.{module}")).items()
        if name.isupper() and isinstance(value, float)
    }
    assert numbers
    assert numbers == {name for where, name, *_ in _ROWS if where == module}

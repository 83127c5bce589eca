"""The table of tuned numbers in the core's README says what the code has."""

import re
from importlib import import_module
from pathlib import Path

import proxy.core

_ROW = re.compile(r"^\| `([\w.]+)\.(_?[A-Z_]+)` \| (-?[\d.]+) \| ([\w ]+) \| (.+) \|$", re.MULTILINE)


def test_each_tuned_number_is_as_the_table_has_it() -> None:
    readme = (Path(proxy.core.__file__).parent / "README.md").read_text()
    rows = _ROW.findall(readme)
    assert len(rows) > 15
    for module, name, value, _, _ in rows:
        assert getattr(import_module(f"proxy.core.{module}"), name) == float(value), f"{module}.{name}"

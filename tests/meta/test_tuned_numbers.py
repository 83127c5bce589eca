"""The table of tuned numbers in the planner's README says what the code has, and names every number that is fitted."""

import ast
import re
from ast import literal_eval
from collections.abc import Iterator, Mapping
from importlib import import_module
from math import isfinite
from pathlib import Path

import pytest

import proxy
from proxy.planner.change_rates import DecayedRate

_PROXY = Path(proxy.__file__).parent
_ROW = re.compile(r"^\| `([\w.]+)\.(_?[A-Z_]+)` \| `?([^`|]+)`? \| ([\w ]+) \| (.+) \|$", re.MULTILINE)
_ROWS = _ROW.findall((_PROXY / "planner" / "NUMBERS.md").read_text())

_PACKAGES = ("planner",)
_MODULES = (
    "prompts", "context.history.compaction", "context.panels.board",
    "context.panels",
)  # fmt: skip

# These numbers bound or define something, and nothing is fitted about them.
_NOT_FITTED = {
    "planner.forecast._TAG_HAZARD",  # a tag always stands elsewhere
    "planner.forecast._MOST",  # a bound
    "planner.candidates._ROUNDING",  # an error of floating point
    "planner.keep_alive._LONGEST_S",  # a bound
    "planner.keep_alive._MARGIN_S",  # a bound
    "planner.keep_alive._MARGIN_SHARE",  # a bound
    "planner.keep_alive._OUTPUT_TOKENS",  # from the providers' lists of prices
    "prompts.VOLATILE_SHARE",  # it defines what counts as volatile
    "planner.observation._STORED",  # certainty
    "context.panels._FIRST_KNOWN_S",  # a date
    "context.panels._LAST_KNOWN_S",  # a date
    # From which difference on a provider's report is news: tolerances, and no estimates.
    *(f"planner.shadow.{name}" for name in (
        "_LESSON_S", "_PAUSE_S", "_TOLERANCE_SHARE", "_SCALE_SHARE", "_SCALE_STEP", "_SCALES", "_SHORTEST_LIFE_S",
        "_MOMENT_S", "_LATE_SHARE", "_LEAST_CHANCE",
    )),
    "planner.session_record._FINAL_S",  # a bound
    "planner.change_rates._MOST",  # a bound
    *(f"planner.diagnose.{name}" for name in ("_SHRUNK_SHARE", "_SAME_HEAD_SHARE", "_CONTINUED_SHARE")),  # definitions
}  # fmt: skip


def _modules() -> Iterator[str]:
    for package in _PACKAGES:
        for path in sorted((_PROXY / package).glob("*.py")):
            if path.stem != "__init__":
                yield f"{package.replace('/', '.')}.{path.stem}"
    yield from _MODULES


def _own_names(module: str) -> Iterator[str]:
    """The names of the constants that the module itself defines."""
    source = import_module(f"proxy.{module}").__file__ or ""
    for node in ast.parse(Path(source).read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name) and target.id.isupper())


def _is_number(value: object) -> bool:
    """Whether this is a fitted number by its type: a count, which is an integer, is mostly a bound."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return bool(value) and all(map(_is_number, value))
    return isinstance(value, DecayedRate) or (isinstance(value, float) and isfinite(value))


def _is_written(text: str, value: object) -> bool:
    if isinstance(value, DecayedRate):
        return text == repr(value)
    return bool(literal_eval(text) == (dict(value) if isinstance(value, Mapping) else value))


def test_each_tuned_number_is_as_the_table_has_it() -> None:
    assert len(_ROWS) > 60
    for module, name, text, _, _ in _ROWS:
        assert _is_written(text, getattr(import_module(f"proxy.{module}"), name)), f"{module}.{name}"


def test_the_table_has_a_number_once_and_no_row_that_is_not_read() -> None:
    names = [f"{module}.{name}" for module, name, *_ in _ROWS]
    assert len(set(names)) == len(names)
    assert len(names) == (_PROXY / "planner" / "NUMBERS.md").read_text().count("\n| `")


@pytest.mark.parametrize("module", list(_modules()))
def test_every_tuned_number_is_in_the_table(module: str) -> None:
    values = vars(import_module(f"proxy.{module}"))
    numbers = {f"{module}.{name}" for name in _own_names(module) if _is_number(values[name])}
    assert numbers - _NOT_FITTED <= {f"{where}.{name}" for where, name, *_ in _ROWS}


def test_what_is_not_fitted_exists_and_is_not_in_the_table() -> None:
    for name in _NOT_FITTED:
        module, _, constant = name.rpartition(".")
        assert constant in set(_own_names(module)), name
    assert not _NOT_FITTED & {f"{module}.{name}" for module, name, *_ in _ROWS}

"""How much is tried: everything in ``make test-all``, a sample in ``make test``."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet

_ALL_VARIABLE = "STRATIFORM_EXAMPLES"


def examples(full: int) -> int:
    """The number of Hypothesis's examples for this run, of as many as a full run tries: a tenth, and at least five."""
    return full if os.environ.get(_ALL_VARIABLE) == "all" else max(5, full // 10)


def sampled(values: Iterable[object], step: int, start: int = 0) -> list[Any]:
    """Parameters of a test: every so many of the values from ``start`` on, and those between them marked slow. A tuple
    is a row of several arguments."""
    return [value if at % step == start else _slow(value) for at, value in enumerate(values)]


def chosen(values: Iterable[object], *fast: object) -> list[Any]:
    """Parameters of a test: ``fast`` are those that stay in the short run, and the others are marked slow."""
    given = list(values)
    missing = [value for value in fast if value not in given]
    assert not missing, f"no such parameters: {missing}"
    return [value if value in fast else _slow(value) for value in given]


def _slow(value: Any) -> Any:
    if isinstance(value, ParameterSet):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.slow], id=value.id)
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)

"""How many examples and rows run: all in ``make test-all``, a sample in ``make test`` and ``make mutants``, and new
examples in ``make explore``."""

import os
from collections.abc import Callable, Iterable
from inspect import signature
from typing import Any, cast

import pytest
from _pytest.mark import ParameterSet

_VARIABLE = "STRATIFORM_EXAMPLES"
_MOST_ROW_CHARS = 500


def examples(full: int, least: int = 5) -> int:
    """The number of Hypothesis's examples for this run, if a full run tries ``full`` of them. A short run tries a
    tenth, and at least ``least``. A run that looks for new examples tries ten times as many as a full run."""
    kind = os.environ.get(_VARIABLE)
    return {"all": full, "new": 10 * full}.get(kind or "", max(least, full // 10))


def are_new() -> bool:
    """Whether Hypothesis tries new examples. Otherwise each run has the same ones, and fails only because of a
    change."""
    return os.environ.get(_VARIABLE) == "new"


def are_shrunk() -> bool:
    """Whether Hypothesis looks for the smallest example that fails. A change of the code that must fail some test
    (``make mutants``) needs no more than the first."""
    return os.environ.get(_VARIABLE) != "first"


def sampled(values: Iterable[object], step: int, start: int = 0) -> list[Any]:
    """Parameters of a test: every ``step``-th value from ``start`` on is fast, and the values between them are marked
    slow. A tuple is a row of several arguments."""
    return [value if at % step == start else _slow(value) for at, value in enumerate(values)]


def chosen(values: Iterable[object], *fast: object) -> list[Any]:
    """Parameters of a test: the values ``fast`` stay in the short run, and the others are marked slow."""
    given = list(values)
    missing = [value for value in fast if value not in given]
    assert not missing, f"no such parameters: {missing}"
    return [value if value in fast else _slow(value) for value in given]


def in_turn(rows: Iterable[Any], values: Iterable[Any]) -> list[tuple[Any, Any]]:
    """A table in which every row occurs once, with one of the values in turn. This is for many expensive rows, such as
    recorded sessions, if a fault shows in many of them."""
    found, given = list(rows), list(values)
    return [(row, given[at % len(given)]) for at, row in enumerate(found)]


def for_every(rows: Iterable[object]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """One test that takes all rows of a table, one after the other. This is for many cheap rows that are alike: if each
    were a test of its own, pytest would take longer than the tests. A failure names its row. If the test has several
    arguments, a row is a tuple."""
    given = list(rows)
    assert given, "a table without rows"
    assert not any(isinstance(row, ParameterSet) for row in given), "a row with marks is a test of its own"

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        has_several = len(signature(test).parameters) > 1

        def all_rows() -> None:
            for row in given:
                try:
                    test(*(cast(tuple[object, ...], row) if has_several else (row,)))
                except BaseException as error:
                    error.add_note(f"This is the row: {repr(row)[:_MOST_ROW_CHARS]}")
                    raise

        all_rows.__name__, all_rows.__doc__ = test.__name__, test.__doc__
        all_rows.__qualname__, all_rows.__module__ = test.__qualname__, test.__module__
        return all_rows

    return decorate


def _slow(value: Any) -> Any:
    if isinstance(value, ParameterSet):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.slow], id=value.id)
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)

"""How much is tried: everything in ``make test-all``, a sample in ``make test``."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

_ALL_VARIABLE = "STRATIFORM_EXAMPLES"


def examples(full: int) -> int:
    """The number of Hypothesis's examples for this run, of as many as a full run tries: a quarter of them."""
    return full if os.environ.get(_ALL_VARIABLE) == "all" else max(10, full // 4)


def sampled(values: Iterable[object], step: int, start: int = 0) -> list[Any]:
    """Parameters of a test: every so many of the values from ``start`` on, and those between them marked slow."""
    return [
        value if at % step == start else pytest.param(value, marks=pytest.mark.slow) for at, value in enumerate(values)
    ]

"""How many examples Hypothesis tries: all of them in ``make test-all``, a quarter in ``make test``."""

import os

_ALL_VARIABLE = "STRATIFORM_EXAMPLES"


def examples(full: int) -> int:
    """The number for this run, of as many as a full run tries."""
    return full if os.environ.get(_ALL_VARIABLE) == "all" else max(10, full // 4)

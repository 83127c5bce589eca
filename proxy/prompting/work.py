"""The work that one rendering may do, counted in steps: a step is about one node of a template, or 64 characters.

Time is never measured: a template that fails by the clock would be sent in one request of a conversation and left out
of the next one, which breaks the provider's cache.
"""

from collections.abc import Mapping
from typing import TypeVar

from jinja2.runtime import Undefined

from proxy.core.prompts.failures import RenderError

MOST_STEPS = 50_000
"""The most work of one rendering."""
MOST_CHARS = 256 << 10
"""The longest text that a template may make, on the way and in the end."""
MOST_CALLS_DEEP = 16
"""How deep calls of macros may be nested."""
STEP_CHARS = 64
"""The characters that one step reads or writes."""

T = TypeVar("T")
_MOST_ITEMS = 10_000
_MOST_DEPTH = 32


def bounded(chars: int) -> int:
    """The length of a text. Raises RenderError where it is too long."""
    if chars > MOST_CHARS:
        raise RenderError(f"the template makes a text of more than {MOST_CHARS} characters")
    return chars


class Work:
    """What one rendering has left, and the fragments that it may include."""

    __slots__ = ("calls", "fragments", "steps")

    def __init__(self, fragments: Mapping[str, str]) -> None:
        self.fragments = fragments
        self.steps = MOST_STEPS
        self.calls = 0

    def spend(self, steps: int) -> None:
        """Count steps. Raises RenderError where none are left."""
        self.steps -= steps
        if self.steps < 0:
            raise RenderError(f"the template does more than {MOST_STEPS} steps")

    def weighed(self, value: T) -> T:
        """The value, with everything in it counted. Raises RenderError where it is too large or no value of JSON."""
        level: list[object] = [value]
        for _ in range(_MOST_DEPTH):
            self.spend(len(level) + sum(map(_steps, level)))
            level = [
                inner
                for each in level
                if isinstance(each, (Mapping, list, tuple))
                for inner in (each.values() if isinstance(each, Mapping) else each)
            ]
            if not level:
                return value
        raise RenderError(f"a value is nested deeper than {_MOST_DEPTH} levels")


def _steps(value: object) -> int:
    """The steps that work on a value takes, without what it holds."""
    if isinstance(value, str):
        return bounded(len(value)) // STEP_CHARS
    if isinstance(value, (Mapping, list, tuple, range)):
        if len(value) > _MOST_ITEMS:
            raise RenderError(f"the template makes a list of more than {_MOST_ITEMS} items")
        return len(value)
    if value is None or isinstance(value, (int, float, Undefined)):
        return 0
    raise RenderError("a macro or a loop is used as if it were a value")

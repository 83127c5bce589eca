"""The work that one rendering may do, counted in steps: a step is about one node of a template, or 64 characters.

Time is never measured, so that the same template and context always have the same outcome.
"""

from collections.abc import Mapping

from jinja2.runtime import Undefined

from proxy.core.prompts.failures import RenderError

MOST_STEPS = 50_000
"""The most work of one rendering."""
MOST_CHARS = 256 << 10
"""The longest text that a template may make, on the way and in the end."""
MOST_ITEMS = 10_000
"""The longest list that a template may make."""
MOST_CALLS_DEEP = 16
"""How deep calls of macros may be nested."""

_MOST_DEPTH = 32
_STEP_CHARS = 6
_NUMBERS = (int, float)
_LISTS = (list, tuple)
_OTHERS = (int, float, Undefined)


def steps_of(chars: int) -> int:
    """The steps that work on so many characters takes."""
    return chars >> _STEP_CHARS


class Work:
    """What one rendering has left, and the fragments that it may include."""

    __slots__ = ("calls", "fragments", "steps")

    def __init__(self, fragments: Mapping[str, str], steps: int = MOST_STEPS) -> None:
        self.fragments = fragments
        self.steps = steps
        self.calls = 0

    def spend(self, steps: int) -> None:
        """Count steps. Raises RenderError where none are left."""
        self.steps -= steps
        if self.steps < 0:
            raise RenderError(f"the template does more than {MOST_STEPS} steps")

    def making(self, chars: int) -> None:
        """Count a text that will have so many characters. Raises RenderError where it is too long."""
        if chars > MOST_CHARS:
            raise RenderError(f"the template makes a text of more than {MOST_CHARS} characters")
        self.spend(1 + (chars >> _STEP_CHARS))

    def made(self, text: str) -> str:
        """The text, counted. Raises RenderError where it is too long."""
        self.making(len(text))
        return text

    def listing(self, items: int) -> None:
        """Count a list that will have so many items. Raises RenderError where it is too long."""
        if items > MOST_ITEMS:
            raise RenderError(f"the template makes a list of more than {MOST_ITEMS} items")
        self.spend(1 + items)

    def weighed(self, value: object) -> object:
        """The value, with everything in it counted: what follows looks at all of it. Raises RenderError."""
        if isinstance(value, str):
            self.spend(1 + steps_of(len(value)))
            return value
        if value is None or isinstance(value, _NUMBERS):
            self.spend(1)
            return value
        level = [value]
        for _ in range(_MOST_DEPTH):
            inner: list[object] = []
            for item in level:
                if isinstance(item, str):
                    self.spend(1 + steps_of(len(item)))
                elif isinstance(item, Mapping):
                    self.spend(1 + len(item))
                    inner += item.values()
                elif isinstance(item, _LISTS):
                    self.spend(1 + len(item))
                    inner += item
                elif isinstance(item, range):
                    self.spend(1 + len(item))
                elif not (item is None or isinstance(item, _OTHERS)):
                    raise RenderError("a macro or a loop is used as if it were a value")
            self.spend(1)
            if not inner:
                return value
            level = inner
        raise RenderError(f"a value is nested deeper than {_MOST_DEPTH} levels")

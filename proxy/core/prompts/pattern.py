"""Patterns of conditions. They are those of RE2, which looks for them in a time that grows with the text alone.

What one look may cost is bounded all the same: a short pattern such as ``.{500}c`` becomes a program of thousands of
steps, and in the worst case each character of the text takes all of them.
"""

import re2

from proxy.core.prompts.failures import ConditionError

MOST_PATTERN_CHARS = 500
MOST_PROGRAM_SIZE = 2_000
"""Of steps that a pattern may become."""
_MOST_STEPS = 1_000_000
"""Of the program, times bytes of the text: 10 ms of the processor for a text that is built to be slow."""
_MEMORY_BYTES = 256 << 10
"""Of a pattern; the library keeps the 128 patterns that were used last."""


def _options() -> "re2.Options":
    options = re2.Options()
    options.log_errors = False  # it writes to stderr, and what it writes is the pattern
    options.never_capture = True
    options.max_mem = _MEMORY_BYTES
    return options


_OPTIONS = _options()


def compiled(pattern: str, most_program_size: int = MOST_PROGRAM_SIZE) -> "re2._Regexp":
    """The pattern, ready to use. Raises ConditionError where it is none, or is too large."""
    if len(pattern) > MOST_PATTERN_CHARS:
        raise ConditionError("invalid_pattern", f"a pattern may have at most {MOST_PATTERN_CHARS} characters")
    try:
        program = re2.compile(pattern.encode("utf-8", "surrogatepass"), _OPTIONS)
    except re2.error as error:
        raise ConditionError("invalid_pattern", "the pattern is none of RE2's, or it is too large") from error
    if program.programsize > most_program_size:
        raise ConditionError("invalid_pattern", "the pattern is too large: it repeats too much")
    return program


def is_found(pattern: str, text: str) -> bool:
    """Whether the pattern is found anywhere in the text. Raises ConditionError as ``compiled``, and where the text is
    too long for this pattern."""
    program = compiled(pattern)
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) * program.programsize > _MOST_STEPS:
        raise ConditionError("too_long", "the text is too long for this pattern")
    return program.search(raw) is not None

"""How far the parts of a request are shortened, in a fixed order, and how a text is shortened.

A part is shortened only where the whole does not fit: what one part leaves of its cap, another one may have. The suffix
goes first, then the prefix, and of each the tokens beyond its cap go before those of the other within it. Then the
conversation is trimmed (``proxy.core.window.trimming``). What is still too much is taken from the summary, from the
virtual files, the last one first, from what the instruction has beyond its cap, and at last, where the profile allows
it, from the system text. The selection is never shortened.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from proxy.core.window.profile import PartCaps

Count = Callable[[str], int]
"""Counts the tokens of a text."""

PIECE_CHARS = 256
"""Texts are shortened by whole pieces, so that a smaller budget always gives a part of what a larger one gives."""


class PartName(StrEnum):
    """What can be shortened or must be counted."""

    SYSTEM = "system"
    INSTRUCTION = "instruction"
    SELECTION = "selection"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    SUMMARY = "summary"
    FILES = "virtual_files"


Sizes = Mapping[PartName, int]
"""Tokens by part; a part that there is not may be left out."""


def beside_conversation(sizes: Sizes, caps: PartCaps, overflow_tokens: int) -> tuple[dict[PartName, int], int]:
    """The tokens that the suffix and the prefix may keep where so many are too many, and how many still are."""
    suffix, prefix = PartName.SUFFIX, PartName.PREFIX
    order = [(suffix, caps.suffix), (prefix, caps.prefix), (suffix, 0), (prefix, 0)]
    return _reduced(sizes, order, overflow_tokens)


def behind_conversation(
    sizes: Sizes, caps: PartCaps, overflow_tokens: int, *, may_shorten_system: bool = False
) -> tuple[dict[PartName, int], int]:
    """What the parts may keep that are shortened only after the conversation, and how many tokens are still too many:
    more than 0 where the request does not fit."""
    order: list[tuple[PartName, int | None]] = [(PartName.SUMMARY, caps.summary), (PartName.SUMMARY, 0)]
    order += [(PartName.FILES, 0), (PartName.INSTRUCTION, caps.instruction)]
    if may_shorten_system:
        order += [(PartName.SYSTEM, caps.system), (PartName.SYSTEM, 0)]
    return _reduced(sizes, order, overflow_tokens)


def _reduced(
    sizes: Sizes, order: Sequence[tuple[PartName, int | None]], overflow_tokens: int
) -> tuple[dict[PartName, int], int]:
    """Each step takes what is too much from a part, down to the floor of the step; None: the step takes nothing."""
    kept = dict(sizes)
    left = max(0, overflow_tokens)
    for part, floor in order:
        if floor is not None and part in kept:
            taken = min(left, max(0, kept[part] - floor))
            kept[part] -= taken
            left -= taken
    return kept, left


def head(text: str, allowed_tokens: int, count: Count) -> str:
    """The beginning of a text that has at most so many tokens, in whole pieces."""
    end = tokens = 0
    while end < len(text):
        tokens += count(text[end : end + PIECE_CHARS])
        if tokens > allowed_tokens:
            break
        end += PIECE_CHARS
    return text[:end]


def tail(text: str, allowed_tokens: int, count: Count) -> str:
    """The end of a text that has at most so many tokens, in whole pieces."""
    start, tokens = len(text), 0
    while start > 0:
        before = max(0, start - PIECE_CHARS)
        tokens += count(text[before:start])
        if tokens > allowed_tokens:
            break
        start = before
    return text[start:]

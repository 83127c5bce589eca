"""Shortens the parts of a request in a fixed order.

Parts are shortened only if the whole does not fit: what one part does not use of its cap, another part may use. The
suffix is shortened first, and then the prefix. The tokens of both beyond their caps are removed before any tokens
within a cap. Then the conversation is trimmed (``proxy.core.window.trimming``). The rest is taken from the summary,
from the virtual files (the last one first), from the tokens of the instruction beyond its cap, and at last, if the
profile allows it, from the system text. The selection is never shortened.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from proxy.core.value import dataclass
from proxy.core.window.profile import PartCaps

Count = Callable[[str], int]
"""Counts the tokens of a text."""

PIECE_CHARS = 256
"""Texts that are shortened are counted in pieces of at most this many characters."""
_LEAST_STEADY_TOKENS = 128


class PartName(StrEnum):
    """The parts that can be shortened or must be counted."""

    SYSTEM = "system"
    INSTRUCTION = "instruction"
    SELECTION = "selection"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    SUMMARY = "summary"
    FILES = "virtual_files"


Sizes = Mapping[PartName, int]
"""Tokens by part. A part that does not exist may be left out."""


def beside_conversation(sizes: Sizes, caps: PartCaps, overflow_tokens: int) -> tuple[dict[PartName, int], int]:
    """The tokens that the suffix and the prefix may keep if there are ``overflow_tokens`` too many, and how many are
    still too many."""
    suffix, prefix = PartName.SUFFIX, PartName.PREFIX
    order = [(suffix, caps.suffix), (prefix, caps.prefix), (suffix, 0), (prefix, 0)]
    return _reduced(sizes, order, overflow_tokens)


def behind_conversation(
    sizes: Sizes, caps: PartCaps, overflow_tokens: int, *, may_shorten_system: bool = False
) -> tuple[dict[PartName, int], int]:
    """The tokens of the parts that are shortened only after the conversation, and how many are still too many. If this
    number is more than 0, the request does not fit."""
    order: list[tuple[PartName, int | None]] = [(PartName.SUMMARY, caps.summary), (PartName.SUMMARY, 0)]
    order += [(PartName.FILES, 0), (PartName.INSTRUCTION, caps.instruction)]
    if may_shorten_system:
        order += [(PartName.SYSTEM, caps.system), (PartName.SYSTEM, 0)]
    return _reduced(sizes, order, overflow_tokens)


def _reduced(
    sizes: Sizes, order: Sequence[tuple[PartName, int | None]], overflow_tokens: int
) -> tuple[dict[PartName, int], int]:
    """The tokens of the parts after all steps. Each step takes the excess from a part, down to the step's floor; None:
    the step takes nothing."""
    kept = dict(sizes)
    left = max(0, overflow_tokens)
    for part, floor in order:
        if floor is not None and part in kept:
            taken = min(left, max(0, kept[part] - floor))
            kept[part] -= taken
            left -= taken
    return kept, left


def head(text: str, allowed_tokens: int, count: Count) -> str:
    """The beginning of a text, with at most ``allowed_tokens``."""
    return text[: _filled(len(text), _steady(allowed_tokens), lambda at, behind: count(text[at:behind]))]


def tail(text: str, allowed_tokens: int, count: Count) -> str:
    """The end of a text, with at most ``allowed_tokens``. It begins at a fixed distance from the text's own beginning.
    So a text that grows at its end, such as the text before a cursor, is sent with the same beginning for many
    requests: when the text does not fit any more, pieces are left out until three quarters of the room are taken. A
    room that is too small for any cache is filled instead."""
    room, end = _steady(allowed_tokens), len(text)
    if room < _LEAST_STEADY_TOKENS:
        return text[end - _filled(end, room, lambda at, behind: count(text[max(0, end - behind) : end - at])) :]
    size = min(PIECE_CHARS, 1 << room.bit_length() - 3)
    pieces: deque[int] = deque()
    held = start = 0
    for at in range(0, end, size):
        newest = count(text[at : at + size])
        is_full = held + newest > room
        # The newest piece still grows, so its present size does not decide how many other pieces are left out.
        while is_full and pieces and (held * 4 > room * 3 or held + newest > room):
            held -= pieces.popleft()
            start += size
        pieces.append(newest)
        held += newest
    return text[start:]


def _steady(tokens: int) -> int:
    """The tokens, rounded down to five binary digits, so that a few tokens more or less beside a text do not move its
    end."""
    return tokens >> max(0, tokens.bit_length() - 5) << max(0, tokens.bit_length() - 5)


def _filled(chars: int, allowed_tokens: int, count: Callable[[int, int], int]) -> int:
    """The number of a text's characters that fit. It has whole pieces, and of the next piece repeated halves. A smaller
    number of tokens gives a part of what a larger number gives."""
    end, size = 0, PIECE_CHARS
    while size and end < chars:
        tokens = count(end, end + size)
        if tokens > allowed_tokens:
            size //= 2
        else:
            allowed_tokens, end = allowed_tokens - tokens, end + size
    return min(end, chars)


@dataclass(frozen=True, slots=True)
class WindowTexts:
    """The texts around parts. ``above`` has the line above each part. A summary and its line are a user message of
    their own, and ``summary_ok`` is the assistant's answer to it. All other parts are in the newest user message."""

    above: Mapping[PartName, str]
    summary_ok: str

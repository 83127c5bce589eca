"""Texts that are hard for a pattern, derived from the pattern itself, and how a routine's time grows with its input.

A pattern of Python's ``re`` takes more than linear time where what a repetition has matched is given back piece by
piece, or where the repetition is begun again at every place of a text. So every repetition has a text of its own: what
leads to it, what it repeats many times (alone, or with what stands behind it in the pattern), and something at which
all of it fails.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from tests.growth import cpu_s

# A shorter repetition is no matter of time.
_LONG = 16
_ENDINGS = ("", "\x00", "\n", "x")
# One of these is in every set that is written in a pattern, or else the first character that is.
_LETTERS = ("aA0_ -.:/=<>\"'`~#*\n([{%\u00e9\x01", " \n9.zZ-", "/_:\"0\t'", "`\ufffd=a")
_WINDOW = 7

_MEASURABLE = 3_072
_NOTHING_S = 0.2e-3
"""What takes no more processor time than this for a measurable size is not looked at any further."""
_FLOOR_S = 1.5e-3
"""A quarter counts as if it took so long at least: below that, what a routine does once outweighs its text."""
_LOOKS = 3
_RATIO = 8.0
"""Four times the input may cost so much more; quadratic, it costs sixteen times as much."""

Routine = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Pump:
    """A text of any length."""

    before: str
    body: str
    behind: str

    def text(self, size: int) -> str:
        """The text with about so many characters."""
        return self.before + self.body * max(1, size // len(self.body)) + self.behind


def superlinear(routine: Routine, pump: Pump, smallest: int, largest: int) -> str:
    """What is wrong with the processor time that a routine takes for a text that grows from ``smallest`` to ``largest``
    characters; empty where nothing is wrong. A finding is measured again: another process may have disturbed it."""
    found = ""
    for _ in range(_LOOKS):
        found = _found(routine, pump, smallest, largest)
        if not found:
            return ""
    return found


def _found(routine: Routine, pump: Pump, smallest: int, largest: int) -> str:
    # In steps of two, so that what grows exponentially is seen before it hangs; compared over two steps.
    spent: list[float] = []
    size = smallest
    while size <= largest:
        spent.append(_spent_s(routine, pump, size))
        now, quarter = spent[-1], max(spent[-3], _FLOOR_S) if len(spent) > 2 else math.inf
        if now > _RATIO * quarter:
            now = min(now, *(_spent_s(routine, pump, size) for _ in range(2)))
            if now > _RATIO * quarter:
                return f"{quarter * 1e3:.2f} ms for {size // 4} characters, {now * 1e3:.2f} ms for {size}"
        if size >= _MEASURABLE and now < _NOTHING_S:
            return ""
        size *= 2
    return ""


def _spent_s(routine: Routine, pump: Pump, size: int) -> float:
    text = pump.text(size)
    return cpu_s(lambda: routine(text), 1)


def pumps(pattern: re.Pattern[Any]) -> list[Pump]:
    """The hard texts of a pattern."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = list(
        parser.parse(source, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    )
    found: dict[Pump, None] = {}
    for variant in range(len(_LETTERS)):
        for before, body in _repetitions(tree, "", variant):
            for own in (body, before + body):
                for behind in _ENDINGS if own else ():
                    found[Pump(before, own, behind)] = None
    return list(found)


def _repetitions(nodes: Sequence[Any], before: str, variant: int) -> Iterator[tuple[str, str]]:
    """What leads to each long repetition, and what is repeated there."""
    for index, (op, argument) in enumerate(nodes):
        for inner in _inner(op, argument):
            yield from _repetitions(inner, before, variant)
        if _is_long(op, argument):
            for stop in range(index + 1, min(len(nodes), index + _WINDOW) + 1):
                own = _sample([(ops.SUBPATTERN, (None, 0, 0, argument[2]))], variant)
                yield before, own + _sample(nodes[index + 1 : stop], variant)
        before += _sample([(op, argument)], variant)


def _is_long(op: Any, argument: Any) -> bool:
    return op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT) and argument[1] >= _LONG


def _inner(op: Any, argument: Any) -> list[list[Any]]:
    """The patterns within a part of one."""
    if op is ops.SUBPATTERN:
        return [list(argument[-1])]
    if op is ops.ATOMIC_GROUP:
        return [list(argument)]
    if op in (ops.ASSERT, ops.ASSERT_NOT):
        return [list(argument[1])]
    if op is ops.BRANCH:
        return [list(branch) for branch in argument[1]]
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
        return [list(argument[2])]
    return []


def _sample(nodes: Sequence[Any], variant: int) -> str:
    """A short text that the pattern matches; each variant has other letters, and every second one what is optional."""
    found = ""
    for op, argument in nodes:
        if op is ops.LITERAL:
            found += chr(argument)
        elif op in (ops.IN, ops.NOT_LITERAL, ops.ANY):
            found += _letter(op, argument, variant)
        elif op is ops.BRANCH:
            found += _sample(list(argument[1][variant % len(argument[1])]), variant)
        elif op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
            least = argument[0] or variant % 2
            found += _sample(list(argument[2]), variant) * min(least, 2 * _LONG)
        elif op in (ops.SUBPATTERN, ops.ATOMIC_GROUP):
            found += _sample(_inner(op, argument)[0], variant)
    return found


def _letter(op: Any, argument: Any, variant: int) -> str:
    """One character that is in the set."""
    if op is ops.ANY:
        return "a"
    if op is ops.NOT_LITERAL:
        return next(letter for letter in _LETTERS[variant] + "ab" if ord(letter) != argument)
    for letter in _LETTERS[variant] + _LETTERS[0]:
        if _is_in(letter, argument):
            return letter
    op, first = next((op, value) for op, value in argument if op in (ops.LITERAL, ops.RANGE))
    return chr(first if op is ops.LITERAL else first[0])


_CATEGORIES = {
    ops.CATEGORY_DIGIT: str.isdecimal,
    ops.CATEGORY_SPACE: str.isspace,
    ops.CATEGORY_WORD: lambda letter: letter.isalnum() or letter == "_",
}
_NO_CATEGORIES = {
    ops.CATEGORY_NOT_DIGIT: ops.CATEGORY_DIGIT,
    ops.CATEGORY_NOT_SPACE: ops.CATEGORY_SPACE,
    ops.CATEGORY_NOT_WORD: ops.CATEGORY_WORD,
}


def _is_in(letter: str, members: Sequence[Any]) -> bool:
    is_negated = bool(members) and members[0][0] is ops.NEGATE
    return is_negated != any(_is_member(letter, op, value) for op, value in members if op is not ops.NEGATE)


def _is_member(letter: str, op: Any, value: Any) -> bool:
    if op is ops.LITERAL:
        return ord(letter) == value
    if op is ops.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    if value in _NO_CATEGORIES:
        return not _CATEGORIES[_NO_CATEGORIES[value]](letter)
    return bool(_CATEGORIES[value](letter))

"""Conditions: whether a prompt is composed in this context.

A field that is missing makes every condition false, except ``not_exists``. Strings, numbers, booleans and null are
never converted into each other. Whole numbers and other numbers are compared by their value. ``contradiction`` finds
conditions of one prompt that can never hold together, so that the prompt is never composed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from math import inf
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import TypeGuard

import re2

from proxy.core.prompts import ROOTS, Condition, ConditionError, Json, PromptContext, value_at


def is_number(value: Json) -> TypeGuard[int | float]:
    """Whether the value is a number. A boolean is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def equal(one: Json, other: Json) -> bool:
    """Whether the values are the same, or numbers of the same value."""
    return one == other if is_number(one) and is_number(other) else same(one, other)


def same(one: Json, other: Json) -> bool:
    """Whether the values have the same type and the same content. A whole number is not the same as a float of its
    value. The time is linear in the smaller value. The depth is that of a context, which is bounded."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return type(one) is type(other) and one == other


MOST_PATTERN_CHARS = 500
MOST_PROGRAM_SIZE = 2_000
"""The most steps that a pattern may become."""
# The most steps of the program times bytes of the text: 10 ms of processor time for a text that is made to be slow.
_MOST_STEPS = 1_000_000
# The memory of a pattern. The library keeps the 128 patterns that were used last.
_MEMORY_BYTES = 256 << 10


def _options() -> "re2.Options":
    options = re2.Options()
    options.log_errors = False  # otherwise it writes the pattern to stderr
    options.never_capture = True
    options.max_mem = _MEMORY_BYTES
    return options


_OPTIONS = _options()


def compiled(pattern: str, most_program_size: int = MOST_PROGRAM_SIZE) -> "re2._Regexp":
    """The pattern, ready to use. Raises ConditionError if it is not a pattern, or is too large."""
    if len(pattern) > MOST_PATTERN_CHARS:
        raise ConditionError("invalid_pattern", f"a pattern may have at most {MOST_PATTERN_CHARS} characters")
    try:
        program = re2.compile(pattern.encode("utf-8", "surrogatepass"), _OPTIONS)
    except re2.error as error:
        raise ConditionError("invalid_pattern", "the pattern is none of RE2's, or it is too large") from error
    if program.programsize > most_program_size:
        raise ConditionError("invalid_pattern", "the pattern is too large: it repeats too much")
    return program


Operator = Callable[[Json, Json], bool]

_EXISTS = "exists"
_NOT_EXISTS = "not_exists"


def holds(condition: Condition, context: PromptContext) -> bool:
    """Whether the condition holds. Raises ConditionError if its operator is unknown, or cannot be applied to these
    values. Neither is noticed if the field is missing."""
    is_there, found = value_at(context, condition.field)
    if condition.operator in (_EXISTS, _NOT_EXISTS):
        return is_there is (condition.operator == _EXISTS)
    return is_there and _operator(condition.operator)(found, condition.value)


def checked(condition: Condition) -> Condition:
    """The condition, after a check for mistakes that do not depend on the context. Raises ConditionError."""
    root, *names = condition.field.split(".")
    if root not in ROOTS or "" in names:
        raise ConditionError("invalid_path", f"the field must be a path that begins with one of {', '.join(ROOTS)}")
    if condition.operator in (_EXISTS, _NOT_EXISTS):
        return condition
    _operator(condition.operator)
    if condition.operator in _ORDERS and not is_number(condition.value):
        raise _not_numbers(condition.operator)
    if condition.operator == "in":
        _list(condition.value)
    if condition.operator == "matches":
        compiled(_pattern(condition.value))
    return condition


def _operator(name: str) -> Operator:
    if (operator := _OPERATORS.get(name)) is None:
        raise ConditionError("invalid_operator", f"an operator must be one of {', '.join(sorted(OPERATORS))}")
    return operator


def _compared(name: str, found: Json, value: Json) -> bool:
    if not (is_number(found) and is_number(value)):
        raise _not_numbers(name)
    return _ORDERS[name](found, value)


def _contains(found: Json, value: Json) -> bool:
    if isinstance(found, str):
        if not isinstance(value, str):
            raise ConditionError("invalid_type", "a string can only contain a string")
        return value in found
    if isinstance(found, list):
        return any(same(each, value) for each in found)
    raise ConditionError("invalid_type", "'contains' needs a field that is a string or a list")


def _matches(found: Json, value: Json) -> bool:
    pattern = _pattern(value)
    if not isinstance(found, str):
        raise ConditionError("invalid_type", "'matches' needs a field that is a string")
    program, raw = compiled(pattern), found.encode("utf-8", "surrogatepass")
    if len(raw) * program.programsize > _MOST_STEPS:
        raise ConditionError("too_long", "the text is too long for this pattern")
    return program.search(raw) is not None


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise ConditionError("invalid_type", "'in' needs a value that is a list")
    return value


def _pattern(value: Json) -> str:
    if not isinstance(value, str):
        raise ConditionError("invalid_type", "'matches' needs a value that is a pattern")
    return value


def _not_numbers(name: str) -> ConditionError:
    return ConditionError("invalid_type", f"'{name}' needs a field and a value that are numbers")


_ORDERS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType({"gt": gt, "lt": lt, "gte": ge, "lte": le})
_OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "eq": equal,
        "ne": lambda found, value: not equal(found, value),
        **{name: partial(_compared, name) for name in _ORDERS},
        "contains": _contains,
        "in": lambda found, value: any(equal(found, each) for each in _list(value)),
        "matches": _matches,
    }
)
OPERATORS = frozenset((*_OPERATORS, _EXISTS, _NOT_EXISTS))
"""The names of all operators."""


_ABOVE, _BELOW = ("gt", "gte"), ("lt", "lte")


def contradiction(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """The conditions that contradict each other: one that can never hold, or else two of them, or else all. Empty if
    the prompt may be composed. Regular expressions that exclude each other are not found, and neither are operators
    that need different types of values."""
    for few in (*combinations(conditions, 1), *combinations(conditions, 2), tuple(conditions)):
        if any(_is_impossible(field, few) for field in {condition.field for condition in few}):
            return few
    return ()


def _is_impossible(field: str, conditions: Sequence[Condition]) -> bool:
    """Whether neither any value of the field nor its absence satisfies all conditions on the field and on what is in
    it."""
    own = [condition for condition in conditions if condition.field == field]
    inner = [condition for condition in conditions if condition.field.startswith(f"{field}.")]
    if field not in ROOTS and all(condition.operator == _NOT_EXISTS for condition in (*own, *inner)):
        return False
    if any(condition.operator == _NOT_EXISTS for condition in own):
        return True
    for condition in own:  # the first one that names the values of which the field must have one
        if condition.operator == "eq" or (condition.operator == "in" and isinstance(condition.value, list)):
            values = [condition.value] if condition.operator == "eq" else _list(condition.value)
            return not any(_agrees(field, value, (*own, *inner)) for value in values)
    low = max((each.value for each in own if each.operator in _ABOVE and is_number(each.value)), default=-inf)
    high = min((each.value for each in own if each.operator in _BELOW and is_number(each.value)), default=inf)
    return low > high or (low == high and not _agrees(field, low, own))


def _agrees(field: str, value: Json, conditions: Sequence[Condition]) -> bool:
    root, *names = field.split(".")
    for name in reversed(names):
        value = {name: value}
    context = {**{name: {} for name in ROOTS}, root: value if isinstance(value, dict) else {}}
    try:
        return all(holds(condition, context) for condition in conditions)
    except ConditionError:
        return False

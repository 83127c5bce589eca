"""Finds conditions of one prompt that can never hold together, so that the prompt is never composed."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from proxy.core.prompts.conditions import holds, is_number
from proxy.core.prompts.prompt import ROOTS, Condition, ConditionError, Json, PromptContext

_ABSENT = "not_exists"
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
    if field not in ROOTS and all(condition.operator == _ABSENT for condition in (*own, *inner)):
        return False
    if any(condition.operator == _ABSENT for condition in own):
        return True
    if (values := _values(own)) is not None:
        return not any(_agrees(field, value, (*own, *inner)) for value in values)
    return _is_empty_range(field, own)


def _values(own: Sequence[Condition]) -> Sequence[Json] | None:
    """The values of which the field must have one, if a condition names them. None if no condition does."""
    for condition in own:
        if condition.operator == "eq":
            return [condition.value]
        if condition.operator == "in" and isinstance(condition.value, list):
            return condition.value
    return None


def _is_empty_range(field: str, own: Sequence[Condition]) -> bool:
    lows = [condition.value for condition in own if condition.operator in _ABOVE and is_number(condition.value)]
    highs = [condition.value for condition in own if condition.operator in _BELOW and is_number(condition.value)]
    if not lows or not highs:
        return False
    low, high = max(lows), min(highs)
    return low > high or (low == high and not _agrees(field, low, own))


def _agrees(field: str, value: Json, conditions: Sequence[Condition]) -> bool:
    context = _context(field, value)
    try:
        return all(holds(condition, context) for condition in conditions)
    except ConditionError:
        return False


def _context(field: str, value: Json) -> PromptContext:
    root, *names = field.split(".")
    for name in reversed(names):
        value = {name: value}
    inner: Mapping[str, Json] = value if isinstance(value, dict) else {}
    return {**{name: {} for name in ROOTS}, root: inner}

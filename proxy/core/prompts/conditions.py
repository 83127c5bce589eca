"""Conditions: whether a prompt is composed in this context.

A field that is missing makes a condition false, whatever the operator is, but for ``not_exists``. Strings, numbers,
booleans and null are never converted into each other; whole numbers and others are compared by their value.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from proxy.core.prompts.context import value_at
from proxy.core.prompts.equality import equal, is_number, same
from proxy.core.prompts.failures import ConditionError
from proxy.core.prompts.pattern import compiled, is_found
from proxy.core.prompts.prompt import ROOTS, Condition, Json, PromptContext

Operator = Callable[[Json, Json], bool]

_EXISTS = "exists"
_NOT_EXISTS = "not_exists"


def holds(condition: Condition, context: PromptContext) -> bool:
    """Whether the condition holds. Raises ConditionError where an operator is not known, or cannot be applied to these
    values; neither is noticed where the field is missing."""
    is_there, found = value_at(context, condition.field)
    if condition.operator == _EXISTS:
        return is_there
    if condition.operator == _NOT_EXISTS:
        return not is_there
    return is_there and _operator(condition.operator)(found, condition.value)


def checked(condition: Condition) -> Condition:
    """The condition, where nothing about it is wrong in every context. Raises ConditionError."""
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


def _ordered(name: str) -> Operator:
    order = _ORDERS[name]

    def compare(found: Json, value: Json) -> bool:
        if not (is_number(found) and is_number(value)):
            raise _not_numbers(name)
        return order(found, value)

    return compare


def _contains(found: Json, value: Json) -> bool:
    if isinstance(found, str):
        if not isinstance(value, str):
            raise ConditionError("invalid_type", "a string can only contain a string")
        return value in found
    if isinstance(found, list):
        return any(same(each, value) for each in found)
    raise ConditionError("invalid_type", "'contains' needs a field that is a string or a list")


def _in(found: Json, value: Json) -> bool:
    return any(equal(found, each) for each in _list(value))


def _matches(found: Json, value: Json) -> bool:
    pattern = _pattern(value)
    if not isinstance(found, str):
        raise ConditionError("invalid_type", "'matches' needs a field that is a string")
    return is_found(pattern, found)


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


_ORDERS: Mapping[str, Operator] = MappingProxyType(
    {
        "gt": lambda found, value: found > value,  # type: ignore[operator]  # both are numbers
        "lt": lambda found, value: found < value,  # type: ignore[operator]
        "gte": lambda found, value: found >= value,  # type: ignore[operator]
        "lte": lambda found, value: found <= value,  # type: ignore[operator]
    }
)
_OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "eq": equal,
        "ne": lambda found, value: not equal(found, value),
        **{name: _ordered(name) for name in _ORDERS},
        "contains": _contains,
        "in": _in,
        "matches": _matches,
    }
)
OPERATORS = frozenset((*_OPERATORS, _EXISTS, _NOT_EXISTS))
"""The names of all operators."""

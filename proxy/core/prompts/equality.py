"""When two values of the context are equal."""

from typing import TypeGuard

from proxy.core.prompts.prompt import Json


def is_number(value: Json) -> TypeGuard[int | float]:
    """Whether the value is a number; a boolean is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def equal(one: Json, other: Json) -> bool:
    """Whether the values are the same, or numbers of the same value."""
    return one == other if is_number(one) and is_number(other) else same(one, other)


def same(one: Json, other: Json) -> bool:
    """Whether the values have the same type and the same content; a whole number is not the same as a float of its
    value. The time is that of looking through the smaller one."""
    if not isinstance(one, (list, dict)):
        return type(one) is type(other) and one == other
    pairs: list[tuple[Json, Json]] = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return False
            pairs += ((value, right[name]) for name, value in left.items())
        elif left != right:
            return False
    return True

"""Refuses JSON in which an object has the same field twice: one reader of JSON keeps the first of them, and another one
the last.

Objects are not taken apart for that. The names in the text are counted and compared with those that were read.
"""

from msgspec import UNSET, Struct

from proxy.core.wire.separators import counted, names_in
from proxy.errors import InvalidRequest


def check_fields(text: bytes, fields: int, param: str) -> None:
    """Raises InvalidRequest where the text has more names than the ``fields`` that were read from it, all objects
    together. Names with white space before the colon may be missed. ``param`` is where the text stands."""
    if counted(text, b":") > fields and names_in(text) > fields:
        raise InvalidRequest(
            f"an object of '{param}' has the same field twice: send each field once",
            param=param,
            code="duplicate_field",
        )


def fields_in(value: Struct) -> int:
    """How many fields of a struct were sent: those that are not UNSET."""
    return sum(getattr(value, name) is not UNSET for name in value.__struct_fields__)


def names_within(value: object) -> int:
    """How many members the objects of a JSON value have together. The value must not be deep."""
    if isinstance(value, dict):
        return len(value) + sum(map(names_within, value.values()))
    return sum(map(names_within, value)) if isinstance(value, list) else 0

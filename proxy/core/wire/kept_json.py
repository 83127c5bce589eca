"""Reads a JSON value without losing anything: if a name occurs twice, both values are kept, and a number that no
machine number can hold stays a text. Pure.

If a name has several values, readers of JSON keep one of them, and not all readers keep the same one. They read a
number of a thousand digits as infinity, or as all of its digits. Code that bounds what a provider may read must see all
of it.
"""

import json

import orjson
from msgspec import Raw

from proxy.core.wire.json_body import Unreadable, text_value

_MOST_DIGITS = 18


def kept_value(raw: Raw | bytes) -> object:
    """The value. If a name occurs several times, its value is the list of all values. A number in an unusual form is a
    string. Raises Unreadable."""
    content = bytes(raw)
    if content[:1] == b'"':
        return text_value(content)
    if (value := _whole(content)) is not None:
        return value
    try:
        text = content.decode("utf-8", "surrogatepass")
        found: object = json.loads(text, object_pairs_hook=_object, parse_int=_number, parse_float=_number)
    except (ValueError, RecursionError) as error:
        raise Unreadable("nested too deeply, or not valid Unicode") from error
    return found


def _whole(content: bytes) -> object:
    """The value, if it is written again as the same bytes, because nothing was lost then. Otherwise None."""
    try:
        value = orjson.loads(content)
        return value if orjson.dumps(value) == content else None
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    every: dict[str, list[object]] = {}
    for name, value in pairs:
        every.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in every.items()}


def _number(text: str) -> object:
    """The number, if it is written in the usual form. Otherwise its text."""
    if len(text) > _MOST_DIGITS:
        return text
    value = float(text) if any(sign in text for sign in ".eE") else int(text)
    return value if repr(value) == text else text

"""JSON as the bytes that the client sent, and the refusal of what a form does not allow.

In ``json_body``, a body comes in; its members go out as slices of the same bytes, and edits are spliced into them.
Nothing is parsed and serialised again, so number formats, escapes and the order of members are kept.

This file turns the errors of a reader of typed JSON into errors that a client can act on. The reader says in a sentence
what it expected and where. Here this becomes a message in the words of JSON, a ``param`` such as
``stratiform.files[3].path``, and a code. Values are never quoted. The name of an unknown field is quoted, because a
client has misspelt it. Commas and names of members are counted, too, as a bound for what would be built if a text were
taken apart: a comma precedes each element of an array and each member of an object, except the first. Commas within
strings do not count, because every file has thousands of them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from proxy.kit.errors import InvalidRequest
from proxy.protocol.wire.json_body import PIECE_BYTES, behind_string, counted, loads, same_shape

_PLACE = re.compile(r" - at `\$([^`]*)`\Z")
_PLACE_CHARS = 300
_UNKNOWN = "Object contains unknown field `"
_REQUIRED = re.compile(r"Object missing required field `([a-z_]{1,40})`\Z")
_EXPECTED = re.compile(r"Expected `([a-z |]{1,80})`(?:, got `([a-z]{1,20})`| of length <= (\d{1,9})| of length >= 1)\Z")
_BOUND = re.compile(r"Expected `int` (<=|>=) (-?\d{1,19})\Z")
_MOST_NAME_CHARS = 64
_SEARCHED_BYTES = 8 << 20
_HALF = re.compile("[\ud800-\udfff]")
_STEP = re.compile(r"[.\[]")
_FIELD = re.compile("[a-z_]{1,40}")
_NESTED = (Struct, dict, list, tuple)
_WORDS = MappingProxyType(
    {
        "str": "a string",
        "array": "an array",
        "object": "an object",
        "bool": "a boolean",
        "int": "a number",
        "float": "a number",
        "null": "null",
    }
)


def refused(error: msgspec.ValidationError, param: str, choices: Mapping[str, tuple[str, ...]]) -> InvalidRequest:
    """The error for a client. ``param`` is the place of the read value in the request. ``choices`` are the values that
    a field may have, by the field's name."""
    text = str(error)
    if (found := _PLACE.search(text, max(0, len(text) - _PLACE_CHARS))) is not None:
        text = text[: found.start()]
        param += found[1]
    if text.startswith(_UNKNOWN):
        return unknown_field(text[len(_UNKNOWN) :].removesuffix("`"), param)
    if required := _REQUIRED.match(text):
        return InvalidRequest(
            f"'{param}' needs a field '{required[1]}'", param=f"{param}.{required[1]}", code="missing_field"
        )
    if text.startswith("Invalid enum value"):
        allowed = ", ".join(choices.get(_STEP.split(param.rstrip("[].0123456789"))[-1], ()))
        return invalid(param, f"must be one of {allowed}")
    if bound := _BOUND.match(text):
        return invalid(param, f"must be a whole number of at {'most' if bound[1] == '<=' else 'least'} {bound[2]}")
    if expected := _EXPECTED.match(text):
        return _unexpected(expected, param)
    return invalid(param, "cannot be read")


def invalid(param: str, why: str, code: str = "invalid_value") -> InvalidRequest:
    """The error for a value that a form does not allow. ``why`` follows the name of its place."""
    return InvalidRequest(f"'{param}' {why}", param=param, code=code)


def unknown_field(name: str, param: str) -> InvalidRequest:
    """The error for a field that the form does not have."""
    shown = _shown(name)
    return InvalidRequest(f"'{param}' has no field '{shown}'", param=f"{param}.{shown}", code="unknown_field")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InvalidRequest:
    """The error for the name of a profile or persona that does not exist. ``known`` are those that the client may
    choose."""
    why = f"there is no {kind} '{_shown(name)}'; there is {', '.join(sorted(known)) or 'none that may be chosen'}"
    return InvalidRequest(why, param=kind, code=f"unknown_{kind}")


def _shown(name: str) -> str:
    shown = name if len(name) <= _MOST_NAME_CHARS else name[:_MOST_NAME_CHARS] + "..."
    return "".join(c if c.isprintable() else "?" for c in shown)


def half_pair(text: bytes, param: str) -> InvalidRequest:
    """The error for a JSON text that holds half of a surrogate pair. It has the place of the first half, unless the
    text is vast."""
    found = None
    if len(text) <= _SEARCHED_BYTES:
        with suppress(ValueError, RecursionError):
            found = _place_of_half(loads(text), param)
    return invalid(found or param, "holds half of a surrogate pair, which has no form in UTF-8", "invalid_unicode")


def _place_of_half(value: object, place: str) -> str | None:
    """The place of the first half of a surrogate pair. None if there is none."""
    if isinstance(value, str):
        return place if not value.isascii() and _HALF.search(value) else None
    inner: Iterable[tuple[str, object]] = ()
    if isinstance(value, list):
        inner = ((f"{place}[{number}]", each) for number, each in enumerate(value))
    elif isinstance(value, dict):
        inner = (
            (f"{place}.{name}" if _FIELD.fullmatch(name) else f"{place}[...]", each) for name, each in value.items()
        )
        if any(_HALF.search(name) for name in value):
            return place
    return next((found for where, each in inner if (found := _place_of_half(each, where))), None)


def _unexpected(expected: re.Match[str], param: str) -> InvalidRequest:
    """The error for a value of the wrong type, or one that is too long or empty."""
    types, got, most = expected[1].split(" | "), expected[2], expected[3]
    if most is not None:
        unit, code = ("characters", "too_long") if "str" in types else ("elements", "too_many_items")
        return invalid(param, f"may have at most {most} {unit}", code)
    if got is None:
        return invalid(param, "must not be empty")
    words = _WORDS if "float" in types else _WORDS | {"int": "a whole number"}
    wanted = " or ".join(dict.fromkeys(words[each] for each in types if each in words)) or "a value of another type"
    other = f", not {_WORDS[got]}" if got in _WORDS else ""
    return invalid(param, f"must be {wanted}{other}", "invalid_type")


_BETWEEN = re.compile(rb'[^"]*+')
_AS_BACKSLASHES = bytes.maketrans(b",[{ \t\r\n", b"\\" * 7)


def names_in(raw: bytes) -> int:
    """How many names of members the JSON of an object or an array has at least: those that end with a quote and a
    colon.

    Elsewhere, a quote before a colon either begins a string, after white space or one of ``:,[{``, or it is within a
    string, after a backslash. Quotes after one of these characters are not counted. So names that end with such a
    character, or have white space before their colon, are not counted either.
    """
    names = 0
    for at in range(0, len(raw), PIECE_BYTES):
        first = min(at, 1)
        piece = raw[at - first : at + PIECE_BYTES + 1].translate(_AS_BACKSLASHES)
        names += piece.count(b'":', first) - piece.count(b'\\":') - piece.count(b':":')
    return names


def has_more_commas(raw: bytes, most: int) -> bool:
    """Whether a JSON text has more than ``most`` commas outside of its strings. The count ends with the first comma too
    many."""
    if len(raw) <= 2 * most or counted(raw, b",") <= most:  # a value follows each comma
        return False
    at, commas = 0, 0
    while 0 <= at < len(raw) and commas <= most:
        between = _BETWEEN.match(raw, at, at + PIECE_BYTES)
        assert between is not None
        commas += raw.count(b",", at, between.end())
        at = between.end()
        if raw[at : at + 1] == b'"':
            at = behind_string(raw, at)
    return commas > most


def check_fields(text: bytes, fields: int, param: str) -> None:
    """Refuse JSON in which an object has the same field twice, because one reader of JSON keeps the first value, and
    another one the last. Objects are not taken apart for that. Raises InvalidRequest if the text has more names than
    the ``fields`` that were read from it, in all objects together. Names with white space before the colon may be
    missed. ``param`` is the place of the text."""
    if counted(text, b":") > fields and names_in(text) > fields:
        raise InvalidRequest(
            f"an object of '{param}' has the same field twice: send each field once",
            param=param,
            code="duplicate_field",
        )


def check_ids(ids: Sequence[str], param: str, kind: str) -> None:
    """Refuse a list in which two elements have the same ``id``. Raises InvalidRequest."""
    if len(set(ids)) < len(ids):
        first = {each: number for number, each in reversed(list(enumerate(ids)))}
        number = next(number for number, each in enumerate(ids) if first[each] < number)
        why = f"stands twice: each {kind} has an id of its own"
        raise invalid(f"{param}[{number}].id", why, "duplicate_id")


def names_within(value: object) -> int:
    """How many members the objects of a JSON value have together. A struct counts as the object from which it was read:
    fields that are UNSET or an empty Raw were not sent. The value must not be deep."""
    if isinstance(value, Struct):
        fields = [getattr(value, name) for name in value.__struct_fields__]
        sent = [each for each in fields if each is not UNSET and (type(each) is not Raw or len(each))]
        return len(sent) + sum(names_within(each) for each in sent if isinstance(each, _NESTED))
    if isinstance(value, dict):
        return len(value) + sum(map(names_within, value.values()))
    return sum(map(names_within, value)) if isinstance(value, (list, tuple)) else 0


_Form = TypeVar("_Form")


def decoded(
    decoder: msgspec.json.Decoder[_Form], text: bytes, param: str, choices: Mapping[str, tuple[str, ...]]
) -> _Form:
    """The value of the text. ``param`` is its place in the request. ``choices`` are the values that a field may have,
    by the field's name. Raises InvalidRequest."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise refused(error, param, choices) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if same_shape(text) is not None:
            raise half_pair(text, param) from error
        raise invalid(param, "is not valid JSON", "invalid_json") from error

"""The models that a piece of JSON names, and whether it may choose one. Pure.

Providers and gateways have many members that choose a model: ``model`` in a tool, ``judge_model`` of a plugin. They are
found by what their names say, so that one that is new is found, too. Names of models are read from the few members that
the table of ``reach`` knows; whatever else may choose a model is not understood.
"""

import json
from collections.abc import Sequence

from msgspec import Raw

from proxy.core.request.wants import small_object
from proxy.core.wire.scan import folded

_WORDS = ("model", "fallback", "preset")
_BYTES = (*(word.encode() for word in _WORDS), b"\\u")
# What a client defines for the model to fill in: a parameter of a function may well be called "model".
_FUNCTION_MEMBERS = frozenset(
    {
        "type", "function", "name", "description", "input_schema", "parameters", "strict", "cache_control",
        "functionDeclarations", "function_declarations",
    }
)  # fmt: skip
_FUNCTION = Raw(b'"function"')
_FUNCTIONS = (b'"function"', b'"custom"')
_MOST_NAMES_BYTES = 64 << 10


class NotUnderstood(Exception):
    """Which models are meant cannot be told."""


def speaks_of_models(name: str) -> bool:
    """Whether a member, parameter or header of that name may choose a model."""
    plain = folded(name)
    return any(word in plain for word in _WORDS)


def may_choose(raw: bytes) -> bool:
    """Whether any member within could choose a model. Quick: it looks at the bytes alone."""
    small = raw.lower()
    return any(word in small for word in _BYTES) or not raw.isascii()


def chooses(raw: bytes) -> bool:
    """Whether some member within may choose a model: its name speaks of one, and it is no number and no flag. True also
    for what cannot be read."""
    found: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
        found.extend(name for name, value in pairs if value and isinstance(value, str | list))
        return pairs

    try:
        json.loads(raw.decode("utf-8", "surrogatepass"), object_pairs_hook=look)
    except (ValueError, RecursionError):
        return True
    return any(speaks_of_models(name) for name in found)


def names_of(raw: bytes) -> Sequence[str]:
    """The names that a member chooses whose value is a name, a list of names or of objects. A key of an object may be a
    name, too: LiteLLM writes ``{"fallbacks": [{"this": ["that"]}]}``. Raises NotUnderstood."""

    def parts(pairs: list[tuple[str, object]]) -> list[object]:
        return [part for name, value in pairs for part in ((value,) if speaks_of_models(name) else (name, value))]

    if len(raw) > _MOST_NAMES_BYTES:
        raise NotUnderstood("a member that names models is too long")
    try:
        left = [json.loads(raw.decode("utf-8", "surrogatepass"), object_pairs_hook=parts)]
    except (ValueError, RecursionError) as error:
        raise NotUnderstood("it cannot be read") from error
    names = []
    while left:
        one = left.pop()
        if isinstance(one, str):
            names.append(one)
        elif isinstance(one, list):
            left += reversed(one)
    return names


def is_plain_function(tool: Raw) -> bool:
    """Whether it is a function in one of the usual forms and nothing else, so that it need not be read."""
    members = small_object(tool)
    if members is None or not members.keys() <= _FUNCTION_MEMBERS:
        return False
    return bytes(members.get("type", _FUNCTION)) in _FUNCTIONS

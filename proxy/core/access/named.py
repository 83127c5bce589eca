"""The models that a piece of JSON names, wherever it does. Pure.

Providers and gateways have many members that choose a model: ``model`` in a tool, ``models``, ``fallbacks``,
``judge_model`` of a plugin. They are found by what their names say, so that one that is new is found, too.
"""

import json
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw

from proxy.core.wire.names import folded

_WORDS = ("model", "fallback", "preset")
_BYTES = (*(word.encode() for word in _WORDS), b"\\u")
# What a client defines for the model to fill in: a parameter of a function may well be called "model".
_DEFINITIONS = frozenset({"function", "parameters", "inputschema", "functiondeclarations"})
_OWN_FUNCTIONS = ("function", "custom")
_FUNCTION_MEMBERS = frozenset(
    {"type", "function", "name", "description", "input_schema", "parameters", "strict", "cache_control"}
)
_FUNCTION = Raw(b'"function"')
_FUNCTIONS = (b'"function"', b'"custom"')
_LEAST_MEMBER_BYTES = len(',"type":""')
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_IMAGE_TOOL = "image_generation"
_SERVER_TOOLS = "openrouter:"
# Server tools of OpenRouter that ask no further model (https://openrouter.ai/docs/guides/features/server-tools).
_PLAIN_SERVER_TOOLS = frozenset({"openrouter:web_search", "openrouter:web_fetch", "openrouter:datetime"})
_OWN_MODEL_BYTES = (_IMAGE_TOOL.encode(), _SERVER_TOOLS.encode(), b"\\u")


class NotUnderstood(Exception):
    """Which models are meant cannot be told."""


class Pairs(list[tuple[str, object]]):
    """A JSON object whose names may stand twice: all of its members, in their order."""


_PAIRS = json.JSONDecoder(object_pairs_hook=Pairs)


def speaks_of_models(name: str) -> bool:
    """Whether a member, parameter or header of that name may choose a model."""
    plain = folded(name)
    return any(word in plain for word in _WORDS)


def may_name_models(raw: bytes) -> bool:
    """Whether any member within could choose a model. Quick: it looks at the bytes alone."""
    small = raw.lower()
    return any(word in small for word in _BYTES) or not raw.isascii()


def parsed(raw: bytes) -> object:
    """The value, with objects as ``Pairs``. Raises NotUnderstood."""
    try:
        found: object = _PAIRS.decode(raw.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise NotUnderstood("it cannot be read") from error
    return found


def models_within(value: object, *, is_chosen: bool = False) -> Iterator[str]:
    """The names that some member of the value, or within it, chooses. ``is_chosen``: the value itself is that of such a
    member. Then a key of an object may be a name: LiteLLM writes ``{"fallbacks": [{"this": ["that"]}]}``."""
    if isinstance(value, str):
        if is_chosen:
            yield value
    elif isinstance(value, Pairs):
        for name, inner in value:
            chooses = speaks_of_models(name)
            if is_chosen and not chooses:
                yield name
            yield from models_within(inner, is_chosen=is_chosen or chooses)
    elif isinstance(value, list):
        for inner in value:
            yield from models_within(inner, is_chosen=is_chosen)


def is_plain_function(tool: Raw) -> bool:
    """Whether it is a function in one of the usual forms and nothing else, so that it need not be read. Where more is
    written than that takes, a member may stand twice."""
    try:
        members = _OBJECT.decode(tool)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if not members.keys() <= _FUNCTION_MEMBERS or bytes(members.get("type", _FUNCTION)) not in _FUNCTIONS:
        return False
    least = 1 + sum(len(name) + len(value) + len('"":,') for name, value in members.items())
    return len(tool) - least < _LEAST_MEMBER_BYTES


def models_of_tool(tool: object) -> Sequence[str]:
    """The names that one tool chooses."""
    if not isinstance(tool, Pairs):
        return ()
    if all(kind in _OWN_FUNCTIONS for kind in _kinds(tool)):
        # Members that a server could obey stand beside the definition, never in it.
        tool = Pairs((name, inner) for name, inner in tool if folded(name).replace("_", "") not in _DEFINITIONS)
    return list(models_within(tool))


def may_ask_unnamed(raw: bytes) -> bool:
    """Whether a tool could ask a model of its own. Quick: it looks at the bytes alone."""
    return any(name in raw for name in _OWN_MODEL_BYTES)


def asks_unnamed(tool: object) -> bool:
    """Whether a tool asks a model of its own, without which the provider takes one."""
    return isinstance(tool, Pairs) and any(_has_own_model(kind) for kind in _kinds(tool))


def _kinds(tool: Pairs) -> Sequence[object]:
    return [inner for name, inner in tool if folded(name) == "type"]


def _has_own_model(kind: object) -> bool:
    if not isinstance(kind, str):
        return False
    plain = folded(kind)
    return plain == _IMAGE_TOOL or (plain.startswith(_SERVER_TOOLS) and plain not in _PLAIN_SERVER_TOOLS)

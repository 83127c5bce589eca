"""Cuts a request body into pieces of a prompt: bodies of chat completions, Anthropic's messages, and OpenAI's
Responses.

The bodies are parsed JSON of any shape. A value that is not understood is one opaque piece. Cache markers are no part
of a piece. Each part of a message is a piece, as a provider's cache counts it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import orjson
from msgspec.structs import replace

from proxy.core.caches.prompt import Life
from proxy.core.diagnosis.record import SYSTEM, TOOL, TURN, PromptPiece, PromptRecord, lines_of
from proxy.core.digest import digest
from proxy.core.providers import DEFAULTS
from proxy.core.request.message import MARK_KEYS, SYSTEM_ROLES
from proxy.core.request.tokens import MESSAGE_OVERHEAD_TOKENS, Encode
from proxy.core.wire.json_body import TooMany

_CONTENT: Final = frozenset({"messages", "tools", "system", "input", "instructions", "model", "stream"})
_PARENTS: Final = ("previous_response_id", "thread")
# The role of the speaker of an item that has no role itself, by its type.
_ROLES: Final[Mapping[str, str]] = {
    "tool_result": "tool",
    "function_call_output": "tool",
    "custom_tool_call_output": "tool",
    "local_shell_call_output": "tool",
    "tool_use": "assistant",
    "reasoning": "assistant",
    "function_call": "assistant",
    "custom_tool_call": "assistant",
}
_BESIDE: Final = frozenset({"content", "role", *MARK_KEYS})
_TEXTS: Final = frozenset({"text", "input_text", "output_text"})


Told = tuple[PromptPiece, str]
"""A piece and its text; the text is empty if the piece is no text."""


def wire_record(
    body: Mapping[str, object],
    count: Encode,
    *,
    at: float,
    route: str = "",
    on_text: Callable[[PromptPiece, str], None] | None = None,
    most: int | None = None,
) -> PromptRecord:
    """The record of a request body. ``count`` counts tokens, ``at`` is in seconds. ``on_text`` is called with each
    piece that is a text, and with the text. If the provider keeps the conversation (``is_continuation``), the record
    holds only the pieces that are sent (``PromptRecord.continuing``). Raises TooMany if there are more than ``most``
    pieces."""
    found: list[PromptPiece] = []
    for piece, text in chain(_tools(body.get("tools"), count), _system(body, count), _turns(body, count)):
        if len(found) == most:
            raise TooMany
        found.append(piece)
        if text and on_text is not None:
            on_text(piece, text)
    if body.get("cache_control") and found:
        # Anthropic's automatic marker stands for one on the last block.
        found[-1] = replace(found[-1], mark=_mark(body))
    parameters = dict(_parameters(body))
    return PromptRecord(at, str(body.get("model") or ""), route, parameters=parameters).holding(found)


def is_continuation(body: Mapping[str, object]) -> bool:
    """Whether the provider keeps the conversation, so that the body holds only its new part."""
    thread = body.get("thread")
    return bool(body.get("previous_response_id")) or (isinstance(thread, Mapping) and thread.get("type") == "continue")


def _parameters(body: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
    for name, value in body.items():
        if name not in _CONTENT and name not in _PARENTS and value is not None and value != DEFAULTS.get(name):
            yield name, digest(_bytes(value))


def _tools(tools: object, count: Encode) -> Iterator[Told]:
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        named = function if isinstance(function, Mapping) else tool
        name = named.get("name") or named.get("type") if isinstance(named, Mapping) else None
        yield _piece(tool, str(name or "tool"), TOOL, place, count)


def _system(body: Mapping[str, object], count: Encode) -> Iterator[Told]:
    """Instructions that stand beside the messages."""
    for name in ("system", "instructions"):
        for place, part in enumerate(_parts(body.get(name))):
            yield _piece(part, SYSTEM, SYSTEM, place, count)


def _turns(body: Mapping[str, object], count: Encode) -> Iterator[Told]:
    messages = body.get("messages") if "messages" in body else body.get("input")
    is_lead = True
    for place, message in enumerate(messages if isinstance(messages, list) else _parts(messages)):
        if not isinstance(message, Mapping) or "role" not in message:
            is_lead = False
            yield _piece(message, _role(message, "user"), TURN, place, count)
            continue
        role = str(message.get("role"))
        is_lead = is_lead and role in SYSTEM_ROLES
        kind, extra = (SYSTEM if is_lead else TURN), MESSAGE_OVERHEAD_TOKENS
        others = {name: value for name, value in message.items() if name not in _BESIDE and value}
        parts = [*_parts(message.get("content")), *([others] if others else [])]
        mark = _mark(message)
        for number, part in enumerate(parts, 1):
            key = SYSTEM if kind == SYSTEM else _role(part, role)
            piece, text = _piece(part, key, kind, place, count, role)
            mine = mark if number == len(parts) else None
            yield replace(piece, tokens=piece.tokens + extra, mark=piece.mark or mine), text
            extra = 0


def _parts(content: object) -> Sequence[object]:
    """The parts of a content. A plain text is one part, because a provider renders it so."""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []


def _role(part: object, role: str) -> str:
    found = part.get("type") if isinstance(part, Mapping) else None
    return _ROLES.get(found, role) if isinstance(found, str) else role


def _mark(value: Mapping[str, object]) -> Life | None:
    """The life of the cache marker on a value; None if there is no marker."""
    for mark in filter(None, map(value.get, MARK_KEYS)):
        return "1h" if isinstance(mark, Mapping) and mark.get("ttl") == "1h" else "5m"
    return None


def _piece(part: object, key: str, kind: str, place: int, count: Encode, role: str = "") -> Told:
    bare, text, mark = part, None, None
    if isinstance(part, Mapping):
        mark = _mark(part)
        bare = {name: value for name, value in part.items() if name not in MARK_KEYS}
        found = part.get("text")
        text = found if part.get("type") in _TEXTS and isinstance(found, str) else None
    content = _bytes(bare)
    tokens = count(content.decode("utf-8", "replace") if text is None else text)
    lines = lines_of(text) if text is not None and kind == SYSTEM else ()
    return PromptPiece(key, kind, digest(role.encode(), content), tokens, place, lines, mark), text or ""


def _bytes(value: object) -> bytes:
    """The value as JSON. Half of a surrogate pair, which JSON may hold, is written as an escape."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        return repr(value).encode("utf-8", "backslashreplace")

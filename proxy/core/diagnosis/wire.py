"""A request body as pieces of a prompt: of chat completions, Anthropic's messages, and OpenAI's Responses.

The bodies are taken as parsed JSON of any shape: what is not understood is one opaque piece. Cache markers are no part
of a piece. Each part of a message is a piece, as a provider's cache counts it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import orjson

from proxy.core.diagnosis.record import SYSTEM, TOOL, TURN, PromptPiece, PromptRecord, lines_of, record_of
from proxy.core.digest import digest
from proxy.core.providers import DEFAULTS
from proxy.core.request.message import MARK_KEYS, SYSTEM_ROLES
from proxy.core.request.tokens import MESSAGE_OVERHEAD_TOKENS, Encode

_CONTENT: Final = frozenset({"messages", "tools", "system", "input", "instructions", "model", "stream"})
_PARENTS: Final = ("previous_response_id", "thread")
# Whose words an item is that has no role.
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
"""A piece, and the text that it is; empty where it is none."""


def wire_record(
    body: Mapping[str, object],
    count: Encode,
    *,
    at: float,
    route: str = "",
    stored: int = -1,
    on_text: Callable[[PromptPiece, str], None] | None = None,
) -> PromptRecord:
    """The record of a request body. ``count`` counts tokens, ``at`` is in seconds. ``on_text`` sees each piece
    that is a text, and the text."""
    found: list[PromptPiece] = []
    for piece, text in (*_tools(body.get("tools"), count), *_system(body, count), *_turns(body, count)):
        found.append(piece)
        if text and on_text is not None:
            on_text(piece, text)
    if body.get("cache_control") and found:
        # Anthropic's automatic marker stands for one on the last block.
        found[-1] = replace(found[-1], is_marked=True)
    return record_of(
        found,
        at=at,
        model=str(body.get("model") or ""),
        route=route,
        parameters=dict(_parameters(body)),
        stored=stored,
    )


def continued(record: PromptRecord, parent: PromptRecord) -> PromptRecord:
    """The whole prompt of a request that continues another one where the provider keeps the conversation
    (``previous_response_id``, ``thread``): the turns of the other one stand in front of those that are sent."""
    known, sent = parent.pieces(), record.pieces()
    heads = {piece.kind for piece in sent}
    # A thread's tools and instructions need not be sent again.
    fronts = [piece for kind in (TOOL, SYSTEM) for piece in (sent if kind in heads else known) if piece.kind == kind]
    turns = [piece for part in (known, sent) for piece in part if piece.kind not in (TOOL, SYSTEM)]
    return record_of(
        [*fronts, *turns],
        at=record.at,
        model=record.model,
        route=record.route,
        parameters=record.parameters,
        stored=record.stored,
    )


def is_continuation(body: Mapping[str, object]) -> bool:
    """Whether the provider keeps the conversation, so that the body holds only what is new in it."""
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
        content = body.get(name)
        for place, part in enumerate(_parts(content)):
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
        is_marked = any(name in message for name in MARK_KEYS)
        for number, part in enumerate(parts, 1):
            key = SYSTEM if kind == SYSTEM else _role(part, role)
            piece, text = _piece(part, key, kind, place, count, role)
            is_last = is_marked and number == len(parts)
            yield replace(piece, tokens=piece.tokens + extra, is_marked=piece.is_marked or is_last), text
            extra = 0


def _parts(content: object) -> Sequence[object]:
    """The parts of a content; a plain text is one part, as a provider renders it."""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []


def _role(part: object, role: str) -> str:
    found = part.get("type") if isinstance(part, Mapping) else None
    return _ROLES.get(found, role) if isinstance(found, str) else role


def _piece(part: object, key: str, kind: str, place: int, count: Encode, role: str = "") -> Told:
    bare, text, is_marked = part, None, False
    if isinstance(part, Mapping):
        is_marked = any(part.get(name) for name in MARK_KEYS)
        bare = {name: value for name, value in part.items() if name not in MARK_KEYS}
        found = part.get("text")
        text = found if part.get("type") in _TEXTS and isinstance(found, str) else None
    content = _bytes(bare)
    tokens = count(content.decode("utf-8", "replace") if text is None else text)
    lines = lines_of(text) if text is not None and kind == SYSTEM else ()
    return PromptPiece(key, kind, digest(role.encode(), content), tokens, place, lines, is_marked), text or ""


def _bytes(value: object) -> bytes:
    """The value as JSON. Half of a surrogate pair, which JSON may hold, is written as an escape."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        return repr(value).encode("utf-8", "backslashreplace")

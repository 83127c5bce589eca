"""Makes the record of a sent prompt, from its layout or from a request body.

The pieces that a layout shares with the previous one are taken over, so that a request that appends only costs time for
its new pieces.

Bodies may be those of chat completions, of Anthropic's messages and of OpenAI's Responses: parsed JSON of any shape. A
value that is not understood is one opaque piece. Cache markers are no part of a piece. Each part of a message is a
piece, as a provider's cache counts it.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from proxy.core.caches.cache import Life
from proxy.core.diagnosis.record import SYSTEM, TOOL, TURN, LineSizes, PromptPiece, PromptRecord, lines_of
from proxy.core.digest import digest
from proxy.core.layout.layout import Layout, PrefixSettings
from proxy.core.providers import DEFAULTS
from proxy.core.recognition import MessageKind, PieceKind
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import MARK_KEYS, SYSTEM_ROLES, Message
from proxy.core.request.tokens import MESSAGE_OVERHEAD_TOKENS, Encode
from proxy.core.request.transcript import texts_of
from proxy.core.wire.json_body import TooMany

_CONTEXT = (MessageKind.CONTEXT, MessageKind.CANDIDATE)


class SentPrompt(Struct, frozen=True):
    """A record, and the layout from which it was made: the settings of its prefix, the digests of its elements, and the
    number of pieces up to the end of each element."""

    record: PromptRecord = field(default_factory=PromptRecord)
    seed: PrefixSettings | None = None
    digests: list[bytes] = field(default_factory=list)
    counts: "array[int]" = field(default_factory=lambda: array("I"))


def sent_prompt(layout: Layout, messages: Sequence[Message], head: PromptRecord, before: SentPrompt) -> SentPrompt:
    """The record of a layout of these messages. ``head`` holds everything except the pieces, and ``before`` is the
    session's last record."""
    shared = len(before.digests)
    if layout.digests[:shared] != before.digests:
        pairs = enumerate(zip(before.digests, layout.digests, strict=False))
        shared = next((i for i, (mine, other) in pairs if mine != other), len(layout.digests))
    pieces: list[PromptPiece] = []
    counts = before.counts[:shared]
    count = counts[-1] if counts else 0
    for element in layout.elements[shared:]:
        pieces += _pieces(element, messages)
        counts.append(count + len(pieces))
    return SentPrompt(head.holding(pieces, before.record, count), layout.seed, layout.digests, counts)


def _pieces(element: Element, messages: Sequence[Message]) -> Iterator[PromptPiece]:
    """The pieces of an element: each tool is one, and each file of a context message."""
    if element.kind is ElementKind.TOOLS:
        names = element.lead.split("\n")
        for part, name in zip(element.parts, names, strict=True):
            yield PromptPiece(name, TOOL, part.digest, part.tokens, part.index)
        return
    place, item, message = element.message, element.item, messages[element.message]
    key, kind, lines = element.role, TURN, LineSizes()
    if element.kind is ElementKind.TAG:
        key, kind = element.key, PieceKind.VOLATILE
    elif item is not None:
        key, kind = item.key, item.kind
    elif element.role in SYSTEM_ROLES:
        key, kind = SYSTEM, SYSTEM if element.key == SYSTEM else TURN
        lines = lines_of("\n".join(texts_of(message) or ())) if element.kind is ElementKind.MESSAGE else ()
    elif message.recognition is not None and message.recognition.form in _CONTEXT and message.cut_digests:
        yield from _cuts(element, message, messages[element.ack])
        return
    yield PromptPiece(key, kind, element.digest, element.tokens, place, lines)


def _cuts(element: Element, message: Message, ack: Message) -> Iterator[PromptPiece]:
    """The pieces of a recognised message, and its acknowledgement if that belongs to the element. The tokens of the
    message are divided by the lengths of the texts."""
    assert message.recognition is not None
    cuts = message.recognition.cuts
    chars, before = max(1, cuts[-1].end), 0
    for cut, own in zip(cuts, message.cut_digests, strict=True):
        end = message.tokens * cut.end // chars
        yield PromptPiece(cut.key, cut.kind, own, end - before, element.message)
        before = end
    if element.kind is ElementKind.WHOLE:
        yield PromptPiece(ack.role, TURN, ack.digest, ack.tokens, element.ack)


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

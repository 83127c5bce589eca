"""Writes a layout as JSON, with the client's own bytes wherever nothing must change.

A marker is put where every provider that litellm supports honours it: on a content part of system and user messages
(for Claude also of assistant messages), on the message for role tool, and on the last tool. It is never put on thinking
or empty text.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import orjson
from msgspec import Raw

from proxy.core.caches.prompt import Life
from proxy.core.layout.layout import Layout
from proxy.core.layout.notices import wire_order
from proxy.core.providers import Dialect
from proxy.core.recognition.fixed_texts import PART_ACKNOWLEDGEMENT
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import MARK_KEYS, Message
from proxy.core.request.texts import kept_parts
from proxy.core.request.tools import bare_tool
from proxy.core.wire.json_body import Members, elements, join_members, members_of
from proxy.core.wire.surrogates import text_json

_MESSAGE = ElementKind.MESSAGE
# These elements are further parts of the system message in front of them.
_FURTHER = (ElementKind.DOCUMENT, ElementKind.REST)
_ACKNOWLEDGEMENT = orjson.dumps({"role": "assistant", "content": PART_ACKNOWLEDGEMENT})


def mark_json(dialect: Dialect, life: Life) -> tuple[str, bytes]:
    """A marker as a JSON member: its name and its value."""
    if dialect is Dialect.BREAKPOINT:
        return "prompt_cache_breakpoint", b'{"mode":"explicit"}'
    return "cache_control", b'{"type":"ephemeral","ttl":"1h"}' if life == "1h" else b'{"type":"ephemeral"}'


def render_messages(
    layout: Layout, messages: Sequence[Message], marks: Mapping[int, Life], dialect: Dialect, *, keep_own: bool = False
) -> list[bytes]:
    """The messages with exactly these markers. With ``keep_own`` they are added to the client's own markers. A message
    that is as it came is the client's own bytes object."""
    if keep_own:
        return _with_added(layout, messages, marks, dialect)
    written: list[bytes] = []
    marked = _by_element(layout, marks)
    for index in wire_order(layout.elements):
        element = layout.elements[index]
        kind = element.kind
        if kind is _MESSAGE:
            message = messages[element.message]
            own = marked.get(index)
            written.append(write_message(message, own or {}, dialect) if own or message.has_marks else message.raw)
        elif kind is ElementKind.SYSTEM:
            written.append(_system(layout, index, messages[element.message], marks, dialect))
        elif kind is ElementKind.TAG:
            written.append(b'{"role":"user","content":' + text_json(element.lead) + b"}")
        elif kind not in (ElementKind.TOOLS, *_FURTHER):
            written += _context(element, messages, marked.get(index, {}), dialect)
    return written


def patches(
    layout: Layout,
    messages: Sequence[Message],
    marks: Mapping[int, Life],
    dialect: Dialect,
    marked: Iterable[int],
    *,
    keep_own: bool = False,
) -> dict[int, bytes]:
    """For a layout in the client's order: the messages that are not written as they came, by their index. ``marked``
    are the indices of the messages with the client's markers."""
    changed: dict[int, Mapping[int, Life]] = {} if keep_own else {index: {} for index in marked}
    for index, own in _by_element(layout, marks).items():
        element = layout.elements[index]
        if element.kind in (_MESSAGE, ElementKind.WHOLE):
            changed[element.message] = own
    return {
        index: write_message(messages[index], changed[index], dialect, strip=not keep_own) for index in sorted(changed)
    }


def _context(
    element: Element, messages: Sequence[Message], own: Mapping[int, Life], dialect: Dialect
) -> tuple[bytes, bytes]:
    """A context message (the whole message or a part of it) and its acknowledgement."""
    message = messages[element.message]
    if element.kind is ElementKind.WHOLE:
        return write_message(message, own, dialect), write_message(messages[element.ack], {}, dialect)
    part = _part(element, message, own.get(0), dialect)
    return part, _ACKNOWLEDGEMENT if element.kind is ElementKind.PART else write_message(
        messages[element.ack], {}, dialect
    )


def _by_element(layout: Layout, marks: Mapping[int, Life]) -> dict[int, dict[int, Life]]:
    """Markers by element, and by position within it."""
    found: dict[int, dict[int, Life]] = {}
    for position, life in marks.items():
        index = bisect_right(layout.starts, position) - 1
        found.setdefault(index, {})[position - layout.starts[index]] = life
    return found


def _with_added(
    layout: Layout, messages: Sequence[Message], marks: Mapping[int, Life], dialect: Dialect
) -> list[bytes]:
    """The messages in the client's order, with every marker of the client in its place."""
    changed = patches(layout, messages, marks, dialect, (), keep_own=True)
    return [changed.get(index, message.raw) for index, message in enumerate(messages)]


def render_tools(raw: bytes, life: Life | None, dialect: Dialect, *, keep_own: bool = False) -> bytes:
    """The JSON array of tools, with a marker on the last one."""
    is_marked = not keep_own and any(f'"{key}"'.encode() in raw for key in MARK_KEYS)
    if life is None and not is_marked:
        return raw
    tools = [bytes(tool) for tool in elements(raw)]
    written = [bare_tool(tool) for tool in tools] if is_marked else list(tools)
    if not written or (life is None and written == tools):
        return raw
    if life is not None and dialect is Dialect.CACHE_CONTROL:
        written[-1] = _with_mark(written[-1], life, dialect)
    return b"[" + b",".join(written) + b"]"


def _system(layout: Layout, index: int, message: Message, marks: Mapping[int, Life], dialect: Dialect) -> bytes:
    """A system message without its volatile lines, and with its documents as further parts behind the fixed text."""
    elements_here = [layout.elements[index]]
    for element in layout.elements[index + 1 :]:
        if element.kind not in _FURTHER:
            break
        elements_here.append(element)
    if len(message.parts) > 1:
        return _system_parts(layout, index, elements_here, message, marks, dialect)
    texts = [e.item.text if e.item is not None else e.lead for e in elements_here]
    lives = [marks.get(layout.starts[index + offset]) for offset in range(len(texts))]
    if len(texts) == 1 and lives[0] is None and not message.is_list:
        return _with_content(members_of(message.raw), text_json(texts[0]))
    parts = [_text_part(text, life, dialect) for text, life in zip(texts, lives, strict=True)]
    return _with_content(members_of(message.raw), b"[" + b",".join(parts) + b"]")


def _system_parts(
    layout: Layout, index: int, own: Sequence[Element], message: Message, marks: Mapping[int, Life], dialect: Dialect
) -> bytes:
    """The same for a message whose content is a list: parts that stay whole are sent in the client's own bytes."""
    members = members_of(message.raw)
    raws, left = elements(members["content"]), {kept.index: kept.text for kept in kept_parts(message)}
    written: list[bytes] = []
    for position, part in enumerate((part for element in own for part in element.parts), layout.starts[index]):
        life = marks.get(position)
        if part.digest != message.parts[part.index].digest:
            written.append(_text_part(left[part.index], life, dialect))
            continue
        raw = _without_mark(raws[part.index])
        written.append(raw if life is None else _with_mark(raw, life, dialect))
    return _with_content(members, b"[" + b",".join(written) + b"]")


def _text_part(text: str, life: Life | None, dialect: Dialect) -> bytes:
    mark = b""
    if life is not None:
        key, control = mark_json(dialect, life)
        mark = b"," + orjson.dumps(key) + b":" + control
    return b'{"type":"text","text":' + text_json(text) + mark + b"}"


def write_message(message: Message, marks: Mapping[int, Life], dialect: Dialect, *, strip: bool = True) -> bytes:
    """The message with these markers, by the index of their part. With ``strip`` it has no other markers."""
    if not marks and not message.has_marks:
        return message.raw
    members = members_of(message.raw)
    changes: dict[str, bytes | None] = {key: None for key in MARK_KEYS if key in members} if strip else {}
    content = members.get("content")
    if message.role == "tool":
        # A result is one position, however many parts it has: a marker stands on the message, or on its last part.
        inside: dict[int, Life] = {}
        if marks and dialect is Dialect.CACHE_CONTROL:
            key, mark = mark_json(dialect, next(iter(marks.values())))
            changes[key] = mark
        elif marks:
            inside[-1] = next(iter(marks.values()))
        if content is not None and (inside or (strip and message.has_marks and message.is_list)):
            changes["content"] = _marked_content(bytes(content), message, inside, dialect, strip)
    elif content is not None and (marks or message.is_list):
        changes["content"] = _marked_content(bytes(content), message, marks, dialect, strip)
    if strip and message.has_marks and bytes(members.get("tool_calls", b"")).startswith(b"["):
        calls = elements(members["tool_calls"])
        if any(_has_mark(members_of(call)) for call in calls):
            changes["tool_calls"] = b"[" + b",".join(_without_mark(call) for call in calls) + b"]"
    return join_members(members, changes) if changes else message.raw


def _marked_content(
    content: bytes, message: Message, marks: Mapping[int, Life], dialect: Dialect, strip: bool
) -> bytes:
    """Content with the given markers, and with no others if ``strip`` is set. ``marks`` maps a part's place to a
    life."""
    if not content.startswith(b"["):
        if not marks:
            return content
        key, mark = mark_json(dialect, next(iter(marks.values())))
        return b"".join((b'[{"type":"text","text":', content, b",", orjson.dumps(key), b":", mark, b"}]"))
    written = [_without_mark(raw) if strip else bytes(raw) for raw in elements(content)]
    for place, life in marks.items():
        written[place] = _with_mark(written[place], life, dialect)
    return b"[" + b",".join(written) + b"]"


def _part(element: Element, message: Message, life: Life | None, dialect: Dialect) -> bytes:
    """A composed part. The last part keeps the other members of the client's message and its form (string or list)."""
    assert element.item is not None
    text = element.lead + element.item.text
    as_list = life is not None or (message.is_list and element.kind is ElementKind.LAST_PART)
    content = b"[" + _text_part(text, life, dialect) + b"]" if as_list else text_json(text)
    if element.kind is ElementKind.PART:
        return b'{"role":"user","content":' + content + b"}"
    if message.is_plain:
        return b'{"role":' + text_json(message.role) + b',"content":' + content + b"}"
    return _with_content(members_of(message.raw), content)


def _with_content(members: Members, content: bytes) -> bytes:
    """A message with other content and without markers."""
    return join_members(members, {**dict.fromkeys(MARK_KEYS), "content": content})


def _has_mark(members: Members) -> bool:
    return any(key in members for key in MARK_KEYS)


def _with_mark(raw: bytes, life: Life, dialect: Dialect) -> bytes:
    """A part or a tool with this marker."""
    key, mark = mark_json(dialect, life)
    return join_members(members_of(raw), {key: mark})


def _without_mark(raw: Raw | bytes) -> bytes:
    members = members_of(raw)
    if not _has_mark(members):
        return bytes(raw)
    return join_members(members, {key: None for key in MARK_KEYS if key in members})

"""Writes a layout as JSON, with the client's own bytes wherever nothing must change.

A marker is put where every provider that litellm supports honours it: on a content part of system and user messages
(for Claude also of assistant messages), on the message for role tool, and on the last tool. It is never put on thinking
or empty text.

System messages behind the leading ones are notices. Some upstreams move every system message to the front; newer ones
keep its place. A layout has the order in which the provider reads it. If that is not the order of the messages
(``CacheProfile.hoists_system``), the notices stand behind the head with the key ``NOTICE``, and ``wire_order`` puts
them back where the client has them. A notice may carry a marker in either case. If it keeps its place, everything in
front of it is read again. If it is moved to the front, all notices up to it are read again. The text behind hoisted
notices becomes another prompt as soon as there is one more notice.

At the end stands the beginning of a request that is bound: everything in front of signed thinking is written as it was
laid out before.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from math import inf

import orjson
from msgspec import Raw
from msgspec.structs import replace as with_members

from proxy.planner.change_rates import DecayedRate
from proxy.planner.layout import NOTICE, Layout, PrefixSettings, is_message
from proxy.planner.orders import RequestElements, moved_elements, request_elements, split_layout
from proxy.protocol.caches import Life, PromptPositions
from proxy.protocol.providers import Dialect
from proxy.protocol.recognition import PART_ACKNOWLEDGEMENT
from proxy.protocol.request.element import Element, ElementKind, bare_tool
from proxy.protocol.request.message import MARK_KEYS, SYSTEM_ROLES, Message
from proxy.protocol.request.tokens import TokenCounter
from proxy.protocol.request.transcript import Transcript, kept_parts, recognise_request
from proxy.protocol.wire.json_body import Members, elements, join_members, members_of, text_json

# The conversation itself shows how often a notice joins it. That record weighs as much as so many requests.
_SHOWN_WEIGHT = 2.0


def wire_order(elements: Sequence[Element]) -> Sequence[int]:
    """The indices of a layout's elements in the order of the messages. Each notice stands behind the last element that
    the client has in front of it, and in front of the turn that follows it."""
    notices = [index for index, element in enumerate(elements) if element.key == NOTICE]
    if not notices:
        return range(len(elements))
    others = [index for index, element in enumerate(elements) if element.key != NOTICE]
    turns = [place for place, index in enumerate(others) if elements[index].key == "turn"]
    messages = [elements[others[place]].message for place in turns]
    starts, ends = [0, *turns], [*turns, len(others)]
    # For each element, the least message index from this element to the end of its stretch between two turns.
    least = [inf] * len(others)
    for start, end in zip(starts, ends, strict=True):
        lowest = inf
        for place in range(end - 1, start - 1, -1):
            message = elements[others[place]].message
            lowest = least[place] = min(lowest, message) if message >= 0 else lowest
    is_tools = int(elements[0].kind is ElementKind.TOOLS)
    slots: dict[int, list[int]] = {}
    for index in notices:
        message = elements[index].message
        stretch = bisect_right(messages, message)
        slot = bisect_left(least, message, starts[stretch], ends[stretch])
        slots.setdefault(max(slot, is_tools), []).append(index)
    found: list[int] = []
    for place, index in enumerate(others):
        found += slots.get(place, ())
        found.append(index)
    return found + slots.get(len(others), [])


def elsewhere(layout: Layout, marks: Mapping[int, Life]) -> PromptPositions | None:
    """The same request as it is read if its notices are put elsewhere than in the layout: at the front, or where the
    client has them. None if the prompt stays the same."""
    elements = layout.elements
    order: Sequence[int]
    if any(element.key == NOTICE for element in elements):
        order = wire_order(elements)
    else:
        behind = [is_message(element) for element in elements]
        order = [*(i for i, is_behind in enumerate(behind) if not is_behind), *compress(range(len(behind)), behind)]
    if list(order) == list(range(len(elements))):
        return None
    other = Layout(layout.seed, [elements[index] for index in order], layout)
    starts = {index: other.starts[number] for number, index in enumerate(order)}
    moved: dict[int, Life] = {}
    for position, life in marks.items():
        index = bisect_right(layout.starts, position) - 1
        moved[starts[index] + position - layout.starts[index]] = life
    return other.prompt(moved)


def are_ordered(layout: Layout, marks: Mapping[int, Life]) -> bool:
    """Whether no one-hour marker stands behind a five-minute marker, wherever the notices are put. A provider refuses
    such an order."""
    if len(set(marks.values())) < 2:
        return True
    other = elsewhere(layout, marks)
    readings = (marks,) if other is None else (marks, other.marks)
    return all(lives == sorted(lives) for lives in ([one[p] for p in sorted(one)] for one in readings))


def off_notices(layout: Layout, marks: Mapping[int, Life]) -> dict[int, Life]:
    """The markers that do not stand on a notice."""
    owners = {position: layout.owner(position) for position in marks}
    return {p: marks[p] for p, owner in owners.items() if owner.role not in SYSTEM_ROLES or owner.key == "system"}


def stays(messages: Sequence[Message], notices: Sequence[int], seen: float, changed: float) -> float:
    """P(the next request has the same notices). It follows from how many requests of the session had notices
    (``seen``), and how many of these had a new one (``changed``). Before there are any, it follows from the
    conversation itself, in which each answer stands for one request."""
    at = set(notices)
    requests, shown, has_shown = 1, 0, False
    for index, message in enumerate(messages):
        if message.role == "assistant":
            requests, has_shown = requests + 1, False
        elif index in at and not has_shown:
            shown, has_shown = shown + 1, True
    joins = DecayedRate(shown / requests, _SHOWN_WEIGHT).share(changed, seen)
    return max(0.0, 1.0 - joins)


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
        changed = patches(layout, messages, marks, dialect, (), keep_own=True)
        return [changed.get(index, message.raw) for index, message in enumerate(messages)]
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
            # A context message (the whole message or a part of it) and its acknowledgement.
            message, own = messages[element.message], marked.get(index, {})
            is_whole = kind is ElementKind.WHOLE
            written.append(
                write_message(message, own, dialect) if is_whole else _part(element, message, own.get(0), dialect)
            )
            ack = messages[element.ack]
            written.append(_ACKNOWLEDGEMENT if kind is ElementKind.PART else write_message(ack, {}, dialect))
    return written


def patches(
    layout: Layout,
    messages: Sequence[Message],
    marks: Mapping[int, Life],
    dialect: Dialect,
    marked: Iterable[int],
    *,
    keep_own: bool,
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


def _by_element(layout: Layout, marks: Mapping[int, Life]) -> dict[int, dict[int, Life]]:
    """Markers by element, and by position within it."""
    found: dict[int, dict[int, Life]] = {}
    for position, life in marks.items():
        index = bisect_right(layout.starts, position) - 1
        found.setdefault(index, {})[position - layout.starts[index]] = life
    return found


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


_SEED = PrefixSettings(b"", b"")
_MOVED = frozenset({ElementKind.WHOLE, ElementKind.PART, ElementKind.LAST_PART, ElementKind.TAG})


def digests_on_wire(layout: Layout) -> tuple[bytes, ...]:
    """The digests of a layout's elements in the order of its messages."""
    return tuple(map(layout.digests.__getitem__, wire_order(layout.elements)))


def laid_out_again(
    messages: Sequence[Message],
    tools: Iterable[Element],
    digests: Sequence[bytes],
    counter: TokenCounter,
) -> tuple[Element, ...] | None:
    """The elements with these ``digests``, made from the ``messages`` and from one of the ``tools``; None if they
    cannot be made. For each message, every form that a layout may have given it is tried."""
    recognised = recognise_request(Transcript(messages), lambda *_: True, has_moved=True)
    elements = request_elements(recognised, (), counter)
    natural = Layout(_SEED, elements.natural)
    moved, split = moved_elements(recognised, elements, counter), split_layout(recognised, natural, counter)
    forms = [*tools, *recognised.transcript.elements, *elements.forms.by_digest.values()]
    forms += (*moved.preamble, *moved.documents.values(), *moved.tail) if moved is not None else ()
    by_digest: defaultdict[bytes, deque[Element]] = defaultdict(deque)
    for form in (*forms, *(split.elements if split is not None else ())):
        by_digest[form.digest].append(form)
    if not by_digest.keys() >= set(digests):
        return None
    # A text that was sent twice may be known only once, because equal digests mean equal bytes.
    return tuple(by_digest[one].popleft() if len(by_digest[one]) > 1 else by_digest[one][0] for one in digests)


def begun_with(elements: RequestElements, front: Sequence[Element], count: int, still: int) -> RequestElements:
    """The request with its first ``count`` messages laid out as the elements ``front``, which include the tools.
    Nothing moves in the first ``still`` messages."""
    tools = tuple(element for element in front if element.kind is ElementKind.TOOLS)
    # From now on a moved element counts as a turn like any other: it keeps its place as long as the conversation
    # continues.
    front = [
        with_members(e, key="turn", message=e.message if e.message >= 0 else count - 1) if e.kind in _MOVED else e
        for e in front
    ]
    turns, tail, natural, notices = (
        tuple(element for element in some if element.message >= count)
        for some in (elements.turns, elements.tail, elements.natural, elements.notices)
    )
    return replace(
        elements,
        tools=tools,
        preamble=tuple(front[len(tools) :]),
        turns=turns,
        tail=tail,
        natural=(*front, *natural),
        notices=notices,
        still=sum(turn.message < still for turn in turns),
    )


def written_front(front: Sequence[Element], messages: Sequence[Message]) -> list[bytes]:
    """These elements as messages. A message that is as it came keeps the client's own markers."""
    # Each message counts as unmarked here, so that its markers are not removed.
    return render_messages(Layout(_SEED, front), [with_members(m, has_marks=False) for m in messages], {}, Dialect.NONE)

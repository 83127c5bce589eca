"""Orders of a request's content: as the client sent it, by tiers, and behind a prefix that was sent before.

The fidelity rules bind every order. The head stands first. Turns keep their order. Everything from the last user
message on stays last, and context stands before it. The opening and the acknowledgement of a context message are sent
once, with its last part.

A system text that changes is handled in one of two ways. The parts that change are relocated: volatile lines stand in a
tag, and documents stand behind the fixed text. Or the text is split in front of the first change: nothing moves, the
two parts together are the client's text, and the first part can be marked.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from msgspec import structs

from proxy.kit.value import dataclass, digest, field
from proxy.planner.change_rates import read_text
from proxy.planner.layout import NOTICE, Layout
from proxy.planner.tiers import Tier
from proxy.protocol.recognition import CLAIM_HEADERS, PART_ACKNOWLEDGEMENT, TAG_CLOSE, TAG_OPEN, ContextPiece, PieceKind
from proxy.protocol.request.element import (
    Element,
    ElementKind,
    Lead,
    composed_digest,
    message_element,
    part_element,
    text_element,
    whole_element,
)
from proxy.protocol.request.message import (
    ANSWER_ROLES,
    SYSTEM_ROLES,
    Message,
    Part,
    PartKind,
    beside,
    piece_digest,
    text_digest,
)
from proxy.protocol.request.tokens import MESSAGE_OVERHEAD_TOKENS, TokenCounter
from proxy.protocol.request.transcript import (
    ContextMessage,
    RecognisedRequest,
    SystemText,
    kept_parts,
    part_at,
    span_ends,
    texts_of,
)

Weight = Callable[[ContextPiece], float]


@dataclass(frozen=True, slots=True)
class PieceForms:
    """The forms in which context can be written. ``wholes`` are context messages as they came, by the message's index.
    ``parts`` and ``lasts`` are the pieces of messages with several pieces, by their keys. ``parts`` stand under the
    documented header, and ``lasts`` stand under the client's own opening. ``by_digest`` holds all of these."""

    wholes: Mapping[int, Element]
    parts: Mapping[str, Element]
    lasts: Mapping[str, Element]
    by_digest: Mapping[bytes, Element]


_NO_FORMS = PieceForms({}, {}, {}, {})


@dataclass(frozen=True, slots=True)
class RequestElements:
    """The content of a request as elements.

    ``tools`` and ``preamble`` stand in front. ``turns`` are the conversation up to the last exchange, and ``tail`` is
    the last exchange. ``natural`` is all of this in the client's order. ``groups`` are the context messages, ``items``
    are the movable pieces, and ``sizes`` are their tokens. ``documents`` are the pieces that are moved out of the
    system text. ``notices`` are system messages behind the preamble, if the upstream moves them to the front. Nothing
    is put in front of, or between, the first ``still`` turns. ``moving`` are messages of the proxy's own among the
    turns (``Route.moving``).
    """

    tools: tuple[Element, ...]
    preamble: tuple[Element, ...]
    turns: tuple[Element, ...]
    tail: tuple[Element, ...]
    natural: tuple[Element, ...]
    groups: tuple[ContextMessage, ...]
    forms: PieceForms
    items: Mapping[str, ContextPiece]
    sizes: Mapping[str, int]
    notices: tuple[Element, ...]
    still: int
    moving: Mapping[int, float] = field(default_factory=dict)
    documents: Mapping[str, Element] = field(default_factory=dict)

    @property
    def fixed(self) -> tuple[Element, ...]:
        """The elements in front of everything that may be ordered."""
        return (*self.tools, *self.preamble)

    @property
    def is_movable(self) -> bool:
        """Whether there is anything to order."""
        return bool(self.groups or self.documents)


def request_elements(
    recognised: RecognisedRequest,
    tools: tuple[Element, ...],
    counter: TokenCounter,
    *,
    has_spans: bool = False,
    hoists_system: bool = False,
) -> RequestElements:
    """All elements of a request. With ``has_spans`` a long file has several positions. With ``hoists_system`` system
    messages within the conversation stand behind the preamble."""
    single, preamble = recognised.transcript.elements, recognised.preamble
    if has_spans:
        heads = zip(single[:preamble], recognised.messages, strict=False)
        single = (*[_spanned(element, message) for element, message in heads], *single[preamble:])
    tail_at = max(recognised.last_user, preamble)
    natural, turns, tail = single[preamble:], single[preamble:tail_at], single[tail_at:]
    items = {item.key: item for group in recognised.groups for item in group.items}
    sizes = {key: counter.count(item.digest, item.text) for key, item in items.items()}
    forms = _NO_FORMS
    if recognised.groups:
        forms = _forms(recognised, sizes, counter, has_spans=has_spans)
        acks = {group.ack for group in recognised.groups}
        natural = tuple(forms.wholes.get(i, single[i]) for i in range(preamble, len(single)) if i not in acks)
        turns = tuple(single[i] for i in recognised.turns if i < recognised.last_user)
    notices: tuple[Element, ...] = ()
    if hoists_system and recognised.transcript.notices:
        notices = tuple(message_element(recognised.messages[i], i, NOTICE) for i in recognised.transcript.notices)
        natural, turns, tail = (
            tuple(element for element in some if element.role not in SYSTEM_ROLES) for some in (natural, turns, tail)
        )
    return RequestElements(
        tools=tools,
        preamble=single[:preamble],
        turns=turns,
        tail=tail,
        natural=(*tools, *single[:preamble], *notices, *natural),
        groups=recognised.groups,
        forms=forms,
        items=items,
        sizes=sizes,
        notices=notices,
        still=sum(turn.message < recognised.still for turn in turns) if recognised.still else 0,
        moving=recognised.moving,
    )


def _forms(
    recognised: RecognisedRequest, sizes: Mapping[str, int], counter: TokenCounter, *, has_spans: bool
) -> PieceForms:
    messages = recognised.messages
    wholes: dict[int, Element] = {}
    parts: dict[str, Element] = {}
    lasts: dict[str, Element] = {}
    names: Counter[str] = Counter()
    for group in recognised.groups:
        places = (group.message, group.ack)
        names[group.name] += 1
        key = group.name if names[group.name] == 1 else f"{group.name}#{names[group.name]}"
        whole = whole_element(key, messages[group.message], messages[group.ack], places)
        if has_spans:
            spans = messages[group.message].derived(_spans_of)
            whole = structs.replace(whole, parts=(*spans, *whole.parts[len(messages[group.message].parts) :]))
        wholes[group.message] = whole
        if len(group.items) == 1:
            continue
        header, opening = _lead(CLAIM_HEADERS[group.claim], counter), _lead(group.opening, counter)
        client_ack = structs.replace(messages[group.ack].parts[0], markable=False)
        for item in group.items:
            for found, kind, lead, ack in (
                (parts, ElementKind.PART, header, _ACKNOWLEDGEMENT),
                (lasts, ElementKind.LAST_PART, opening, client_ack),
            ):
                composed = composed_digest(lead.digest, item.digest)
                own = _positions(lead, item, sizes[item.key], composed, has_spans=has_spans)
                found[item.key] = part_element(kind, lead, item, composed, own, ack, places)
    every = (*parts.values(), *lasts.values(), *wholes.values())
    return PieceForms(wholes, parts, lasts, {element.digest: element for element in every})


def _spanned(element: Element, message: Message) -> Element:
    spans = message.derived(_spans_of)
    return element if len(spans) == len(element.parts) else structs.replace(element, parts=spans)


def _spans_of(message: Message) -> tuple[Part, ...]:
    """The positions of a context or system message for a cache that stores every prefix: one for each span of its
    pieces."""
    text, known = message.text or read_text(message), message.recognition
    if not text or len(message.parts) != 1 or not message.is_plain or message.has_marks:
        return message.parts
    # Which lines of a system message are volatile is learnt, and the same text must have the same positions before.
    is_whole = message.role in SYSTEM_ROLES
    pieces = [(0, len(text))] if known is None or is_whole else [(cut.start, cut.end) for cut in known.cuts]
    whole, ends = message.parts[0], [start + at for start, end in pieces for at in span_ends(text[start:end])]
    return _parts_of(message.role, text, whole, ends)


def _parts_of(role: str, text: str, whole: Part, ends: Sequence[int]) -> tuple[Part, ...]:
    """The position ``whole`` of a text as one position for each of its spans."""
    if len(ends) < 2:
        return (whole,)
    name, spans = role.encode(), _spans(text, whole.tokens, ends)
    return tuple([structs.replace(whole, digest=digest(b"span", name, key), tokens=own) for key, own in spans])


def _spans(text: str, tokens: int, ends: Sequence[int]) -> Iterator[tuple[bytes, int]]:
    """The digest of each span of a text, and its share of the text's tokens. The spans end in these places."""
    for start, end in pairwise((0, *ends)):
        yield piece_digest(text[start:end]), tokens * end // ends[-1] - tokens * start // ends[-1]


_ACKNOWLEDGEMENT = Part(
    PartKind.TEXT, text_digest("assistant", PART_ACKNOWLEDGEMENT), 2 + MESSAGE_OVERHEAD_TOKENS, -1, False
)


def _positions(lead: Lead, item: ContextPiece, tokens: int, composed: bytes, *, has_spans: bool) -> list[Part]:
    """The positions of ``lead`` and the piece behind it."""
    ends = span_ends(item.text) if has_spans and item.kind is PieceKind.FILE else ()
    if len(ends) <= 1:
        return [Part(PartKind.TEXT, composed, lead.tokens + tokens, -1, True)]
    (first, own), *others = _spans(item.text, tokens, ends)
    spans = [(composed_digest(lead.digest, first), own + lead.tokens), *others]
    return [Part(PartKind.TEXT, digest(b"span", key), own, -1, True) for key, own in spans]


def _lead(text: str, counter: TokenCounter) -> Lead:
    key = piece_digest(text)
    return Lead(text, key, counter.count(key, text) + MESSAGE_OVERHEAD_TOKENS)


def behind_prefix(elements: RequestElements, kept: Sequence[Element], weight: Weight) -> tuple[Element, ...]:
    """The order that begins with ``kept`` (a valid prefix), followed by the rest of conversation and context (by
    ``weight``) and by the last exchange.

    ``weight`` is larger for a piece that should stand earlier.
    """
    turns = elements.turns[sum([e.key == "turn" for e in kept[len(elements.fixed) :]]) :]
    preamble = () if kept else elements.fixed
    documents = documents_left(elements, kept, weight) if elements.documents else ()
    notices = elements.notices and elements.notices[sum([e.key == NOTICE for e in kept]) :]
    placed = [e for e in kept if e.kind in _CONTEXT_FORMS]
    consumed = {e.key for e in placed if e.kind is not ElementKind.WHOLE}
    whole = {e.message for e in placed if e.kind is ElementKind.WHOLE}
    rest: list[tuple[float, int, Element]] = []
    for group in elements.groups:
        if group.message in whole:
            continue
        if len(group.items) == 1:
            rest.append((-weight(group.items[0]), len(rest), elements.forms.wholes[group.message]))
            continue
        left = [(-weight(i), place, i.key) for place, i in enumerate(group.items) if i.key not in consumed]
        for number, (light, _, key) in enumerate(sorted(left), 1):
            forms = elements.forms.parts if number < len(left) else elements.forms.lasts
            rest.append((light, len(rest), forms[key]))
    context = [element for _, _, element in sorted(rest)]
    return (*preamble, *kept, *documents, *notices, *turns, *context, *elements.tail)


def before_moving(elements: RequestElements, order: tuple[Element, ...]) -> tuple[Element, ...]:
    """The order with the proxy's own messages that may soon stand elsewhere (live panels), and the turns behind them,
    put behind the context. The order stays as it is if there are no such messages."""
    turns, moving = elements.turns, elements.moving
    first = next((at for at, turn in enumerate(turns) if moving.get(turn.message, 0.0) > 0), len(turns))
    while 0 < first < len(turns) and turns[first - 1].message in moving:
        first -= 1  # what stands around the panels stays with them
    loose = turns[first:]
    if not loose or first < elements.still:
        return order
    start, end = next(at for at, one in enumerate(order) if one is loose[0]), len(order) - len(elements.tail)
    if order[start : start + len(loose)] != loose:
        return order
    return (*order[:start], *order[start + len(loose) : end], *loose, *elements.tail)


def documents_left(elements: RequestElements, kept: Sequence[Element], weight: Weight) -> list[Element]:
    """The documents that ``kept`` does not hold, the most stable first."""
    done = {e.key for e in kept if e.kind is ElementKind.DOCUMENT}
    left = [e for key, e in elements.documents.items() if key not in done]
    return sorted(left, key=lambda e: -weight(e.item) if e.item is not None else 0.0)


def valid_prefix(
    elements: RequestElements, before: Sequence[bytes], changed: Mapping[bytes, Element] | None = None
) -> tuple[Element, ...]:
    """The longest prefix of an earlier layout (element digests) that this request may begin with.

    ``changed`` are files by the digest of the form in which they were sent before. Such a file may be the last element
    of the prefix, so that its unchanged beginning is read.
    """
    fixed = elements.fixed
    if len(before) < len(fixed) or any(e.digest != d for e, d in zip(fixed, before, strict=False)):
        return ()
    found: list[Element] = list(fixed)
    rest = _append_notices(elements, found, _append_documents(elements, found, before[len(fixed) :]))
    used: set[str] = set()
    turns, next_turn = [turn.digest for turn in elements.turns], 0
    turns.append(b"")  # what stands behind the last turn is no turn
    for one in rest:
        if turns[next_turn] == one:
            found.append(elements.turns[next_turn])
            next_turn += 1
            continue
        element = elements.forms.by_digest.get(one)
        is_open = element is None and changed is not None
        element = changed.get(one) if element is None and changed is not None else element
        # Nothing may be put between a turn and its answer. (An aborted exchange was sent once without its answer.)
        turn = elements.turns[next_turn] if 0 < next_turn < len(elements.turns) else None
        is_answered = turn is not None and turn.role in ANSWER_ROLES and turn.message not in elements.moving
        if element is None or element.key in used or next_turn < elements.still or is_answered:
            break
        used.add(element.key)
        found.append(element)
        if is_open:
            break
    return whole_groups(elements, found)


def _append_documents(elements: RequestElements, found: list[Element], before: Sequence[bytes]) -> Sequence[bytes]:
    """Append the documents that were sent directly behind the head and are still wanted. Returns what may follow them.

    All documents belong to the system message: if one is still missing, nothing that was sent behind them may follow.
    """
    left = {e.digest: e for e in elements.documents.values()}
    position = 0
    while position < len(before) and (element := left.pop(before[position], None)) is not None:
        found.append(element)
        position += 1
    return () if left else before[position:]


def _append_notices(elements: RequestElements, found: list[Element], before: Sequence[bytes]) -> Sequence[bytes]:
    """Append the notices that were sent directly behind the documents. Returns what may follow them: nothing, if there
    is a new notice."""
    for position, notice in enumerate(elements.notices):
        if position >= len(before) or notice.digest != before[position]:
            return ()
        found.append(notice)
    return before[len(elements.notices) :]


def whole_groups(elements: RequestElements, found: Sequence[Element]) -> tuple[Element, ...]:
    """Cut the prefix where a group's last part would no longer be the last one: the opening stands once, with the last
    part."""
    sizes = {g.message: len(g.items) for g in elements.groups if len(g.items) > 1}
    context = [(i, e) for i, e in enumerate(found) if e.message in sizes and e.kind in _CONTEXT_FORMS]
    end = len(found)
    while True:
        placed: dict[int, list[tuple[int, Element]]] = {}
        for index, element in context:
            if index < end:
                placed.setdefault(element.message, []).append((index, element))
        offending = [cut for m, forms in placed.items() if (cut := _offending(forms, sizes[m])) is not None]
        if not offending:
            return tuple(found[:end])
        end = min(offending)


_CONTEXT_FORMS = frozenset({ElementKind.PART, ElementKind.LAST_PART, ElementKind.WHOLE})


def _offending(forms: Sequence[tuple[int, Element]], size: int) -> int | None:
    """The place where a kept prefix must end so that a group's opening can stand once, with its last part; None: the
    prefix may stay as it is.

    ``forms`` are the group's elements in the prefix with their places. ``size`` is the number of pieces that the group
    has.
    """
    parts = [index for index, element in forms if element.kind is not ElementKind.WHOLE]
    if len(parts) < len(forms):
        return parts[0] if parts else None
    last = next((index for index, element in forms if element.kind is ElementKind.LAST_PART), None)
    if last is not None and (len(parts) < size or last != parts[-1]):
        return last
    if last is None and len(parts) == size:
        return parts[-1]
    return None


def by_tiers(
    elements: RequestElements,
    tier_of: Callable[[str], Tier],
    entered: Callable[[str], int],
    weight: Weight,
    unmarked: frozenset[Tier],
) -> tuple[Element, ...]:
    """The order of policy classic: head, L0 - L3 context, the conversation, active context, the last exchange. The
    pieces of ``unmarked`` tiers carry no marker: a marker behind them covers them, too."""
    stable: list[tuple[Tier, int, ContextPiece]] = []
    for item in elements.items.values():
        tier = tier_of(item.key)
        if tier is not Tier.ACTIVE and item.key not in elements.documents:
            stable.append((tier, entered(item.key), item))
    stable.sort(key=lambda s: (s[0], s[1], s[2].key))
    documents = documents_left(elements, (), weight)
    kept: list[Element] = [*elements.fixed, *documents, *elements.notices, *elements.turns[: elements.still]]
    group_of = {item.key: group for group in elements.groups for item in group.items}
    placed: set[str] = set()
    for tier, _, item in stable:
        group = group_of[item.key]
        placed.add(item.key)
        # A piece stands under the documented header, or under the client's own opening if no piece of its group
        # follows.
        forms = elements.forms.lasts if placed.issuperset(i.key for i in group.items) else elements.forms.parts
        element = forms[item.key] if len(group.items) > 1 else elements.forms.wholes[group.message]
        if tier in unmarked:
            parts = tuple(structs.replace(part, markable=False) for part in element.parts)
            element = structs.replace(element, parts=parts)
        kept.append(element)
    return behind_prefix(elements, whole_groups(elements, kept), weight)


def moved_elements(
    recognised: RecognisedRequest, elements: RequestElements, counter: TokenCounter
) -> RequestElements | None:
    """The elements with every volatile line relocated; None if nothing in the system prompt moves."""
    if not recognised.system:
        return None
    texts = {text.message: text for text in recognised.system}
    preamble: list[Element] = []
    for index, element in enumerate(elements.preamble):
        text = texts.get(index)
        if text is None:
            preamble.append(element)
        elif text.fixed.strip() or text.documents:
            fixed = _fixed(recognised, text, counter)
            if len(element.parts) > len(recognised.messages[index].parts):
                # Up to its first volatile line the text has the same positions as in the client's own order.
                spans = _parts_of(fixed.role, text.fixed, fixed.parts[0], span_ends(text.fixed))
                fixed = structs.replace(fixed, parts=spans)
            preamble.append(fixed)
    documents = {
        item.key: text_element(
            item.key,
            ElementKind.DOCUMENT,
            "system",
            [Part(PartKind.TEXT, text_digest("system", item.text), counter.count(item.digest, item.text), 0, True)],
            message=text.message,
            item=item,
        )
        for text in recognised.system
        for item in text.documents
    }
    sizes = dict(elements.sizes)
    sizes.update((key, element.tokens) for key, element in documents.items())
    return replace(
        elements,
        preamble=tuple(preamble),
        tail=_with_tag(
            recognised, elements.tail, [line for text in recognised.system for line in text.volatile], counter
        ),
        documents=documents,
        items={**elements.items, **{e.key: e.item for e in documents.values() if e.item is not None}},
        sizes=sizes,
    )


def _fixed(recognised: RecognisedRequest, text: SystemText, counter: TokenCounter) -> Element:
    """A system text without its volatile lines. The texts of a list are as they came, except for these lines."""
    message = recognised.messages[text.message]
    if len(message.parts) == 1:
        own = beside(message, _part(message.role, text.fixed, counter, MESSAGE_OVERHEAD_TOKENS))
        return text_element("system", ElementKind.SYSTEM, message.role, [own], message=text.message, lead=text.fixed)
    parts: list[Part] = []
    for kept in kept_parts(message):
        own = message.parts[kept.index]
        if not kept.is_whole:
            key = text_digest(message.role, kept.text)
            own = Part(PartKind.TEXT, key, counter.count(key, kept.text), kept.index, bool(kept.text.strip()))
            own = own if parts else beside(message, own)
        if not parts and not (kept.is_whole and kept.index == 0):
            own = structs.replace(own, tokens=own.tokens + MESSAGE_OVERHEAD_TOKENS)
        parts.append(own)
    return text_element("system", ElementKind.SYSTEM, message.role, parts, message=text.message)


def _with_tag(
    recognised: RecognisedRequest, tail: tuple[Element, ...], lines: list[str], counter: TokenCounter
) -> tuple[Element, ...]:
    """Put the tag directly before the last user message. Inside a tool loop the tag stands behind the newest results,
    because otherwise it would break the loop's own prefix with every step. The tag is a user message, because some
    upstreams hoist system messages to the front."""
    if not lines:
        return tail
    inner = "\n".join(line.removesuffix("\n") for line in lines)
    body = TAG_OPEN + inner + TAG_CLOSE
    tokens = counter.count(piece_digest(body), body) + MESSAGE_OVERHEAD_TOKENS
    tag = text_element(
        "tag",
        ElementKind.TAG,
        "user",
        # No marker: the text in the tag is never read again.
        [Part(PartKind.TEXT, digest(b"tag", body.encode("utf-8", "surrogatepass")), tokens, -1, False)],
        lead=body,
    )
    in_loop = recognised.messages[-1].has_results
    return (*tail, tag) if in_loop else (tag, *tail)


def split_layout(recognised: RecognisedRequest, natural: Layout, counter: TokenCounter) -> Layout | None:
    """The client's own order with every changing system text in two parts; None if there is none to split."""
    cuts = {t.message: at for t in recognised.system if (at := _place(t, recognised.messages[t.message])) > 0}
    if not cuts:
        return None
    elements: list[Element] = []
    for element in natural.elements:
        if element.kind is ElementKind.MESSAGE and element.key == "system" and element.message in cuts:
            elements += _parts(recognised.messages[element.message], element.message, cuts[element.message], counter)
        else:
            elements.append(element)
    return Layout(natural.seed, elements, natural)


def _place(system: SystemText, message: Message) -> int:
    """Where the first volatile line or movable document begins; 0 if one of the two parts would have no text."""
    known, text = message.recognition, message.text
    if known is None or text is None:
        return 0
    kinds = (PieceKind.VOLATILE, *(item.kind for item in system.documents))
    at = next((cut.start for cut in known.cuts if cut.kind in kinds), 0)
    if len(message.parts) > 1:
        # Split between two parts that already exist.
        at = sum(map(len, (texts_of(message) or ())[: part_at(message, at)]))
    return at if text[:at].strip() and text[at:].strip() else 0


def _parts(message: Message, index: int, at: int, counter: TokenCounter) -> tuple[Element, Element]:
    assert message.text is not None
    if len(message.parts) > 1:
        border = part_at(message, at)
        return (
            text_element("system", ElementKind.SYSTEM, message.role, message.parts[:border], message=index),
            text_element("system", ElementKind.REST, message.role, message.parts[border:], message=index),
        )
    before, rest = message.text[:at], message.text[at:]
    first = beside(message, _part(message.role, before, counter, MESSAGE_OVERHEAD_TOKENS))
    second = _part(message.role, rest, counter)
    return (
        text_element("system", ElementKind.SYSTEM, message.role, [first], message=index, lead=before),
        text_element("system", ElementKind.REST, message.role, [second], message=index, lead=rest),
    )


def _part(role: str, text: str, counter: TokenCounter, extra_tokens: int = 0) -> Part:
    key = text_digest(role, text)
    return Part(PartKind.TEXT, key, counter.count(key, text) + extra_tokens, -1, True)

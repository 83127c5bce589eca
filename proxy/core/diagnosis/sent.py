"""A record of what was sent, made from a layout. What the layout shares with the one before is taken over, so that a
request that appends costs by what is new in it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from proxy.core.caches.prompt import Life
from proxy.core.diagnosis.record import SYSTEM, TOOL, TURN, LineSizes, PromptPiece, PromptRecord, common_front, lines_of
from proxy.core.layout.layout import Layout
from proxy.core.recognition.pieces import MessageKind, PieceKind
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import SYSTEM_ROLES, Message
from proxy.core.request.texts import texts_of

_LINES = "sized lines"
_CONTEXT = (MessageKind.CONTEXT, MessageKind.CANDIDATE)


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """A record, and the layout that it was made from: the digests of its elements, and how many pieces there are up to
    the end of each."""

    digests: Sequence[bytes] = ()
    counts: Sequence[int] = ()
    record: PromptRecord = field(default_factory=PromptRecord)


@dataclass(frozen=True, slots=True)
class Sending:
    """When a layout is sent, where to (``model`` at ``route``), with which ``marks``, and with which other members that
    the provider renders (digests by their names)."""

    at: float
    model: str
    route: str
    marks: Mapping[int, Life]
    parameters: Mapping[str, bytes]


def sent_prompt(layout: Layout, messages: Sequence[Message], sending: Sending, before: SentPrompt) -> SentPrompt:
    """The record of a layout of these messages. ``before`` is the session's last one."""
    shared = common_front(layout.digests, before.digests)
    count, known = before.counts[shared - 1] if shared else 0, before.record
    pieces: list[PromptPiece] = []
    counts = [*before.counts[:shared]]
    for element in layout.elements[shared:]:
        pieces += _pieces(element, messages)
        counts.append(count + len(pieces))
    end = known.ends[count - 1] if count else 0
    lines = {place: text for place, text in known.lines.items() if place < count}
    lines |= {count + place: piece.lines for place, piece in enumerate(pieces) if piece.lines}
    record = PromptRecord(
        at=sending.at,
        model=sending.model,
        route=sending.route,
        digests=[*known.digests[:count], *[piece.digest for piece in pieces]],
        ends=[*known.ends[:count], *list(accumulate([piece.tokens for piece in pieces], initial=end))[1:]],
        keys=[*known.keys[:count], *[piece.key for piece in pieces]],
        kinds=[*known.kinds[:count], *[piece.kind for piece in pieces]],
        places=[*known.places[:count], *[piece.place for piece in pieces]],
        parameters=sending.parameters,
        lines=lines,
        stops=sorted(layout.ends[position] for position in sending.marks),
    )
    return SentPrompt(layout.digests, counts, record)


def _pieces(element: Element, messages: Sequence[Message]) -> Iterator[PromptPiece]:
    """An element by what it consists of: tools each, the files of a context message each."""
    if element.kind is ElementKind.TOOLS:
        names = element.lead.split("\n")
        for part, name in zip(element.parts, names, strict=True):
            yield PromptPiece(name, TOOL, part.digest, part.tokens, part.index)
        return
    if element.kind is ElementKind.TAG:
        yield PromptPiece(element.key, PieceKind.VOLATILE, element.digest, element.tokens, element.message)
        return
    if element.item is not None:
        item = element.item
        yield PromptPiece(item.key, item.kind, element.digest, element.tokens, element.message)
        return
    message = messages[element.message]
    if element.role in SYSTEM_ROLES:
        is_whole = element.kind is ElementKind.MESSAGE
        lines = _lines(message) if is_whole else ()
        kind = SYSTEM if element.key == SYSTEM else TURN
        yield PromptPiece(SYSTEM, kind, element.digest, element.tokens, element.message, lines)
    elif message.recognition is not None and message.recognition.form in _CONTEXT and message.cut_digests:
        yield from _cuts(element, message, messages[element.ack])
    else:
        yield PromptPiece(element.role, TURN, element.digest, element.tokens, element.message)


def _cuts(element: Element, message: Message, ack: Message) -> Iterator[PromptPiece]:
    """The pieces of a recognised message, and its acknowledgement where that belongs to it. Its tokens are spread by
    the lengths of the texts."""
    assert message.recognition is not None
    cuts = message.recognition.cuts
    chars, before = max(1, cuts[-1].end), 0
    for cut, digest in zip(cuts, message.cut_digests, strict=True):
        end = message.tokens * cut.end // chars
        kind = TURN if cut.kind is PieceKind.OPENING else cut.kind
        yield PromptPiece(cut.key, kind, digest, end - before, element.message)
        before = end
    if element.kind is ElementKind.WHOLE:
        yield PromptPiece(ack.role, TURN, ack.digest, ack.tokens, element.ack)


def _lines(message: Message) -> LineSizes:
    """The lines of a system text, found out once."""
    known = message.memo.get(_LINES)
    if not isinstance(known, tuple):
        known = message.memo[_LINES] = lines_of("\n".join(texts_of(message) or ()))
    return known

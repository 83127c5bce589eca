"""A record of what was sent, made from a layout. What the layout shares with the one before is taken over, so that a
request that appends costs by what is new in it."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.core.caches.prompt import Life
from proxy.core.diagnosis.record import SYSTEM, TOOL, TURN, LineSizes, PromptPiece, PromptRecord, lines_of
from proxy.core.layout.layout import Layout
from proxy.core.recognition.pieces import MessageKind, PieceKind
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import SYSTEM_ROLES, Message
from proxy.core.request.texts import texts_of

_LINES = "sized lines"
_CONTEXT = (MessageKind.CONTEXT, MessageKind.CANDIDATE)


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """A record, and the layout that it was made from: the digests of its elements, how many pieces there are up to the
    end of each, and the chained digest of all of them at the last ``position``."""

    record: PromptRecord = field(default_factory=PromptRecord)
    digests: Sequence[bytes] = ()
    counts: "array[int]" = field(default_factory=lambda: array("I"))
    position: int = -1
    chained: bytes = b""

    def shared(self, layout: Layout) -> int:
        """How many elements a layout begins with that are the same. What is chained alike is the same: a layout that
        appends is not compared piece by piece."""
        count = len(self.digests)
        if 0 <= self.position < len(layout.hashes) and layout.hashes[self.position] == self.chained:
            return count if layout.last_position(count - 1) == self.position else 0
        pairs = zip(self.digests, layout.digests, strict=False)
        return next((i for i, (mine, other) in enumerate(pairs) if mine != other), min(count, len(layout.digests)))


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
    shared = before.shared(layout)
    counts, pieces = before.counts[:shared], list[PromptPiece]()
    count = counts[-1] if counts else 0
    for element in layout.elements[shared:]:
        pieces += _pieces(element, messages)
        counts.append(count + len(pieces))
    record = before.record.extended(
        count,
        pieces,
        at=sending.at,
        model=sending.model,
        route=sending.route,
        parameters=sending.parameters,
        stops=sorted(layout.ends[position] for position in sending.marks),
    )
    last = len(layout.hashes) - 1
    return SentPrompt(record, layout.digests, counts, last, layout.hashes[last] if last >= 0 else b"")


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
        yield PromptPiece(cut.key, cut.kind, digest, end - before, element.message)
        before = end
    if element.kind is ElementKind.WHOLE:
        yield PromptPiece(ack.role, TURN, ack.digest, ack.tokens, element.ack)


def _lines(message: Message) -> LineSizes:
    """The lines of a system text, found out once."""
    known = message.memo.get(_LINES)
    if not isinstance(known, tuple):
        known = message.memo[_LINES] = lines_of("\n".join(texts_of(message) or ()))
    return known

"""Makes the record of a sent prompt from its layout. The pieces that the layout shares with the previous one are taken
over, so that a request that appends only costs time for its new pieces."""

from array import array
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from proxy.core.diagnosis.record import SYSTEM, TOOL, TURN, LineSizes, PromptPiece, PromptRecord, lines_of
from proxy.core.layout.layout import Layout, PrefixSettings
from proxy.core.recognition.pieces import MessageKind, PieceKind
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import SYSTEM_ROLES, Message
from proxy.core.request.texts import texts_of

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
    for cut, digest in zip(cuts, message.cut_digests, strict=True):
        end = message.tokens * cut.end // chars
        yield PromptPiece(cut.key, cut.kind, digest, end - before, element.message)
        before = end
    if element.kind is ElementKind.WHOLE:
        yield PromptPiece(ack.role, TURN, ack.digest, ack.tokens, element.ack)

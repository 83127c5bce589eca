"""The same request with its system text split at the first volatile line, or in front of documents that were not seen
to change: nothing moves, all before it can be marked.

The third answer to a volatile span, beside leaving it and relocating it. The parts together are the client's text.
"""

from proxy.core.layout.layout import Layout
from proxy.core.layout.relocation import parted
from proxy.core.recognition.pieces import PieceKind
from proxy.core.request.element import Element, ElementKind, parts_element, text_element
from proxy.core.request.message import Message, Part, PartKind, beside, text_digest
from proxy.core.request.texts import part_at, texts_of
from proxy.core.request.tokens import MESSAGE_OVERHEAD_TOKENS, TokenCounter
from proxy.core.request.view import RecognisedRequest


def split_layout(recognised: RecognisedRequest, natural: Layout, counter: TokenCounter) -> Layout | None:
    """The client's own order with every such system text in two parts; None where there is none to split."""
    cuts = {
        t.message: at for t in recognised.system if t.is_moving and (at := _place(recognised.messages[t.message])) > 0
    }
    standing = {text.message: text for text in recognised.system if text.is_parted and not text.is_moving}
    if not cuts and not standing:
        return None
    elements: list[Element] = []
    for element in natural.elements:
        is_whole = element.kind is ElementKind.MESSAGE and element.key == "system"
        if is_whole and element.message in standing:
            elements += parted(recognised, standing[element.message], counter)
        elif is_whole and element.message in cuts:
            elements += _parts(recognised.messages[element.message], element.message, cuts[element.message], counter)
        else:
            elements.append(element)
    return Layout(natural.seed, elements, natural)


def _place(message: Message) -> int:
    """Where the first volatile line begins; 0 where a part would have no text."""
    known, text = message.recognition, message.text
    if known is None or text is None:
        return 0
    at = next((cut.start for cut in known.cuts if cut.kind is PieceKind.VOLATILE), 0)
    if len(message.parts) > 1:
        # Between two parts that there are already.
        at = sum(map(len, (texts_of(message) or ())[: part_at(message, at)]))
    return at if text[:at].strip() and text[at:].strip() else 0


def _parts(message: Message, index: int, at: int, counter: TokenCounter) -> tuple[Element, Element]:
    assert message.text is not None
    if len(message.parts) > 1:
        border = part_at(message, at)
        return (
            parts_element(ElementKind.SYSTEM, message.role, message.parts[:border], index),
            parts_element(ElementKind.REST, message.role, message.parts[border:], index),
        )
    before, rest = message.text[:at], message.text[at:]
    first = beside(message, _part(message.role, before, counter, MESSAGE_OVERHEAD_TOKENS))
    return (
        text_element("system", ElementKind.SYSTEM, message.role, first, message=index, lead=before),
        text_element(
            "system", ElementKind.REST, message.role, _part(message.role, rest, counter), message=index, lead=rest
        ),
    )


def _part(role: str, text: str, counter: TokenCounter, extra_tokens: int = 0) -> Part:
    key = text_digest(role, text)
    return Part(PartKind.TEXT, key, counter.count(key, text) + extra_tokens, -1, True)

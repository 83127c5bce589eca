"""The same request with its system text split where the first volatile line or document begins: nothing moves, and the
text in front of that place can be marked.

This is the third answer to a text that changes, beside leaving it and relocating it. The two parts together are the
client's text.
"""

from proxy.core.layout.layout import Layout
from proxy.core.recognition.pieces import PieceKind
from proxy.core.request.element import Element, ElementKind, parts_element, text_element
from proxy.core.request.message import Message, Part, PartKind, beside, text_digest
from proxy.core.request.texts import part_at, texts_of
from proxy.core.request.tokens import MESSAGE_OVERHEAD_TOKENS, TokenCounter
from proxy.core.request.view import RecognisedRequest, SystemText


def split_layout(recognised: RecognisedRequest, natural: Layout, counter: TokenCounter) -> Layout | None:
    """The client's own order with every such system text in two parts; None where there is none to split."""
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
    """Where the first volatile line or movable document begins; 0 where a part would have no text."""
    known, text = message.recognition, message.text
    if known is None or text is None:
        return 0
    kinds = (PieceKind.VOLATILE, *(item.kind for item in system.documents))
    at = next((cut.start for cut in known.cuts if cut.kind in kinds), 0)
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

"""Two ways to handle a system text that changes: relocate the parts that change, or split the text in front of the
first change.

When relocated, volatile lines stand in a tag, and documents stand behind the fixed text. When the text is split,
nothing moves: the two parts together are the client's text, and the part in front of the first change can be marked.

"""

from dataclasses import replace

from msgspec import structs

from proxy.core.digest import digest
from proxy.core.layout.layout import Layout
from proxy.core.layout.orders import RequestElements
from proxy.core.recognition.fixed_texts import TAG_CLOSE, TAG_OPEN
from proxy.core.recognition.pieces import PieceKind
from proxy.core.request.element import Element, ElementKind, text_element
from proxy.core.request.message import Message, Part, PartKind, beside, piece_digest, text_digest
from proxy.core.request.texts import kept_parts, part_at, texts_of
from proxy.core.request.tokens import MESSAGE_OVERHEAD_TOKENS, TokenCounter
from proxy.core.request.view import RecognisedRequest, SystemText


def moved_elements(
    recognised: RecognisedRequest, elements: RequestElements, counter: TokenCounter
) -> RequestElements | None:
    """The elements with every volatile line relocated; None if nothing in the system prompt moves."""
    if not any(text.is_moving for text in recognised.system):
        return None
    texts = {text.message: text for text in recognised.system}
    preamble: list[Element] = []
    for index, element in enumerate(elements.preamble):
        text = texts.get(index)
        if text is None:
            preamble.append(element)
        elif text.fixed.strip() or text.documents:
            preamble.append(_fixed(recognised, text, counter))
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
    message = recognised.messages[text.message]
    if len(message.parts) > 1:
        return _fixed_parts(message, text.message, counter)
    role = message.role
    key = text_digest(role, text.fixed)
    own = Part(PartKind.TEXT, key, counter.count(key, text.fixed) + MESSAGE_OVERHEAD_TOKENS, -1, True)
    own = beside(message, own)
    return text_element("system", ElementKind.SYSTEM, role, [own], message=text.message, lead=text.fixed)


def _fixed_parts(message: Message, index: int, counter: TokenCounter) -> Element:
    """The texts of a list that stay. Each is as it came, except for its volatile lines."""
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
    return text_element("system", ElementKind.SYSTEM, message.role, parts, message=index)


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

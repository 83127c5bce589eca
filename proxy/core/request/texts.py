"""The texts of a message that consists of several parts, and the rest of each part without its volatile text."""

from itertools import islice

from proxy.core.recognition.pieces import PieceKind
from proxy.core.request.message import PLAIN_TEXT_KEYS, Message
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Unreadable, elements, members_of, text_value

# Parsing a text of more bytes would hold up all other requests each time.
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """The text that stays of the part with this ``index``. ``is_whole``: all of it stays."""

    index: int
    text: str
    is_whole: bool


def texts_of(message: Message) -> tuple[str, ...] | None:
    """The texts that the content consists of. None for content that is neither a string nor a list of plain text parts,
    and for a very long message without a recognition."""
    if message.text is not None and len(message.parts) == 1:
        return (message.text,)
    if message.recognition is None and len(message.raw) > _MOST_BYTES:
        return None
    try:
        content = members_of(message.raw).get("content")
        if content is None:
            return None
        if not message.is_list:
            found = [text_value(content)]
        else:
            parts = [members_of(part) for part in elements(content)]
            if not all("text" in part and part.keys() <= PLAIN_TEXT_KEYS for part in parts):
                return None
            found = [text_value(part["text"]) for part in parts]
    except Unreadable:
        return None
    texts = tuple(text for text in found if isinstance(text, str))
    return texts if texts and len(texts) == len(found) == len(message.parts) else None


def kept_parts(message: Message) -> tuple[Kept, ...]:
    """The parts of a recognised message without their volatile text. Parts of which nothing stays are left out."""
    texts, known = texts_of(message), message.recognition
    assert texts is not None
    assert known is not None
    volatile = [cut for cut in known.cuts if cut.kind is PieceKind.VOLATILE]
    found: list[Kept] = []
    start = first = 0
    for index, text in enumerate(texts):
        while first < len(volatile) and volatile[first].end <= start:
            first += 1
        left: list[str] = []
        position = 0
        for cut in islice(volatile, first, None):
            begin, end = max(cut.start - start, 0), min(cut.end - start, len(text))
            if begin >= len(text):
                break
            left.append(text[position:begin])
            position = end
        left.append(text[position:])
        kept = "".join(left)
        if kept or not text:
            found.append(Kept(index, kept, kept == text))
        start += len(text)
    return tuple(found)


def part_at(message: Message, position: int) -> int:
    """The index of the part that holds the character at this position of the text."""
    texts = texts_of(message)
    assert texts is not None
    index = 0
    while index < len(texts) - 1 and position >= len(texts[index]):
        position -= len(texts[index])
        index += 1
    return index

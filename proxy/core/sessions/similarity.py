"""Whether two heads are the same client's: the same instructions, but for a date, a file list, a setting.

Side calls (a title, a summary, a commit message) often begin with the very same user turn as the conversation that they
belong to, under other instructions. What is remembered of a head is a sketch: the smallest checksums of its lines (of
its words, where it has few lines), of which two sets share about as many as the whole texts do (Broder 1997, "On the
resemblance and containment of documents").
"""

from collections.abc import Iterable
from heapq import nsmallest
from zlib import crc32

from proxy.core.request.message import Message
from proxy.core.stability.edit_signals import read_text

Sketch = frozenset[int]

_SIZE = 64
_FEW_LINES = 8
_ALIKE = 0.4
_MAX_CHARS = 200_000
_MOST_BYTES = 1 << 20


def sketch_of(preamble: Iterable[Message]) -> Sketch:
    """The sketch of a request's system messages; each message is read once."""
    found: set[int] = set()
    for message in preamble:
        found |= _sketch(message)
    return frozenset(nsmallest(_SIZE, found))


def are_alike(one: Sketch, other: Sketch) -> bool:
    """Whether two heads have much in common; two requests without any have."""
    if one == other:
        return True
    smallest = nsmallest(_SIZE, one | other)
    both = sum(1 for item in smallest if item in one and item in other)
    return both >= _ALIKE * len(smallest)


def _sketch(message: Message) -> Sketch:
    known = message.memo.get("sketch")
    if isinstance(known, frozenset):
        return known
    text = message.text
    if text is None:
        # To read all of a larger one would hold up everybody else.
        text = message.lead if len(message.raw) > _MOST_BYTES else read_text(message)
    text = text[:_MAX_CHARS]
    pieces = [line for line in text.split("\n") if line.strip()]
    if len(pieces) < _FEW_LINES:
        pieces = text.split()
    found = frozenset(nsmallest(_SIZE, {crc32(piece.encode("utf-8", "surrogatepass")) for piece in pieces}))
    message.memo["sketch"] = found
    return found

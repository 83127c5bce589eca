"""Spans of a long file, for caches that store every prefix: after an edit, the text in front of the edit is still read
from the cache.

Spans do not change what is sent: the forecast and the shadow cache use them to look into one text. The end of a span
depends only on the text in front of it, so two versions of a file share their spans up to the first edit.
"""

_LEAST_CHARS = 3_000
_LEAST_SPAN = 1_500
_SPANS = 8


def span_ends(text: str) -> tuple[int, ...]:
    """The ends of a text's spans: behind lines, at even distances. The last one is the end of the text."""
    length = len(text)
    if length < _LEAST_CHARS:
        return (length,)
    step = _LEAST_SPAN
    while step * _SPANS < length:
        step *= 2
    found: list[int] = []
    at = step
    while at < length - step // 2 and (line := text.find("\n", at)) >= 0:
        found.append(line + 1)
        at = line + 1 + step
    if not found or found[-1] < length:
        found.append(length)
    return tuple(found)

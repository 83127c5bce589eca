"""What stands together in a system text: code between fences, elements between tags, retrieved documents.

Documents may move out of it only as what they are there: not out of an example between fences, not out of a tag that
encloses them (with it they may), not where the text says something between them, and the numbered parts of one source
as one piece.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .files import fenced

_BEGIN = re.compile(
    r"^(?:(?P<fence>`{3,}|~{3,})[^\n]*|<(?P<name>[A-Za-z][\w.-]*)(?P<attributes>\s[^<>\n]*)?(?<!/)>)", re.MULTILINE
)
_DOCUMENT = re.compile(r"document|doc|chunk|passage|excerpt|source|result")
_ATTRIBUTE = re.compile(r"([\w-]+)\s*=\s*(\"[^\"]*\"|'[^']*')")
_LISTED = re.compile(
    r"^(?:# Reference Files(?: \((?:Stable|L2|L3)\))?\n\nThese files are included for reference:"
    r"|# Working Files\n\nHere are the files:)\n\n",
    re.MULTILINE,
)
_CLOSES = re.compile(r"</([A-Za-z][\w.-]*)>")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Element:
    """From a tag at the beginning of a line to the one that closes it at the end of one."""

    start: int
    end: int
    attributes: dict[str, str]
    has_document: bool


def fences(text: str) -> list[Span]:
    """Code between fences, but for what stands inside a document."""
    return [span for span in _blocks(text) if not isinstance(span, _Element)]


def pieces(text: str) -> list[Span]:
    """The documents of a text that may stand elsewhere, each with what has to stay with it; empty if none may."""
    held = [block for block in _blocks(text) if isinstance(block, _Element) and block.has_document]
    if not held:
        return _files_at_end(text)
    if any(text[a.end : b.start].strip() for a, b in zip(held, held[1:], strict=False)):
        return []
    before, behind = text[: held[0].start], text[held[-1].end :]
    for name in set(_CLOSES.findall(behind)):
        opened = len(re.findall(rf"<{re.escape(name)}\b[^<>]*>", before))
        if opened > before.count(f"</{name}>"):
            return []
    found = [(held[0].start, held[0].end)]
    for one, other in zip(held, held[1:], strict=False):
        if _goes_on(one.attributes, other.attributes):
            found[-1] = (found[-1][0], other.end)
        else:
            found.append((other.start, other.end))
    return found


def _files_at_end(text: str) -> list[Span]:
    """The files under the one header of files in a text, where they end it."""
    found = list(_LISTED.finditer(text))
    entries = fenced(text[found[0].start() :]) if len(found) == 1 else None
    if entries is None or entries.opening != found[0].group().rstrip("\n"):
        return []
    spans: list[Span] = []
    for core in entries.cores:
        at = text.index(core, spans[-1][1] if spans else found[0].end())
        spans.append((at, at + len(core)))
    return spans


def _goes_on(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether one is number n of something, and the other number n + 1 of it."""
    differing = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    if len(differing) != 1 or len(one) < 2:
        return False
    numbers = [each.get(differing[0], "") for each in (one, other)]
    return all(re.fullmatch(r"[0-9]+", n) for n in numbers) and int(numbers[1]) == int(numbers[0]) + 1


def _blocks(text: str) -> Iterator[Span | _Element]:
    """Fences and elements in order; the fences inside an element too, unless it is a document."""
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        at = begin.end()
        if fence := begin.group("fence"):
            close = text.find("\n" + fence, at)
            if close >= 0:
                at = close + 1 + len(fence)
                yield begin.start(), at
            continue
        end = _end(text, begin.group("name"), at)
        if end is None:
            continue
        attributes = {k: v[1:-1] for k, v in _ATTRIBUTE.findall(begin.group("attributes") or "")}
        is_document = bool(attributes) and _DOCUMENT.fullmatch(begin.group("name")) is not None
        inner = [] if is_document else list(_blocks(text[at:end]))
        for block in inner:
            if not isinstance(block, _Element):
                yield block[0] + at, block[1] + at
        holds = is_document or any(isinstance(block, _Element) and block.has_document for block in inner)
        at = end
        yield _Element(begin.start(), end, attributes, holds)


def _end(text: str, name: str, at: int) -> int | None:
    depth = 1
    for tag in re.compile(rf"<(/?){re.escape(name)}(?:\s[^<>\n]*)?>").finditer(text, at):
        depth += -1 if tag.group(1) else 1
        if depth == 0:
            return tag.end() if text[tag.end() : tag.end() + 1] in ("", "\n") else None
    return None

"""Requests as bags of segments, for bounds that hold whatever the order.

A segment is a paragraph: a stretch of one text up to a blank line before which the next text begins at the margin, with
the role of the message that it stands in. Everything that is no text (a tool definition, a call, an image, a thinking
block) is one segment. The second copy of a paragraph within one request is another segment than the first: copies can
be read only as often as one earlier request held them. What the provider adds around messages is no segment.

A cache that looks inside blocks may read the beginning of one more segment: its ``beginnings`` are kept for that.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.core.digest import chain, digest
from proxy.upstream.embedded import PromptReader

# As files are written: a paragraph begins at the margin behind a blank line.
_PARAGRAPH = re.compile(r"(?<=\n\n)(?=\S)")

# How finely beginnings are compared; below the slices that the embedded provider cuts a text into.
_STEP_CHARS = 64

Segment = bytes


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Digests of a segment's first 64, 128, ... characters; empty where only whole segments are read."""

    chars: int
    digests: tuple[bytes, ...] = ()

    def share(self, known: Container[bytes]) -> float:
        """The largest share of the segment that can stand at the beginning of a known one."""
        steps = 0
        for one in self.digests:
            if one not in known:
                break
            steps += 1
        # Up to one step more may be equal.
        return min(1.0, (steps + 1) * _STEP_CHARS / self.chars) if steps else 0.0


@dataclass(frozen=True, slots=True)
class Bag:
    """One request: its time, its segments' tokens by segment, and ``total`` prompt tokens as the provider counts."""

    at: float
    scope: bytes
    total: int
    segments: Mapping[Segment, int]
    beginnings: Mapping[Segment, Beginnings]

    @property
    def rest(self) -> int:
        """Tokens that belong to no segment (framing). Negative where the segments count more than the
        provider's total."""
        return self.total - sum(self.segments.values())


class Bagger:
    """Cuts bodies into segments, each distinct message once."""

    def __init__(self, reader: PromptReader) -> None:
        self._reader = reader
        self._looks_inside = reader.profile.stores_prefixes
        self._known: dict[bytes, tuple[tuple[Segment, int, Beginnings], ...]] = {}

    def bag(self, body: bytes, at: float) -> Bag:
        """The segments of a request that the provider accepts."""
        prompt = self._reader.prompt(body)
        members = orjson.loads(body)
        segments: dict[Segment, int] = {}
        beginnings: dict[Segment, Beginnings] = {}
        copies: dict[Segment, int] = {}
        for part in [*(members.get("tools") or ()), *members["messages"]]:
            for own, tokens, begins in self._segments(part):
                copies[own] = number = copies.get(own, 0) + 1
                name = own if number == 1 else digest(own, b"%d" % number)
                segments[name], beginnings[name] = tokens, begins
        return Bag(at, prompt.scope, prompt.total, segments, beginnings)

    def _segments(self, part: dict[str, Any]) -> tuple[tuple[Segment, int, Beginnings], ...]:
        key = digest(orjson.dumps(part, option=orjson.OPT_SORT_KEYS))
        known = self._known.get(key)
        if known is None:
            count = self._reader.maker.count
            known = self._known[key] = tuple(
                (digest(label, text.encode("utf-8", "surrogatepass")), tokens, self._beginnings(label, text))
                for label, text in _texts(part)
                if (tokens := count(text))
            )
        return known

    def _beginnings(self, label: bytes, text: str) -> Beginnings:
        if not self._looks_inside:
            return Beginnings(len(text))
        state, found = digest(label), []
        for start in range(0, len(text) - _STEP_CHARS + 1, _STEP_CHARS):
            state = chain(state, digest(text[start : start + _STEP_CHARS].encode("utf-8", "surrogatepass")))
            found.append(state)
        return Beginnings(len(text), tuple(found))


def _texts(part: dict[str, Any]) -> Iterator[tuple[bytes, str]]:
    """The paragraphs and other segments of a message or tool. Each comes with a label for what must not be mixed with
    others."""
    role = part.get("role")
    if not isinstance(role, str):
        yield b"tool definition", _json(part)
        return
    label = role.encode()
    content = part.get("content")
    if isinstance(content, str):
        yield from ((label, text) for text in paragraphs(content))
    for item in content if isinstance(content, list) else ():
        if isinstance(item, dict) and isinstance(item.get("text"), str):
            yield from ((label, text) for text in paragraphs(item["text"]))
    for name in ("tool_calls", "thinking_blocks"):
        for item in part.get(name) or ():
            yield label + name.encode(), _json(item)


def paragraphs(text: str) -> Sequence[str]:
    """The text, cut behind each blank line that text at the margin follows."""
    return _PARAGRAPH.split(text) if text else ()


def _json(value: object) -> str:
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k not in ("cache_control", "prompt_cache_breakpoint")}
    return orjson.dumps(value).decode()

"""Requests as bags of segments, for bounds that hold for every order.

A segment is a paragraph, together with the role of its message. A paragraph ends at a blank line behind which the next
text begins at the margin. Each item that is not text (a tool definition, a call, an image, a thinking block) is one
segment. The second copy of a segment within one request counts as a different segment: copies can be read only as often
as one earlier request held them. The text that the provider adds around messages is not a segment.

A cache that looks inside blocks tells smaller units apart. For such a cache a segment is a step of a paragraph with
everything in front of it in that paragraph. Within the next step a little more may be equal.
"""

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import orjson

from proxy.core.diagnosis.record import spread
from proxy.core.digest import chain, digest
from proxy.core.value import dataclass
from proxy.upstream.embedded import PromptReader

# As files are written: a paragraph begins at the margin behind a blank line.
_PARAGRAPH = re.compile(r"(?<=\n\n)(?=\S)")

# How finely beginnings are compared. The step is smaller than the slices that the embedded provider cuts a text into.
_STEP_CHARS = 64

Segment = bytes


@dataclass(frozen=True, slots=True)
class Bag:
    """One request: its time, its tokens by segment, and ``total`` prompt tokens as the provider counts.
    ``is_inside``: the provider may read a part of a segment."""

    at: float
    scope: bytes
    total: int
    segments: Mapping[Segment, int]
    is_inside: bool = False

    @property
    def rest(self) -> int:
        """Tokens that belong to no segment (framing). Negative if the segments count more than the provider's
        total."""
        return self.total - sum(self.segments.values())

    def partial(self, whole: Container[Segment]) -> int:
        """The most tokens at the beginning of one segment that is not read as a whole."""
        if not self.is_inside:
            return 0
        return max((tokens for one, tokens in self.segments.items() if one not in whole), default=0)


class Bagger:
    """Cuts bodies into segments, each distinct message once."""

    def __init__(self, reader: PromptReader) -> None:
        self._reader = reader
        self._looks_inside = reader.profile.stores_prefixes
        self._known: dict[bytes, tuple[tuple[Segment, int], ...]] = {}

    def bag(self, body: bytes, at: float) -> Bag:
        """The segments of a request that the provider accepts."""
        prompt = self._reader.prompt(body)
        members = orjson.loads(body)
        segments: dict[Segment, int] = {}
        copies: Counter[Segment] = Counter()
        for part in [*(members.get("tools") or ()), *members["messages"]]:
            for own, tokens in self._segments(part):
                copies[own] += 1
                segments[own if copies[own] == 1 else digest(own, b"%d" % copies[own])] = tokens
        return Bag(at, prompt.scope, prompt.total, segments, self._looks_inside)

    def _segments(self, part: dict[str, Any]) -> tuple[tuple[Segment, int], ...]:
        key = digest(orjson.dumps(part, option=orjson.OPT_SORT_KEYS))
        known = self._known.get(key)
        if known is None:
            cut = (found for label, text in _texts(part) for found in self._steps(label, text))
            known = self._known[key] = tuple(cut)
        return known

    def _steps(self, label: bytes, text: str) -> Iterator[tuple[Segment, int]]:
        """One paragraph, or its steps; its tokens are spread by their lengths."""
        tokens, state = self._reader.maker.count(text), digest(label)
        size = _STEP_CHARS if self._looks_inside else len(text)
        steps = [text[start : start + size] for start in range(0, len(text) if tokens else 0, size)]
        for step, own in zip(steps, spread(tokens, map(len, steps)), strict=True):
            state = chain(state, digest(step.encode("utf-8", "surrogatepass")))
            yield state, own


def _texts(part: dict[str, Any]) -> Iterator[tuple[bytes, str]]:
    """The paragraphs and other segments of a message or tool. Each comes with a label, so that different kinds are not
    mixed."""
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
        items = part.get(name)
        for item in items if isinstance(items, list) else ():
            yield label + name.encode(), _json(item)


def paragraphs(text: str) -> Sequence[str]:
    """The text, cut after each blank line that is followed by text at the margin."""
    return _PARAGRAPH.split(text) if text else ()


def _json(value: object) -> str:
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k not in ("cache_control", "prompt_cache_breakpoint")}
    return orjson.dumps(value).decode()

"""A provider that bills, written for the tests: it shares no code with the caches of the product.

A prompt is a list of blocks: one for each tool, each part of a message, each call. Under rules of markers, entries are
written where a marker stands, and a marker finds those up to twenty positions in front of it, a run of calls or of
results counting as one; elsewhere, what is stored is every prefix on a grid of tokens. Four bytes are a token.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from proxy.protocol.providers import CacheProfile, Family
from proxy.protocol.response.usage import Usage

_LOOKBACK = 20
_MOST_MARKS = 4
_PANEL_CALL = b'"name": "dynamic_panel"'
_OWN = (
    b"assistant: Beginning of dynamic panel", b"assistant: Panel automatically", b"assistant: End of dynamic panel",
    b"tool: Panel display complete", b"user: Current datetime", b"assistant: Ok.",
)  # fmt: skip


def tokens(text: str) -> int:
    """What this provider counts."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


@dataclass(frozen=True)
class _Block:
    digest: bytes
    end: int
    kind: str
    life_s: float


@dataclass
class Provider:
    """One account. ``cost`` is in tokens at the plain input price; ``words_cost`` is what of it was paid for the words
    that the proxy has added."""

    profile: CacheProfile
    cost: float = 0.0
    uncached: float = 0.0
    words_cost: float = 0.0
    refused: list[str] = field(default_factory=list)
    _until: dict[bytes, tuple[float, float]] = field(default_factory=dict)

    def send(self, body: bytes, at: float) -> Usage:
        """The usage that is reported for a request at this time."""
        profile, request = self.profile, json.loads(body)
        if profile.family is Family.MARKER:
            total, read, short, long = self._marked(request, at)
        else:
            total, read = self._on_grid(request, at)
            short = long = 0
        prices = ((read, profile.read), (read + short + long, profile.write), (total, 1.0))
        for own, end in _words(request):
            self.words_cost += own * next(price for most, price in prices if end <= most)
        plain = total - read - short - long
        self.cost += profile.read * read + profile.write * short + profile.write_long * long + plain
        self.uncached += total
        return Usage(total, 1, read=read, write_5m=short, write_1h=long, writes_told=True, lives_told=True)

    def _marked(self, body: Mapping[str, Any], at: float) -> tuple[int, int, int, int]:
        blocks = list(_blocks(body, self.profile))
        marks = [number for number, block in enumerate(blocks) if block.life_s]
        if len(marks) > _MOST_MARKS:
            self.refused.append(f"{len(marks)} markers")
        hit = max((found for mark in marks if (found := self._found(blocks, mark, at)) is not None), default=-1)
        read = blocks[hit].end if hit >= 0 else 0
        for block in blocks[: hit + 1]:
            if block.digest in self._until and self._until[block.digest][0] > at:
                life_s = self._until[block.digest][1]
                self._until[block.digest] = (at + life_s, life_s)
        written, short, long = read, 0, 0
        for mark in (mark for mark in marks if mark > hit and blocks[mark].end >= self.profile.min_tokens):
            block = blocks[mark]
            self._until[block.digest] = (at + block.life_s, block.life_s)
            if block.life_s > self.profile.life_s:
                long += block.end - written
            else:
                short += block.end - written
            written = block.end
        return blocks[-1].end, read, short, long

    def _found(self, blocks: list[_Block], mark: int, at: float) -> int | None:
        """The last entry that a marker finds."""
        positions = 0
        for number in range(mark, -1, -1):
            block = blocks[number]
            is_run = number < mark and block.kind and block.kind == blocks[number + 1].kind
            positions += not is_run
            if positions > _LOOKBACK:
                return None
            if block.end >= self.profile.min_tokens and self._until.get(block.digest, (0.0, 0.0))[0] > at:
                return number
        return None

    def _on_grid(self, body: Mapping[str, Any], at: float) -> tuple[int, int]:
        profile = self.profile
        text = b"".join(block for block, *_ in _texts(body))
        step, read, chain, is_hit = profile.step * 4, 0, b"", True
        for end in range(step, len(text) + 1, step):
            chain = sha256(chain + text[end - step : end]).digest()
            is_hit = is_hit and self._until.get(chain, (0.0, 0.0))[0] > at
            read = end // 4 if is_hit else read
            self._until[chain] = (at + profile.life_s, profile.life_s)
        return -(-len(text) // 4), read if read >= profile.min_tokens else 0


def _blocks(body: Mapping[str, Any], profile: CacheProfile) -> Iterator[_Block]:
    chain, size = b"", 0
    for text, kind, mark in _texts(body):
        chain = sha256(chain + text).digest()
        size += len(text)
        life_s = 0.0
        if mark is not None:
            life_s = profile.long_life_s if mark.get("ttl") == "1h" else profile.life_s
        yield _Block(chain, -(-size // 4), kind, life_s)


def _texts(body: Mapping[str, Any]) -> Iterator[tuple[bytes, str, Mapping[str, Any] | None]]:
    """Each block: its bytes, what it is one of (calls, results), and its marker."""
    for tool in body.get("tools", ()):
        yield _written({**tool, "cache_control": None}), "", tool.get("cache_control")
    for message in body["messages"]:
        role, content, mark = message["role"], message.get("content"), message.get("cache_control")
        kind = "result" if role == "tool" else ""
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        calls = message.get("tool_calls", ())
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1 and not calls
            text = f"{role}: {part.get('text', part)} {message.get('tool_call_id', '')}".encode()
            yield text, kind, part.get("cache_control") or (mark if is_last else None)
        for number, call in enumerate(calls):
            yield _written(call), "call", mark if number == len(calls) - 1 else None


def _words(body: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """The tokens of each block that consists of the proxy's words, and where it ends."""
    size = 0
    for text, *_ in _texts(body):
        size += len(text)
        if text.startswith(_OWN) or _PANEL_CALL in text:
            yield -(-len(text) // 4), -(-size // 4)


def _written(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()

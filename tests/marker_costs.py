"""A provider with explicit markers that bills bodies of requests. It is written from the provider's rules, not from the
product's code.

The rules are Anthropic's ("Prompt caching", https://platform.claude.com/docs/en/build-with-claude/prompt-caching):
tools, then system, then messages; an entry at each marker; a look-back of 20 positions, including the marker's own; a
run of calls or of results is one position; a read renews the entries in front of it; writes for an hour stand in front
of other writes.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from proxy.protocol.response.usage import Usage

SYSTEM = ("system", "developer")
_FRAME_TOKENS = 4


@dataclass(frozen=True)
class Rules:
    """Prices are multiples of the input price; ``hoists`` moves system messages within a conversation to the front."""

    hoists: bool = False
    min_tokens: int = 1024
    lookback: int = 20
    read: float = 0.1
    write: float = 1.25
    write_long: float = 2.0
    life_s: float = 300.0
    long_life_s: float = 3600.0


@dataclass(frozen=True)
class Block:
    """One position of a prompt."""

    text: str
    kind: str
    life: str


@dataclass
class MarkerProvider:
    """One account. ``cost`` is the cost of all requests, ``plain`` the cost that they would have without a cache."""

    rules: Rules
    count: Callable[[str], int]
    cost: float = 0.0
    plain: float = 0.0
    _entries: dict[bytes, tuple[float, float]] = field(default_factory=dict)

    def send(self, body: bytes, at: float) -> Usage:
        """Bill a request that comes at ``at``. An AssertionError says why the provider would have refused it."""
        blocks = list(_blocks(json.loads(body), hoists=self.rules.hoists))
        hashes, ends, runs = self._positions(blocks)
        marks = {place: block.life for place, block in enumerate(blocks) if block.life}
        lives = list(marks.values())
        assert len(marks) <= 4, "more than four markers"
        assert lives == sorted(lives), "a marker for an hour behind one for five minutes"
        usable = [place for place in marks if ends[place] >= self.rules.min_tokens]
        hit = self._hit(usable, hashes, ends, runs, at)
        read = ends[hit] if hit >= 0 else 0
        for place in range(hit + 1):
            if (known := self._entries.get(hashes[place])) is not None and known[0] > at:
                self._entries[hashes[place]] = (at + known[1], known[1])
        written = [place for place in usable if ends[place] > read]
        for place in written:
            life_s = self.rules.long_life_s if marks[place] == "1h" else self.rules.life_s
            self._entries[hashes[place]] = (at + life_s, life_s)
        long_end = max((ends[place] for place in written if marks[place] == "1h"), default=read)
        short_end = max((ends[place] for place in written), default=read)
        usage = Usage(
            prompt=ends[-1], output=1, read=read, write_5m=short_end - long_end, write_1h=long_end - read,
            writes_told=True, lives_told=True,
        )  # fmt: skip
        self.plain += ends[-1]
        self.cost += self._price(usage)
        return usage

    def _price(self, usage: Usage) -> float:
        rules = self.rules
        dear = usage.write_5m * rules.write + usage.write_1h * rules.write_long
        return usage.read * rules.read + dear + usage.prompt - usage.read - usage.write_5m - usage.write_1h

    def _positions(self, blocks: list[Block]) -> tuple[list[bytes], list[int], list[int]]:
        hashes, ends, runs = [], [], []
        state, end, run, before = b"", 0, -1, ""
        for block in blocks:
            run += not (block.kind == before and block.kind in ("call", "result"))
            state, before = sha256(state + block.text.encode()).digest(), block.kind
            end += self.count(block.text) + _FRAME_TOKENS
            hashes.append(state)
            ends.append(end)
            runs.append(run)
        return hashes, ends, runs

    def _hit(self, usable: list[int], hashes: list[bytes], ends: list[int], runs: list[int], at: float) -> int:
        best = -1
        for mark in usable:
            for place in range(mark, -1, -1):
                if runs[mark] - runs[place] >= self.rules.lookback or ends[place] < self.rules.min_tokens:
                    break
                if self._entries.get(hashes[place], (0.0, 0.0))[0] > at:
                    best = max(best, place)
                    break
        return best


def _blocks(body: dict[str, Any], *, hoists: bool) -> Iterator[Block]:
    for tool in body.get("tools", ()):
        yield Block(_text("tools", {k: v for k, v in tool.items() if k != "cache_control"}), "tool", _life(tool))
    messages = body["messages"]
    if hoists:
        front = [one for one in messages if one["role"] in SYSTEM]
        messages = [*front, *(one for one in messages if one["role"] not in SYSTEM)]
    for message in messages:
        yield from _message(message)


def _message(message: dict[str, Any]) -> Iterator[Block]:
    role, content = message["role"], message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if role == "tool":
        bare = [{k: v for k, v in part.items() if k != "cache_control"} for part in parts]
        assert bare == parts, "a marker inside the result of a tool"
        yield Block(_text(message["tool_call_id"], bare), "result", _life(message))
        return
    for part in parts:
        bare = {k: v for k, v in part.items() if k != "cache_control"}
        assert part.get("text") or not _life(part), "a marker on an empty text"
        yield Block(_text(role, bare), "text", _life(part))
    for call in message.get("tool_calls") or ():
        yield Block(_text("call", call), "call", _life(call))


def _life(marked: dict[str, Any]) -> str:
    control = marked.get("cache_control")
    return "" if control is None else control.get("ttl", "5m")


def _text(where: str, value: object) -> str:
    return where + json.dumps(value, ensure_ascii=False, sort_keys=True)

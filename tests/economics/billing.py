"""A provider that bills, written for the tests from the rules of real ones: it shares no code with the caches of the
product.

A prompt is a list of blocks: one for each tool, each part of a message, each call. Under rules of markers (Anthropic's,
https://platform.claude.com/docs/en/build-with-claude/prompt-caching), entries are written where a marker stands, and a
marker finds those up to twenty positions in front of it, a run of calls or of results counting as one; a read renews
the entries in front of it; writes for an hour stand in front of other writes. Elsewhere, what is stored is every prefix
on a grid of tokens, of four bytes each.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from proxy.protocol.providers import CacheProfile, Family
from proxy.protocol.response.usage import Usage

_LOOKBACK = 20
_MOST_MARKS = 4
_SYSTEM = ("system", "developer")
_PANEL_CALL = '"name": "dynamic_panel"'
_OWN = (
    "assistant: Beginning of dynamic panel", "assistant: Panel automatically", "assistant: End of dynamic panel",
    "tool: Panel display complete", "user: Current datetime", "assistant: Ok.",
)  # fmt: skip


def tokens(text: str) -> int:
    """What this provider counts, if nothing else is said."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


@dataclass(frozen=True)
class _Block:
    """``life`` is that of a marker which stands on it, ``end`` the tokens up to its end."""

    text: str
    kind: str
    life: str
    end: int = 0
    digest: bytes = b""


@dataclass
class Provider:
    """One account. ``cost`` is in tokens at the plain input price; ``words_cost`` is what of it was paid for the words
    that the proxy has added. ``hoists`` moves system messages within a conversation to the front; ``frame_tokens`` are
    those of each block beside its text."""

    profile: CacheProfile
    count: Callable[[str], int] = tokens
    hoists: bool = False
    frame_tokens: int = 0
    cost: float = 0.0
    words_cost: float = 0.0
    _until: dict[bytes, tuple[float, float]] = field(default_factory=dict)

    def send(self, body: bytes, at: float) -> Usage:
        """The usage that is reported for a request at this time. An AssertionError says why the provider would have
        refused it."""
        profile, blocks = self.profile, self._blocks(json.loads(body))
        if profile.family is Family.MARKER:
            total, read, short, long = self._marked(blocks, at)
        else:
            total, read = self._on_grid(blocks, at)
            short = long = 0
        prices = ((read, profile.read), (read + short + long, profile.write), (blocks[-1].end, 1.0))
        for block in blocks:
            if block.text.startswith(_OWN) or _PANEL_CALL in block.text:
                self.words_cost += tokens(block.text) * next(price for most, price in prices if block.end <= most)
        plain = total - read - short - long
        self.cost += profile.read * read + profile.write * short + profile.write_long * long + plain
        return Usage(total, 1, read=read, write_5m=short, write_1h=long, writes_told=True, lives_told=True)

    def _blocks(self, body: Mapping[str, Any]) -> list[_Block]:
        messages = body["messages"]
        if self.hoists:
            messages = sorted(messages, key=lambda message: message["role"] not in _SYSTEM)
        found, digest, end = list[_Block](), b"", 0
        for block in (*map(_tool, body.get("tools", ())), *(block for one in messages for block in _within(one))):
            digest = sha256(digest + block.text.encode()).digest()
            end += self.count(block.text) + self.frame_tokens
            found.append(replace(block, end=end, digest=digest))
        return found

    def _marked(self, blocks: list[_Block], at: float) -> tuple[int, int, int, int]:
        marks = [number for number, block in enumerate(blocks) if block.life]
        lives = [blocks[mark].life for mark in marks]
        assert len(marks) <= _MOST_MARKS, f"{len(marks)} markers"
        assert lives == sorted(lives), "a marker for an hour behind one for five minutes"
        hit = max((found for mark in marks if (found := self._found(blocks, mark, at)) is not None), default=-1)
        read = blocks[hit].end if hit >= 0 else 0
        for block in blocks[: hit + 1]:
            if self._is_held(block, at):
                life_s = self._until[block.digest][1]
                self._until[block.digest] = (at + life_s, life_s)
        written, short, long = read, 0, 0
        for mark in (mark for mark in marks if mark > hit and blocks[mark].end >= self.profile.min_tokens):
            block = blocks[mark]
            life_s = self.profile.long_life_s if block.life == "1h" else self.profile.life_s
            self._until[block.digest] = (at + life_s, life_s)
            if block.life == "1h":
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
            if block.end >= self.profile.min_tokens and self._is_held(block, at):
                return number
        return None

    def _is_held(self, block: _Block, at: float) -> bool:
        return self._until.get(block.digest, (0.0, 0.0))[0] > at

    def _on_grid(self, blocks: list[_Block], at: float) -> tuple[int, int]:
        profile = self.profile
        text = "".join(block.text for block in blocks).encode()
        step, read, chain, is_hit = profile.step * 4, 0, b"", True
        for end in range(step, len(text) + 1, step):
            chain = sha256(chain + text[end - step : end]).digest()
            is_hit = is_hit and self._until.get(chain, (0.0, 0.0))[0] > at
            read = end // 4 if is_hit else read
            self._until[chain] = (at + profile.life_s, profile.life_s)
        return -(-len(text) // 4), read if read >= profile.min_tokens else 0


def _tool(tool: Mapping[str, Any]) -> _Block:
    return _Block(_written({**tool, "cache_control": None}), "", _life(tool))


def _within(message: Mapping[str, Any]) -> Iterator[_Block]:
    """The blocks of a message. A marker on the message stands on its last one."""
    role, content, whole = message["role"], message.get("content"), _life(message)
    is_result = role == "tool"
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    calls = message.get("tool_calls") or ()
    for number, part in enumerate(parts):
        life = _life(part)
        assert not (life and is_result), "a marker inside the result of a tool"
        assert part.get("text") or not life, "a marker on an empty text"
        is_last = number == len(parts) - 1 and not calls
        text = f"{role}: {part.get('text', part)} {message.get('tool_call_id', '')}"
        yield _Block(text, "result" if is_result else "", life or (whole if is_last else ""))
    for number, call in enumerate(calls):
        yield _Block(_written(call), "call", whole if number == len(calls) - 1 else "")


def _life(marked: Mapping[str, Any]) -> str:
    control = marked.get("cache_control")
    return "" if control is None else control.get("ttl", "5m")


def _written(value: object) -> str:
    return json.dumps(value, sort_keys=True)

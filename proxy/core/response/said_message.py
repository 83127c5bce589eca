"""What a model says in front of its calls while it streams, as the message that goes back to it. Sans-IO, bounded.

Thoughts go back as they came: some providers refuse a conversation in which a call has lost the thoughts in front of it
(https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks,
https://api-docs.deepseek.com/guides/thinking_mode#tool-calls). litellm streams Claude's as ``thinking_blocks``.
"""

from collections.abc import Mapping, Sequence

import msgspec
import orjson
from msgspec import Raw

from proxy.core.response.event_format import EventCutter, event_data
from proxy.core.response.panel_calls import PanelCall

TEXTS = ("content", "reasoning_content", "reasoning")
"""The members of a message that are the model's words, in the order in which they are written."""
_MOST_BYTES = 1 << 20
_COMPACT_BYTES = 64 << 10
_FRAME_BYTES = 32
_NOTHING = Raw(b"null")


class _Delta(msgspec.Struct):
    content: Raw = _NOTHING
    reasoning_content: Raw = _NOTHING
    reasoning: Raw = _NOTHING
    thinking_blocks: object = None


class _Choice(msgspec.Struct):
    index: object = 0
    delta: _Delta | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_CHUNK = msgspec.json.Decoder(_Chunk)


class SaidMessage:
    """The words of the first choice. Events are only read when there are many of them, or at the end."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._waiting_bytes = self._size = 0
        self._texts: dict[str, list[bytes]] = {name: [] for name in TEXTS}
        self._blocks: list[_Block] = []
        self._is_whole = True

    def add(self, event: bytes) -> None:
        """Take whole events."""
        if not self._is_whole:
            return
        self._waiting.append(event)
        self._waiting_bytes += len(event)
        if self._waiting_bytes > _COMPACT_BYTES:
            self._read()

    def message(self, calls: Sequence[PanelCall]) -> bytes | None:
        """The message with these calls; None where more was said than is kept, or what cannot be written again."""
        self._read()
        if not self._is_whole:
            return None
        members = [b'"role":"assistant"']
        for name, parts in self._texts.items():
            text = b'"' + b"".join(parts) + b'"' if parts else b"null"
            if parts or name == "content":
                members.append(b'"' + name.encode() + b'":' + text)
        if self._blocks:
            try:
                members.append(b'"thinking_blocks":' + orjson.dumps([block.whole() for block in self._blocks]))
            except orjson.JSONEncodeError:  # a number that is too large
                return None
        members.append(b'"tool_calls":[' + b",".join(call.raw for call in calls) + b"]")
        return b"{" + b",".join(members) + b"}"

    def _read(self) -> None:
        for event, _ in EventCutter().feed(b"".join(self._waiting)):
            try:
                chunk = _CHUNK.decode(event_data(event))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            for choice in chunk.choices:
                if choice.delta is not None and choice.index == 0:
                    self._take(choice.delta)
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._size > _MOST_BYTES:
            self._is_whole = False
            self._texts, self._blocks = {name: [] for name in TEXTS}, []

    def _take(self, delta: _Delta) -> None:
        for name, parts in self._texts.items():
            raw = bytes(getattr(delta, name))
            if raw[:1] == b'"' and len(raw) > len(b'""'):
                parts.append(raw[1:-1])
                self._size += len(raw)
        blocks = delta.thinking_blocks
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict):
                self._size += _FRAME_BYTES + sum(len(text) for text in block.values() if isinstance(text, str))
                if not (self._blocks and self._blocks[-1].takes(block)):
                    self._blocks.append(_Block(block))


class _Block:
    """A block of thoughts, which goes on until it is signed."""

    def __init__(self, members: Mapping[str, object]) -> None:
        self._members = dict(members)
        thought = members.get("thinking")
        self._parts = [thought] if isinstance(thought, str) else []

    def takes(self, more: Mapping[str, object]) -> bool:
        """Whether the piece belongs to this block, which then has it."""
        types = (self._members.get("type"), more.get("type"))
        if types != ("thinking", "thinking") or self._members.get("signature"):
            return False
        thought, signature = more.get("thinking"), more.get("signature")
        if isinstance(thought, str):
            self._parts.append(thought)
        if signature:
            self._members["signature"] = signature
        return True

    def whole(self) -> Mapping[str, object]:
        """The block as it goes back."""
        return {**self._members, "thinking": "".join(self._parts)} if self._parts else self._members

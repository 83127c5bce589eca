"""Turns messages and tools into blocks. Each distinct message is read once."""

import re
from collections.abc import Mapping
from hashlib import sha256

from proxy.core.caches.prompt import Life
from proxy.core.digest import digest
from proxy.core.lru import LastUsed
from proxy.core.providers import CacheProfile, MarkPlace
from proxy.core.request.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS
from proxy.core.value import dataclass
from proxy.core.wire.surrogates import utf8
from proxy.upstream.embedded.blocks import (
    BREAKPOINT,
    CACHE_CONTROL,
    Block,
    BlockKind,
    BlockMaker,
    Json,
    breakpoint_mark,
    cache_control,
    dumps,
    forbid,
    object_at,
    parsed_value,
    reads_breakpoint,
    reads_control,
    refuse,
    text_mark,
)

SYSTEM_ROLES = frozenset({"system", "developer"})
_ROLES = SYSTEM_ROLES | {"user", "assistant", "tool", "function"}
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal"})
_THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})
KNOWN_TURNS = 20_000

# Words in a user message that make the embedded model call the request's first tool, or two tools at once.
_CALL_WORDS = re.compile(r"\bcall_tool(s?)\b")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. ``call_ids`` are the ids of the calls that it makes, and ``answers`` is the id of the call that it
    answers. ``asks`` is the number of tool calls for which its text asks the embedded model."""

    role: str
    blocks: tuple[Block, ...]
    call_ids: tuple[str, ...] = ()
    answers: str | None = None
    has_image: bool = False
    asks: int = 0


class TurnReader:
    """Reads messages as one provider does. It remembers them by the digest of their raw JSON."""

    def __init__(self, maker: BlockMaker, profile: CacheProfile, *, remembered: int = KNOWN_TURNS) -> None:
        self._maker = maker
        self.profile = profile
        self._turns: LastUsed[bytes, Turn] = LastUsed(remembered)
        self._tools: LastUsed[bytes, tuple[Block, ...]] = LastUsed(remembered // 100)

    def turn(self, raw: bytes, at: str) -> Turn:
        """The message whose JSON is ``raw``. ``at`` is its path for error messages."""
        key = sha256(raw).digest()
        turn = self._turns.find(key)
        if turn is None:
            turn = self.read(parsed_value(raw, at), at)
            self._turns.put(key, turn)
        return turn

    def tools(self, raw: bytes) -> tuple[Block, ...]:
        """The tool definitions whose JSON array is ``raw``."""
        key = sha256(raw).digest()
        blocks = self._tools.find(key)
        if blocks is None:
            tools = parsed_value(raw, "tools")
            if not isinstance(tools, list):
                raise refuse("Invalid type for 'tools': expected an array.", "tools", "invalid_type")
            blocks = tuple(self._tool(tool, f"tools[{i}]") for i, tool in enumerate(tools))
            self._tools.put(key, blocks)
        return blocks

    def read(self, message: object, at: str) -> Turn:
        """The turn of a parsed message."""
        message = object_at(message, at)
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise refuse(f"Invalid value for '{at}.role'.", f"{at}.role", "invalid_value")
        forbid(message, at, self.profile)
        if role in ("tool", "function"):
            return self._result(message, at)
        if role == "assistant":
            return self._assistant(message, at)
        return self._spoken(message, "system" if role in SYSTEM_ROLES else role, at)

    def _spoken(self, message: Json, role: str, at: str) -> Turn:
        content = message.get("content")
        if not isinstance(content, str | list):
            raise refuse(f"Invalid type for '{at}.content': expected a string or an array.", f"{at}.content")
        blocks = self._content(message, role, at)
        texts = [content] if isinstance(content, str) else [part.get("text") for part in content]
        has_image = any(block.kind is BlockKind.MEDIA for block in blocks)
        said = [text for text in texts if isinstance(text, str) and role == "user"]
        asks = max((2 if match[1] else 1 for text in said for match in _CALL_WORDS.finditer(text)), default=0)
        return Turn(role, blocks, has_image=has_image, asks=asks)

    def _assistant(self, message: Json, at: str) -> Turn:
        content, calls = message.get("content"), message.get("tool_calls") or []
        thinking = message.get("thinking_blocks") or []
        if not (isinstance(content, str | list | None) and isinstance(calls, list) and isinstance(thinking, list)):
            raise refuse(f"Invalid type in '{at}': expected text or arrays.", at, "invalid_type")
        blocks = [self._thinking(block, f"{at}.thinking_blocks[{i}]") for i, block in enumerate(thinking)]
        if content:
            blocks += [block for block in self._content(message, "assistant", at) if not block.is_empty]
        blocks += [self._call(call, f"{at}.tool_calls[{i}]") for i, call in enumerate(calls)]
        if isinstance(message.get("function_call"), Mapping):
            blocks.append(self._maker.make(BlockKind.CALL, (b"function",), _dumps(message["function_call"])))
        return Turn("assistant", tuple(blocks), call_ids=tuple(str(call.get("id")) for call in calls))

    def _content(self, message: Json, role: str, at: str) -> tuple[Block, ...]:
        content = message["content"]
        label = (role.encode(), utf8(str(message.get("name") or "")))
        if isinstance(content, str):
            mark = None
            if reads_control(self.profile) and self.profile.message_mark and not (role == "assistant" and not content):
                mark = text_mark(message, at, content)
            return (self._maker.make(BlockKind.TEXT, label, content, extra_tokens=MESSAGE_OVERHEAD_TOKENS, mark=mark),)
        return tuple(self._part(part, label, f"{at}.content[{i}]", i == 0) for i, part in enumerate(content))

    def _part(self, part: object, label: tuple[bytes, bytes], at: str, is_first: bool) -> Block:
        part = object_at(part, at)
        kind = part.get("type")
        if not isinstance(kind, str):
            raise refuse(f"Missing required parameter: '{at}.type'.", f"{at}.type", "missing_required_parameter")
        forbid(part, at, self.profile, breakpoint_allowed=label[0] != b"assistant")
        extra = MESSAGE_OVERHEAD_TOKENS if is_first else 0
        if kind in _THINKING_TYPES:
            return self._thinking(part, at)
        if kind in _TEXT_TYPES:
            text = part.get("refusal" if kind == "refusal" else "text")
            if not isinstance(text, str):
                raise refuse(f"Invalid type for '{at}.text': expected a string.", f"{at}.text", "invalid_type")
            mark = self._part_mark(part, at, text)
            return self._maker.make(BlockKind.TEXT, label, text, extra_tokens=extra, mark=mark)
        key = digest(*label, dumps(_unmarked(part)))
        return Block(BlockKind.MEDIA, key, IMAGE_TOKENS + extra, cuts=(key,), mark=self._part_mark(part, at, None))

    def _part_mark(self, part: Json, at: str, text: str | None) -> Life | None:
        if reads_control(self.profile):
            return cache_control(part, at) if text is None else text_mark(part, at, text)
        return breakpoint_mark(part, at, self.profile) if reads_breakpoint(self.profile) else None

    def _thinking(self, block: object, at: str) -> Block:
        block = object_at(block, at)
        forbid(block, at, self.profile)
        if reads_control(self.profile) and CACHE_CONTROL in block:
            raise refuse(f"{at}.thinking.cache_control: Extra inputs are not permitted", f"{at}.cache_control")
        return self._maker.make(BlockKind.THINKING, (b"assistant",), _dumps(_unmarked(block)))

    def _call(self, call: object, at: str) -> Block:
        if not isinstance(call, dict) or not isinstance(call.get("function"), Mapping):
            raise refuse(f"Missing required parameter: '{at}.function'.", at, "missing_required_parameter")
        forbid(call, at, self.profile)
        mark = cache_control(call, at) if reads_control(self.profile) and self.profile.message_mark else None
        return self._maker.make(BlockKind.CALL, (b"assistant",), _dumps(_unmarked(call)), mark=mark)

    def _result(self, message: Json, at: str) -> Turn:
        content = message.get("content")
        if not isinstance(content, str | list | None):
            raise refuse(f"Invalid type for '{at}.content': expected a string or an array.", f"{at}.content")
        answers = message.get("tool_call_id")
        if message["role"] == "tool" and not isinstance(answers, str):
            name = f"{at}.tool_call_id"
            raise refuse(f"Missing required parameter: '{name}'.", name, "missing_required_parameter")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        blocks = [self._part(part, (b"tool", b""), f"{at}.content[{i}]", False) for i, part in enumerate(parts)]
        media = [block for block in blocks if block.kind is BlockKind.MEDIA]
        texts = [str(part.get("text") or "") for part, block in zip(parts, blocks, strict=True) if block not in media]
        mark = self._result_mark(message, at, next((b.mark for b in reversed(blocks) if b.mark is not None), None))
        label = (b"tool", utf8(str(answers or message.get("name"))), *(block.digest for block in media))
        extra = MESSAGE_OVERHEAD_TOKENS + sum(block.tokens for block in media)
        block = self._maker.make(BlockKind.RESULT, label, "\n".join(texts), extra_tokens=extra, mark=mark)
        call_id = answers if message["role"] == "tool" else None
        return Turn(str(message["role"]), (block,), answers=call_id, has_image=bool(media))

    def _result_mark(self, message: Json, at: str, inside: Life | None) -> Life | None:
        """The marker on a result: the marker on the message, or the last marker inside its content, depending on which
        of them the provider reads."""
        if self.profile.result_mark is MarkPlace.PART or not reads_control(self.profile):
            return inside
        if inside is not None and self.profile.result_mark is MarkPlace.MESSAGE:
            raise refuse(
                f"{at}: cache_control may not be specified within `tool_result.content`. "
                "Instead, place it directly on `tool_result`",
                f"{at}.content",
            )
        return cache_control(message, at) or inside

    def _tool(self, tool: object, at: str) -> Block:
        tool = object_at(tool, at)
        function = tool.get("function")
        forbid(tool, at, self.profile)
        reads_marks = reads_control(self.profile) and self.profile.tool_mark
        mark = cache_control(tool, at) if reads_marks else None
        if isinstance(function, Mapping):
            forbid(function, f"{at}.function", self.profile)
            if reads_marks:
                mark = mark or cache_control(function, f"{at}.function")
            tool = {**tool, "function": _unmarked(function)}
        return self._maker.make(BlockKind.TOOL, (), _dumps(_unmarked(tool)), mark=mark)


def _unmarked(owner: Json) -> Json:
    return {key: item for key, item in owner.items() if key not in (CACHE_CONTROL, BREAKPOINT)}


def _dumps(value: object) -> str:
    return dumps(value).decode()

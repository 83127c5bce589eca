"""Reads chat requests as a provider does, and refuses what that provider would refuse.

A request consists of blocks, which are the smallest units that a provider's cache distinguishes. A block may carry a
marker. ``BlockMaker`` makes blocks from texts, ``TurnReader`` turns messages and tools into blocks and reads each
distinct message once, and ``read_chat`` reads a whole request.

Each provider accepts a cache marker of an OpenAI-format request in certain places, and refuses it in others.
Anthropic's rules are those of litellm 1.109's translation (``llms/anthropic/chat/transformation.py``, ``factory.py``):
a marker is kept on parts and on string content. It is dropped at message level beside list content. On a tool result it
is read only at message level. It is refused inside a tool result's content, on thinking blocks and on empty text.
OpenAI up to GPT-5.5 knows no marker and refuses unknown parameters. GPT-5.6 and newer accept
``prompt_cache_breakpoint`` on parts of messages that are not the assistant's. Groq, Mistral and Fireworks refuse
unknown parameters; other providers ignore them. DashScope reads markers only on content parts, also within a tool
result. All these rules are in the profile.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from hashlib import sha256
from typing import Any

import orjson
from msgspec import Raw

from proxy.kit.errors import UpstreamRejected
from proxy.kit.lru import LastUsed
from proxy.kit.value import dataclass, digest
from proxy.protocol.caches import Life
from proxy.protocol.providers import CacheProfile, MarkPlace
from proxy.protocol.request.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS, Encode, TokenCounter
from proxy.protocol.wire.json_body import Unreadable, elements, members_of, printable, text_value, utf8

Json = Mapping[str, Any]


class BlockKind(StrEnum):
    """The kind of a block. A look-back counts consecutive calls, or consecutive results, as one run."""

    TOOL = "tool"
    TEXT = "text"
    MEDIA = "media"
    THINKING = "thinking"
    CALL = "call"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """One position of a prompt. ``digest`` covers role and content, never a marker.

    ``cuts`` are digests of the block's slices, for caches that find a prefix inside a block; empty if the provider does
    not look inside blocks. ``is_empty``: the text has no visible character.
    """

    kind: BlockKind
    digest: bytes
    tokens: int
    cuts: tuple[bytes, ...] = ()
    mark: Life | None = None
    is_empty: bool = False


# Far below the 128-token step of the providers that look inside a block.
SLICE_CHARS = 256

# Token counts can be added if the text is split where a paragraph starts at the margin, because o200k_base's pattern
# never joins a run of newlines with a following letter. So only the changed paragraphs of an edited file are counted
# again.
_PARAGRAPH = re.compile(r"(?<=\n\n)(?=\S)")
_LONG_CHARS = 2048


class BlockMaker:
    """Makes blocks from text. Each text is counted only once."""

    def __init__(self, encode: Encode, *, cuts: bool, remembered: int = 200_000) -> None:
        self._counter = TokenCounter(encode, capacity=remembered)
        self._cuts = cuts

    def make(
        self, kind: BlockKind, label: Sequence[bytes], text: str, *, extra_tokens: int = 0, mark: Life | None = None
    ) -> PromptBlock:
        """A block of ``text``. ``label`` are further values that are part of the prefix (role, name, id)."""
        head = digest(kind.encode(), *label)
        starts = range(0, max(1, len(text)), SLICE_CHARS) if self._cuts else ()
        return PromptBlock(
            kind=kind,
            digest=digest(head, utf8(text)),
            tokens=self.count(text) + extra_tokens,
            cuts=tuple(digest(b"" if i else head, utf8(text[i : i + SLICE_CHARS])) for i in starts),
            mark=mark,
            is_empty=not text.strip(),
        )

    def count(self, text: str) -> int:
        """The number of tokens of a text."""
        parts = _PARAGRAPH.split(text) if len(text) > _LONG_CHARS else [text]
        return sum(self._counter.count(digest(utf8(part)), part) for part in parts)


def dumps(value: object, option: int = 0) -> bytes:
    """The JSON of a parsed value. Raises UpstreamRejected if it is nested more deeply than any provider accepts."""
    with suppress(orjson.JSONEncodeError):
        return orjson.dumps(value, option=option)
    try:
        # The value may contain half of a surrogate pair, which is written as an escape.
        return json.dumps(value, sort_keys=bool(option & orjson.OPT_SORT_KEYS)).encode()
    except RecursionError as error:
        raise refuse("The JSON body of your request is nested too deeply.") from error


def parsed_value(raw: bytes, at: str) -> Any:
    """The parsed value, with halves of surrogate pairs kept. Raises UpstreamRejected if it is no JSON."""
    try:
        return text_value(raw)
    except Unreadable as error:
        raise refuse(f"'{at}' is not valid JSON text.", at) from error


def refuse(message: str, param: str | None = None, code: str | None = None) -> UpstreamRejected:
    """A 400 in OpenAI's form."""
    return UpstreamRejected(message, status=400, error_type="invalid_request_error", code=code, param=param)


CACHE_CONTROL = "cache_control"
BREAKPOINT = "prompt_cache_breakpoint"


def object_at(value: object, at: str, profile: CacheProfile, *, breakpoint_allowed: bool = False) -> Json:
    """A part of a request, which must be an object without a marker field that the provider does not know on it. Raises
    UpstreamRejected."""
    if not isinstance(value, dict):
        raise refuse(f"Invalid type for '{at}': expected an object.", at, "invalid_type")
    reads = profile.dialect.key
    if reads == CACHE_CONTROL or not (reads == BREAKPOINT or profile.refuses_unknown):
        return value
    for field in (CACHE_CONTROL, BREAKPOINT):
        if field in value and not (field == reads and breakpoint_allowed):
            name = f"{at}.{field}" if at else field
            raise refuse(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    return value


def cache_control(owner: Json, at: str, text: str | None = None) -> Life | None:
    """The TTL for which an Anthropic marker asks. A ``text`` that it marks must not be empty."""
    control = owner.get(CACHE_CONTROL)
    if control is None:
        return None
    if not isinstance(control, Mapping) or control.get("type") != "ephemeral":
        raise refuse(f"{at}.cache_control.type: Input should be 'ephemeral'", f"{at}.cache_control")
    ttl = control.get("ttl", "5m")
    if ttl not in ("5m", "1h"):
        raise refuse(f"{at}.cache_control.ttl: Input should be '5m' or '1h'", f"{at}.cache_control.ttl")
    if text is not None and not text.strip():
        raise refuse(f"{at}: cache_control cannot be set for empty text blocks", f"{at}.cache_control")
    return "1h" if ttl == "1h" else "5m"


def named_life(options: Json, at: str, profile: CacheProfile) -> Life:
    """The TTL for which a ``ttl`` member asks, by the provider's own names."""
    short, long = profile.ttls
    ttl = options.get("ttl", short)
    if ttl == short:
        return "5m"
    if ttl != long or profile.long_life_s <= 0:
        raise refuse(f"Invalid '{at}.ttl'.", f"{at}.ttl", "invalid_value")
    return "1h"


SYSTEM_ROLES = frozenset({"system", "developer"})
_ROLES = SYSTEM_ROLES | {"user", "assistant", "tool", "function"}
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal"})
_THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})
KNOWN_TURNS = 20_000


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message. ``call_ids`` are the ids of the calls that it makes, and ``answers`` is the id of the call that it
    answers."""

    role: str
    blocks: tuple[PromptBlock, ...]
    call_ids: tuple[str, ...] = ()
    answers: str | None = None
    has_image: bool = False


class TurnReader:
    """Reads messages as one provider does. It remembers them by the digest of their raw JSON."""

    def __init__(self, maker: BlockMaker, profile: CacheProfile, *, remembered: int = KNOWN_TURNS) -> None:
        self._maker = maker
        self.profile = profile
        self._reads_control = profile.dialect.key == CACHE_CONTROL
        self._turns: LastUsed[bytes, PromptMessage] = LastUsed(remembered)
        self._tools: LastUsed[bytes, tuple[tuple[PromptBlock, ...], tuple[str, ...]]] = LastUsed(remembered // 100)

    def turn(self, raw: bytes, at: str) -> PromptMessage:
        """The message whose JSON is ``raw``. ``at`` is its path for error messages."""
        key = sha256(raw).digest()
        turn = self._turns.find(key)
        if turn is None:
            turn = self.read(parsed_value(raw, at), at)
            self._turns.put(key, turn)
        return turn

    def tools(self, raw: bytes) -> tuple[tuple[PromptBlock, ...], tuple[str, ...]]:
        """The tool definitions whose JSON array is ``raw``, and the names of functions among them."""
        key = sha256(raw).digest()
        if (found := self._tools.find(key)) is None:
            tools = parsed_value(raw, "tools")
            if not isinstance(tools, list | None):
                raise refuse("Invalid type for 'tools': expected an array.", "tools", "invalid_type")
            blocks = tuple(self._tool(tool, f"tools[{i}]") for i, tool in enumerate(tools or ()))
            functions = [tool["function"] for tool in tools or () if isinstance(tool.get("function"), Mapping)]
            found = blocks, tuple(printable(str(function.get("name"))) for function in functions)
            self._tools.put(key, found)
        return found

    def read(self, message: object, at: str) -> PromptMessage:
        """The turn of a parsed message."""
        message = object_at(message, at, self.profile)
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise refuse(f"Invalid value for '{at}.role'.", f"{at}.role", "invalid_value")
        if role in ("tool", "function"):
            return self._result(message, at)
        if role == "assistant":
            return self._assistant(message, at)
        return self._spoken(message, "system" if role in SYSTEM_ROLES else role, at)

    def _spoken(self, message: Json, role: str, at: str) -> PromptMessage:
        content = message.get("content")
        if not isinstance(content, str | list):
            raise refuse(f"Invalid type for '{at}.content': expected a string or an array.", f"{at}.content")
        blocks = self._content(message, role, at)
        return PromptMessage(role, blocks, has_image=any(block.kind is BlockKind.MEDIA for block in blocks))

    def _assistant(self, message: Json, at: str) -> PromptMessage:
        content, calls = message.get("content"), message.get("tool_calls") or []
        thinking = message.get("thinking_blocks") or []
        if not (isinstance(content, str | list | None) and isinstance(calls, list) and isinstance(thinking, list)):
            raise refuse(f"Invalid type in '{at}': expected text or arrays.", at, "invalid_type")
        blocks = [self._thinking(block, f"{at}.thinking_blocks[{i}]") for i, block in enumerate(thinking)]
        if content:
            blocks += [block for block in self._content(message, "assistant", at) if not block.is_empty]
        blocks += [self._call(call, f"{at}.tool_calls[{i}]") for i, call in enumerate(calls)]
        if isinstance(message.get("function_call"), Mapping):
            blocks.append(self._maker.make(BlockKind.CALL, (b"function",), dumps(message["function_call"]).decode()))
        return PromptMessage("assistant", tuple(blocks), call_ids=tuple(str(call.get("id")) for call in calls))

    def _content(self, message: Json, role: str, at: str) -> tuple[PromptBlock, ...]:
        content = message["content"]
        label = (role.encode(), utf8(str(message.get("name") or "")))
        if isinstance(content, str):
            mark = None
            if self._reads_control and self.profile.message_mark and not (role == "assistant" and not content):
                mark = cache_control(message, at, content)
            return (self._maker.make(BlockKind.TEXT, label, content, extra_tokens=MESSAGE_OVERHEAD_TOKENS, mark=mark),)
        return tuple(self._part(part, label, f"{at}.content[{i}]", i == 0) for i, part in enumerate(content))

    def _part(self, part: object, label: tuple[bytes, bytes], at: str, is_first: bool) -> PromptBlock:
        part = object_at(part, at, self.profile, breakpoint_allowed=label[0] != b"assistant")
        kind = part.get("type")
        if not isinstance(kind, str):
            raise refuse(f"Missing required parameter: '{at}.type'.", f"{at}.type", "missing_required_parameter")
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
        return PromptBlock(
            BlockKind.MEDIA, key, IMAGE_TOKENS + extra, cuts=(key,), mark=self._part_mark(part, at, None)
        )

    def _part_mark(self, part: Json, at: str, text: str | None) -> Life | None:
        """The TTL of a marker on a part; ``text`` is None if the part is not text."""
        if self._reads_control:
            return cache_control(part, at, text)
        control = part.get(BREAKPOINT) if self.profile.dialect.key == BREAKPOINT else None
        if control is None:
            return None
        at = f"{at}.{BREAKPOINT}"
        if not isinstance(control, Mapping) or control.get("mode") != "explicit":
            raise refuse(f"Invalid value: '{at}.mode' must be 'explicit'.", f"{at}.mode")
        return named_life(control, at, self.profile)

    def _thinking(self, block: object, at: str) -> PromptBlock:
        block = object_at(block, at, self.profile)
        if self._reads_control and CACHE_CONTROL in block:
            raise refuse(f"{at}.thinking.cache_control: Extra inputs are not permitted", f"{at}.cache_control")
        return self._maker.make(BlockKind.THINKING, (b"assistant",), dumps(_unmarked(block)).decode())

    def _call(self, call: object, at: str) -> PromptBlock:
        call = object_at(call, at, self.profile)
        if not isinstance(call.get("function"), Mapping):
            raise refuse(f"Missing required parameter: '{at}.function'.", at, "missing_required_parameter")
        mark = cache_control(call, at) if self._reads_control and self.profile.message_mark else None
        return self._maker.make(BlockKind.CALL, (b"assistant",), dumps(_unmarked(call)).decode(), mark=mark)

    def _result(self, message: Json, at: str) -> PromptMessage:
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
        return PromptMessage(str(message["role"]), (block,), answers=call_id, has_image=bool(media))

    def _result_mark(self, message: Json, at: str, inside: Life | None) -> Life | None:
        """The marker on a result: the marker on the message, or the last marker inside its content, depending on which
        of them the provider reads."""
        if self.profile.result_mark is MarkPlace.PART or not self._reads_control:
            return inside
        if inside is not None and self.profile.result_mark is MarkPlace.MESSAGE:
            raise refuse(
                f"{at}: cache_control may not be specified within `tool_result.content`. "
                "Instead, place it directly on `tool_result`",
                f"{at}.content",
            )
        return cache_control(message, at) or inside

    def _tool(self, tool: object, at: str) -> PromptBlock:
        tool = object_at(tool, at, self.profile)
        function = tool.get("function")
        reads_marks = self._reads_control and self.profile.tool_mark
        mark = cache_control(tool, at) if reads_marks else None
        if isinstance(function, Mapping):
            object_at(function, f"{at}.function", self.profile)
            if reads_marks:
                mark = mark or cache_control(function, f"{at}.function")
            tool = {**tool, "function": _unmarked(function)}
        return self._maker.make(BlockKind.TOOL, (), dumps(_unmarked(tool)).decode(), mark=mark)


def _unmarked(owner: Json) -> Json:
    return {key: item for key, item in owner.items() if key not in (CACHE_CONTROL, BREAKPOINT)}


_MAX_CHOICES = 128
_OPENING_BYTES = 1024

# Members that are read as raw JSON, block by block. All other members are small, and are parsed.
_LARGE = frozenset({"messages", "tools"})


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request. ``head`` is the number of turns in the system section. ``settings`` is the body without messages
    and tools. ``opening`` are the body's first bytes."""

    model: str
    turns: tuple[PromptMessage, ...]
    head: int
    tools: tuple[PromptBlock, ...]
    tool_names: tuple[str, ...]
    settings: Mapping[str, Any]
    stream: bool
    opening: bytes = b""


def read_chat(body: bytes, reader: TurnReader) -> ChatRequest:
    """The request. Raises UpstreamRejected (400) if the provider would refuse it."""
    try:
        members = members_of(body)
    except Unreadable as error:
        raise refuse("We could not parse the JSON body of your request.") from error
    settings = {name: parsed_value(bytes(raw), name) for name, raw in members.items() if name not in _LARGE}
    model = settings.get("model")
    if not isinstance(model, str) or not model or printable(model) != model:
        raise refuse("you must provide a model parameter", "model", "missing_required_parameter")
    object_at(settings, "", reader.profile)
    if "stratiform" in settings:
        raise refuse("Unknown parameter: 'stratiform'.", "stratiform", "unknown_parameter")
    turns = _turns(members, reader)
    _check_tool_turns(turns)
    _check_numbers(settings)
    tools, names = reader.tools(bytes(members.get("tools", b"null")))
    options = settings.get("stream_options")
    stream = settings.get("stream") is True
    if options is not None and not stream:
        raise refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    return ChatRequest(
        model=model,
        turns=turns,
        head=next((i for i, turn in enumerate(turns) if turn.role not in SYSTEM_ROLES), len(turns)),
        tools=tools,
        tool_names=names,
        settings=settings,
        stream=stream,
        opening=body[:_OPENING_BYTES],
    )


def wants_usage(settings: Mapping[str, Any]) -> bool:
    """Whether a stream must end with its usage."""
    options = settings.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is True


def _turns(members: Mapping[str, Raw], reader: TurnReader) -> tuple[PromptMessage, ...]:
    if "messages" not in members:
        raise refuse("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
    try:
        messages = elements(members["messages"], most=None)
    except Unreadable as error:
        raise refuse(
            "Invalid type for 'messages': expected an array of objects.", "messages", "invalid_type"
        ) from error
    if not messages:
        raise refuse("Invalid 'messages': empty array. Expected at least one message.", "messages", "empty_array")
    return tuple(reader.turn(bytes(raw), f"messages[{i}]") for i, raw in enumerate(messages))


def _check_tool_turns(turns: Sequence[PromptMessage]) -> None:
    """Check that every tool call is answered directly after it, and that no message answers a call that was not
    made."""
    open_calls: set[str] = set()
    for i, turn in enumerate(turns):
        if turn.answers is not None and turn.answers not in open_calls:
            raise refuse(
                "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
                f"messages[{i}].role",
            )
        if turn.answers is None and open_calls:
            raise refuse(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'.",
                f"messages[{i}].role",
            )
        open_calls = set(turn.call_ids) if turn.answers is None else open_calls - {turn.answers}
    if open_calls:
        raise refuse(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'.",
            "messages",
        )


def _check_numbers(settings: Mapping[str, Any]) -> None:
    for name in ("max_tokens", "max_completion_tokens", "n"):
        number = settings.get(name)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise refuse(f"Invalid '{name}': expected an integer of at least 1.", name, "integer_below_min_value")
    if (settings.get("n") or 1) > _MAX_CHOICES:
        raise refuse(f"Invalid 'n': expected at most {_MAX_CHOICES}.", "n", "integer_above_max_value")

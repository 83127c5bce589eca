"""One provider: its cache, its rules, and its answers. Pure; the caller gives the time.

An answer is deterministic and plausible: a text of the requested length, a value of the requested schema, or calls of
the requested tools. Its usage has the provider's own fields. Anthropic's have the form in which litellm 1.109 passes
them on (``llms/anthropic/chat/transformation.py``, ``calculate_usage``): the prompt tokens include the cached tokens.
DashScope's: https://www.alibabacloud.com/help/en/model-studio/context-cache.

``lay_out`` turns a request into the prompt that the provider's cache sees: the positions of its blocks, with the seeds
between the sections, and the values by which the provider separates caches. The order is tools, then system, then
messages. The profile (``CacheProfile.breaking``) says which request members stand before which section: a change of
such a member breaks the cache for everything after it. ``PromptReader`` reads bodies into prompts, and ``Provider``
bills them and answers.
"""

import base64
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import count
from operator import getitem
from typing import Any

import orjson

from proxy.core.caches import make_cache, validate
from proxy.core.caches.cache import Bill, Life, Prompt
from proxy.core.digest import chain, digest
from proxy.core.providers import DEFAULTS, NONE, CacheProfile, Family, UsageForm
from proxy.core.request.tokens import Encode
from proxy.core.response.event_format import DONE, event_of
from proxy.core.value import dataclass, replace
from proxy.core.wire.json_body import utf8
from proxy.upstream.embedded.turns import (
    KNOWN_TURNS,
    SYSTEM_ROLES,
    Block,
    BlockKind,
    BlockMaker,
    ChatRequest,
    Json,
    Turn,
    TurnReader,
    cache_control,
    dumps,
    joined,
    named_life,
    read_chat,
    read_small,
    refuse,
    wants_usage,
)

# Schemas may refer to themselves. OpenAI allows 5000 properties ("Structured outputs").
_MAX_VALUES = 5000
_NO_SCHEMA = (AttributeError, IndexError, KeyError, RecursionError, StopIteration, TypeError, ValueError)


def _example(schema: Mapping[str, Any], root: Mapping[str, Any], left: Iterator[int]) -> Any:
    """A minimal value of ``schema``, made of required properties, first choices and lower bounds; local references are
    followed. Raises many kinds of errors if it is no schema, or asks for more values than are ``left``."""
    next(left)
    if "$ref" in schema:
        # The reference is local: ``#/$defs/name``.
        names = filter(None, schema["$ref"].removeprefix("#").split("/"))
        return _example(reduce(getitem, names, root), root, left)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        # Choosing null ends a schema that refers to itself.
        null = next((choice for choice in choices if choice.get("type") == "null"), None)
        return _example(null or choices[0], root, left)
    kind = schema.get("type", "object")
    match ("null" if "null" in kind else kind[0]) if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            return {name: _example(properties.get(name, {}), root, left) for name in schema.get("required", properties)}
        case "array":
            return [_example(schema.get("items", {}), root, left) for _ in range(schema.get("minItems", 0))]
        case "string":
            return "text".ljust(min(schema.get("minLength", 0), _MAX_VALUES), "x")[: schema.get("maxLength")]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return None


DEFAULT_OUTPUT_TOKENS = 60

_SENTENCES = (
    "I read the files that you sent and the change is small.",
    "The function keeps its signature, so the callers stay as they are.",
    "The test that failed compares the header with the wrong case.",
    "I moved the check in front of the loop, where it costs nothing.",
    "There is one more place that builds the same path, and it now uses the helper.",
    "The option is read once and passed on from there.",
    "Nothing else in the module depends on the old order.",
    "An empty value is now refused with a message that names the field.",
    "The documentation says the same, so I left that paragraph alone.",
    "Run the suite once more before you merge, as the fixture has changed.",
    "If you want, I can split this into two commits.",
    "The next step would be to remove the deprecated alias.",
)


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer: text in pieces as they are streamed, or tool calls in the form of a message."""

    pieces: tuple[str, ...]
    calls: tuple[Json, ...]
    finish_reason: str
    tokens: int

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)

    def message(self) -> dict[str, Any]:
        """The answer as an OpenAI message, as the client will send it back."""
        if not self.calls:
            return {"role": "assistant", "content": self.text}
        return {"role": "assistant", "content": None, "tool_calls": [*self.calls]}


def told(bill: Bill, profile: CacheProfile) -> str:
    """A sentence about what the cache did for a prompt. It is the beginning of an answer that a person reads."""
    if bill.read or bill.write:
        did = (
            f"{bill.read:,} of {bill.total:,} prompt tokens were read from the cache, and {bill.write:,} were written."
        )
    elif bill.total < profile.min_tokens and profile.family is not Family.NONE:
        least = f"which begins at {profile.min_tokens:,}"
        did = f"{bill.total:,} prompt tokens are too few for this provider's cache, {least}."
    else:
        did = f"none of the {bill.total:,} prompt tokens were read from the cache."
    return f"(This is the offline model: {did})"


def complete(request: ChatRequest, seed: bytes, output_tokens: int, encode: Encode, opening: str = "") -> Completion:
    """The answer to a request. Equal seeds give equal answers. A text begins with the ``opening``."""
    limit = request.settings.get("max_completion_tokens") or request.settings.get("max_tokens")
    names = _called_tools(request)
    if names:
        calls = tuple(
            {"id": f"call_{seed.hex()[:20]}{i:04}", "type": "function", "function": {"name": name, "arguments": "{}"}}
            for i, name in enumerate(names)
        )
        tokens = sum(encode(name) + encode("{}") for name in names)
        return Completion(pieces=(), calls=calls, finish_reason="tool_calls", tokens=tokens)
    structured = _structured(request.settings.get("response_format"))
    if structured is not None:
        return _limited([structured[i : i + 16] for i in range(0, len(structured), 16)], limit, encode)
    return write(seed, output_tokens, limit, encode, opening)


def write(seed: bytes, output_tokens: int, limit: int | None, encode: Encode, opening: str = "") -> Completion:
    """Plain text of about ``output_tokens``, of at most ``limit``."""
    pieces = [f"{word} " for word in opening.split()]
    tokens = 0
    for word in _words(seed):
        tokens += encode(word)
        if pieces and tokens > output_tokens:
            break
        pieces.append(word)
    return _limited(pieces, limit, encode)


def _limited(pieces: Sequence[str], limit: int | None, encode: Encode) -> Completion:
    kept: list[str] = []
    tokens = 0
    for piece in pieces:
        cost = encode(piece)
        if limit is not None and kept and tokens + cost > limit:
            return Completion(tuple(kept), (), "length", tokens)
        kept.append(piece)
        tokens += cost
    return Completion(tuple(kept), (), "stop", tokens)


def _words(seed: bytes) -> Iterator[str]:
    for i in count():
        sentence = _SENTENCES[(seed[i % len(seed)] + i) % len(_SENTENCES)]
        for j, word in enumerate(sentence.split(" ")):
            yield word if i == j == 0 else " " + word


def _called_tools(request: ChatRequest) -> tuple[str, ...]:
    """The tools that this answer calls. A request that ends in tool results is answered by text."""
    choice = request.settings.get("tool_choice")
    last = request.turns[-1]
    if not request.tool_names or choice == "none" or last.answers is not None:
        return ()
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        return (name,) if isinstance(name, str) else request.tool_names[:1]
    wanted = last.asks or (1 if choice == "required" else 0)
    if request.settings.get("parallel_tool_calls") is False:
        wanted = min(wanted, 1)
    return (request.tool_names * 2)[:wanted]


def _structured(response_format: object) -> str | None:
    """JSON text if the request asks for JSON, otherwise None."""
    if not isinstance(response_format, Mapping):
        return None
    match response_format.get("type"):
        case "json_object":
            return '{"answer": "done"}'
        case "json_schema":
            wrapper = response_format.get("json_schema")
            schema = wrapper.get("schema") if isinstance(wrapper, Mapping) else None
            known = schema if isinstance(schema, Mapping) else {}
            try:
                return dumps(_example(known, known, iter(range(_MAX_VALUES)))).decode()
            except _NO_SCHEMA as error:
                raise refuse("Invalid schema for response_format.", "response_format", "invalid_json_schema") from error
        case _:
            return None


CHAT = "chat.completion"
_CHUNK = "chat.completion.chunk"
TEXT = "text_completion"


def usage_fields(bill: Bill, output_tokens: int, profile: CacheProfile) -> dict[str, Any]:
    """The ``usage`` object of an answer."""
    read_and_written = {"cached_tokens": bill.read, "cache_write_tokens": bill.write}
    lives = {"ephemeral_5m_input_tokens": bill.write_5m, "ephemeral_1h_input_tokens": bill.write_1h}
    cached: Mapping[UsageForm, Json] = {
        UsageForm.ANTHROPIC: {
            "prompt_tokens_details": {
                "cached_tokens": bill.read,
                "cache_creation_tokens": bill.write,
                "cache_creation_token_details": lives,
            },
            "cache_read_input_tokens": bill.read,
            "cache_creation_input_tokens": bill.write,
            "cache_creation": lives,
        },
        UsageForm.OPENAI: {"prompt_tokens_details": {"cached_tokens": bill.read, "audio_tokens": 0}},
        UsageForm.OPENAI_WRITES: {"prompt_tokens_details": read_and_written},
        UsageForm.KIMI: {"cached_tokens": bill.read, "prompt_tokens_details": read_and_written},
        UsageForm.DASHSCOPE: {
            "prompt_tokens_details": {
                "cached_tokens": bill.read,
                "cache_creation_input_tokens": bill.write,
                "cache_creation": {"ephemeral_5m_input_tokens": bill.write},
                "cache_type": "ephemeral",
            }
        },
        UsageForm.DEEPSEEK: {
            "prompt_cache_hit_tokens": bill.read,
            "prompt_cache_miss_tokens": bill.total - bill.read,
        },
        UsageForm.NONE: {},
    }
    return {
        "prompt_tokens": bill.total,
        "completion_tokens": output_tokens,
        "total_tokens": bill.total + output_tokens,
        **cached[profile.usage],
    }


def answer_of(
    named: Json, choices: Sequence[Completion], usage: Json, *, is_stream: bool, include_usage: bool
) -> list[bytes]:
    """An answer as one object. A stream has one event for each piece of a choice instead, and ``[DONE]`` at the end. If
    the usage was asked for, it has its own event. ``named`` are the members that every object of the answer has; they
    say whether it is a chat."""
    is_chat = named["object"] == CHAT
    if not is_stream:
        whole = (({"message": {**c.message(), "refusal": None}} if is_chat else {"text": c.text}) for c in choices)
        rows = [_row(i, said, c.finish_reason) for i, (said, c) in enumerate(zip(whole, choices, strict=True))]
        return [orjson.dumps({**named, "choices": rows, "usage": usage})]
    head = {**named, "object": _CHUNK} if is_chat else named
    rows = [row for i, choice in enumerate(choices) for row in _pieces(i, choice, is_chat=is_chat)]
    chunks = [{**head, "choices": [row], "usage": None} for row in rows]
    if include_usage:
        chunks.append({**head, "choices": [], "usage": usage})
    elif is_chat:
        for chunk in chunks:
            del chunk["usage"]
    return [*(event_of(orjson.dumps(chunk)) for chunk in chunks), DONE]


def _row(index: int, said: Json, finish_reason: str | None) -> Json:
    return {"index": index, **said, "logprobs": None, "finish_reason": finish_reason}


def _pieces(index: int, choice: Completion, *, is_chat: bool) -> Iterator[Json]:
    """The rows of a choice in the order in which they are streamed."""
    for said in _deltas(choice) if is_chat else choice.pieces:
        yield _row(index, {"delta" if is_chat else "text": said}, None)
    yield _row(index, {"delta": {}} if is_chat else {"text": ""}, choice.finish_reason)


def _deltas(choice: Completion) -> Iterator[dict[str, Any]]:
    """The deltas in the order in which OpenAI streams them: first the role, then the text in pieces, or for each call
    first its name and then its arguments."""
    yield {"role": "assistant", "content": None if choice.calls else ""}
    for piece in choice.pieces:
        yield {"content": piece}
    for index, call in enumerate(choice.calls):
        yield {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": call["function"]["arguments"]}}]}


_START = digest(b"prompt")
_RUN_KINDS = frozenset({BlockKind.CALL, BlockKind.RESULT})


def lay_out(request: ChatRequest, profile: CacheProfile, account: str) -> Prompt:
    """The prompt as the provider's cache sees it. Raises UpstreamRejected for marker options that the provider
    refuses."""
    if profile.hoists_system:
        # All system messages move before the conversation, in their order.
        turns = tuple(sorted(request.turns, key=lambda turn: turn.role not in SYSTEM_ROLES))
        request = replace(request, turns=turns, head=sum(turn.role in SYSTEM_ROLES for turn in turns))
    breaking, settings = profile.breaking, request.settings
    scope = _scope(request, profile, account)
    image = b"image" if breaking.images and any(turn.has_image for turn in request.turns) else b""
    system, messages = (
        [block for turn in turns for block in turn.blocks]
        for turns in (request.turns[: request.head], request.turns[request.head :])
    )
    sections = (
        (b"", request.tools),
        (_seed(settings, breaking.before_system), system),
        (digest(_seed(settings, breaking.before_messages), image), messages),
    )
    prompt = _positions(sections, scope)
    if profile.body_mark:
        prompt = _with_automatic(prompt, sections, settings)
    options = settings.get("prompt_cache_options")
    if not profile.implicit_marks and (not profile.meters_writes or options is None):
        return prompt
    mode, life = _read_options(options, profile)
    if not profile.implicit_marks:
        # Kimi has one TTL for the whole prompt, as if a marker stood at its end.
        return replace(prompt, marks={len(prompt.hashes) - 1: life}) if prompt.hashes else prompt
    if mode == "explicit":
        return prompt
    # In implicit mode, the provider sets a boundary itself, and looks up the ends of earlier messages.
    endings, head_end = _endings(request)
    return replace(prompt, endings=tuple(endings), head_end=head_end)


def extend(prompt: Prompt, turn: Turn) -> bytes:
    """The digest of the prompt followed by one more turn, which will be a prefix of the next request."""
    state = prompt.hashes[-1] if prompt.hashes else _START
    for block in turn.blocks:
        for cut in block.cuts or (block.digest,):
            state = chain(state, cut)
    return state


def _scope(request: ChatRequest, profile: CacheProfile, account: str) -> bytes:
    """The digest of all values that separate the provider's caches from the first token on. Empty if it caches
    nothing."""
    routing, settings = profile.routing, request.settings
    if profile.key_required and routing is not None and not settings.get(routing.name):
        return b""
    parts = [account.encode(), request.model.encode(), _seed(settings, profile.breaking.before_tools)]
    if profile.stores > 1:
        parts.append(b"%d" % (int.from_bytes(digest(request.opening)) % profile.stores))
    return digest(*parts)


def _seed(settings: Mapping[str, Any], names: Sequence[str]) -> bytes:
    known = {name: settings[name] for name in names if settings.get(name) is not None}
    changed = {name: value for name, value in known.items() if value != DEFAULTS.get(name)}
    return digest(dumps(changed, orjson.OPT_SORT_KEYS))


def _positions(sections: Sequence[tuple[bytes, Sequence[Block]]], scope: bytes) -> Prompt:
    hashes: list[bytes] = []
    ends: list[int] = []
    runs: list[int] = []
    marks: dict[int, Life] = {}
    state, total, run, previous = _START, 0, -1, None
    for seed, blocks in sections:
        state = chain(state, seed)
        for block in blocks:
            if block.kind not in _RUN_KINDS or block.kind is not previous:
                run += 1
            previous = block.kind
            cuts = block.cuts or (block.digest,)
            for i, cut in enumerate(cuts, 1):
                state = chain(state, cut)
                hashes.append(state)
                ends.append(total + block.tokens * i // len(cuts))
                runs.append(run)
            total += block.tokens
            if block.mark is not None:
                marks[len(hashes) - 1] = block.mark
    return Prompt(scope, tuple(hashes), tuple(ends), tuple(runs), marks)


def _with_automatic(
    prompt: Prompt, sections: Sequence[tuple[bytes, Sequence[Block]]], settings: Mapping[str, Any]
) -> Prompt:
    """The prompt with Anthropic's automatic caching: a top-level marker counts for the last block that may have a
    marker."""
    life = cache_control(settings, "")
    if life is None:
        return prompt
    blocks = [block for _, section in sections for block in section]
    eligible = [i for i, block in enumerate(blocks) if block.kind is not BlockKind.THINKING and not block.is_empty]
    if not eligible:
        return prompt
    last = eligible[-1]
    explicit = prompt.marks.get(last)
    if explicit is not None and explicit != life:
        raise refuse("cache_control: the last block is already marked with another ttl", "cache_control")
    return replace(prompt, marks={**prompt.marks, last: life})


def _read_options(options: object, profile: CacheProfile) -> tuple[str, Life]:
    """The mode and the TTL in ``prompt_cache_options``, as the provider would accept them."""
    given = {} if options is None else options
    mode = given.get("mode", "implicit") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or mode not in ("implicit", "explicit"):
        raise refuse("Invalid 'prompt_cache_options.mode'.", "prompt_cache_options.mode", "invalid_value")
    return mode, named_life(given, "prompt_cache_options", profile)


def _endings(request: ChatRequest) -> tuple[list[int], int]:
    """The positions at which eligible messages end, and the end of the opening instructions.

    Messages of users and the last tool output of a group are eligible. If there are none, the end of the opening
    instructions is used instead.
    """
    endings: list[int] = []
    head_end = -1
    position = len(request.tools) - 1
    for i, turn in enumerate(request.turns):
        position += len(turn.blocks)
        if position < 0:
            continue  # an empty message at the very beginning has no end position
        following = request.turns[i + 1].role if i + 1 < len(request.turns) else ""
        if turn.role == "user" or (turn.role == "tool" and following != "tool"):
            endings.append(position)
        if i == request.head - 1:
            head_end = position
    return endings or [position for position in (head_end,) if position >= 0], head_end


# A long replay needs twenty thousand turns and two hundred thousand entries.
ENTRIES_A_TURN = 10


class PromptReader:
    """Reads bodies for one provider. It reads each distinct message once."""

    def __init__(self, profile: CacheProfile, encode: Encode, remembered: int = KNOWN_TURNS) -> None:
        self.profile = profile
        self.maker = BlockMaker(encode, cuts=profile.stores_prefixes, remembered=ENTRIES_A_TURN * remembered)
        self.turns = TurnReader(self.maker, profile, remembered=remembered)

    def laid_out(self, request: ChatRequest, account: str) -> Prompt:
        """The request's positions and markers. Raises UpstreamRejected if the provider would refuse them."""
        prompt = lay_out(request, self.profile, account)
        if (complaint := validate(prompt, self.profile)) is not None:
            raise refuse(complaint, "messages")
        return prompt

    def prompt(self, body: bytes) -> Prompt:
        """The body's positions and markers, if only one account is billed. Raises UpstreamRejected."""
        return self.laid_out(read_chat(body, self.turns), "")


TAIL_TOKENS = 3
"""The tokens that the provider adds after every prompt, which are never cached (observed: 2 with Anthropic, 3 with
OpenAI)."""
_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class ProviderReply:
    """An answer to produce. ``store`` writes the exchange into the cache, given the time of the first byte."""

    chunks: Sequence[bytes]
    is_stream: bool
    bill: Bill
    output_tokens: int
    store: Callable[[float], object] = lambda available: None


class Provider:
    """A provider that answers by one cache profile. ``tells``: its texts begin with a sentence about what the cache
    did, which depends on earlier requests."""

    def __init__(
        self, profile: CacheProfile, encode: Encode, *, remembered: int = KNOWN_TURNS, tells: bool = False
    ) -> None:
        self._profile = profile
        self._tells = tells
        self._reader = PromptReader(profile, encode, remembered)
        self._count = self._reader.maker.count
        self._cache = make_cache(profile, capacity=ENTRIES_A_TURN * remembered)
        self._ids = count(1)

    def chat(self, body: bytes, account: str, now: float, output_tokens: int) -> ProviderReply:
        """``POST /chat/completions``. Raises UpstreamRejected if the provider would refuse the request."""
        request = read_chat(body, self._reader.turns)
        prompt = self._reader.laid_out(request, account)
        cached = self._cache.bill(prompt, now)
        bill = replace(cached, plain=cached.plain + TAIL_TOKENS)
        opening = told(bill, self._profile) if self._tells else ""
        # The seed is the last message, so that the same conversation gets the same answer in any layout.
        seed = digest(*(block.digest for block in request.turns[-1].blocks))
        choices = [
            complete(request, digest(seed, b"%d" % i) if i else seed, output_tokens, self._count, opening)
            for i in range(request.settings.get("n") or 1)
        ]
        tokens = sum(choice.tokens for choice in choices)
        usage = usage_fields(bill, tokens, self._profile)
        named = self._named("chatcmpl", account, now, request.model, CHAT)
        chunks = answer_of(named, choices, usage, is_stream=request.stream, include_usage=wants_usage(request.settings))
        output = None
        if self._profile.caches_output:
            output = extend(prompt, self._reader.turns.read(choices[0].message(), "output"))
        return ProviderReply(
            chunks=chunks,
            is_stream=request.stream,
            bill=bill,
            output_tokens=tokens,
            store=lambda available: self._cache.store(prompt, now, available, output),
        )

    def completions(self, body: bytes, account: str, now: float, output_tokens: int) -> ProviderReply:
        """``POST /completions``, the legacy text endpoint."""
        request = read_small(body)
        text = joined(request.get("prompt"), "prompt")
        limit = request.get("max_tokens")
        if limit is not None and not isinstance(limit, int):
            raise refuse("Invalid type for 'max_tokens': expected an integer.", "max_tokens", "invalid_type")
        choice = write(digest(utf8(text)), output_tokens, limit, self._count)
        bill = Bill(read=0, write_5m=0, write_1h=0, plain=self._count(text))
        usage = usage_fields(bill, choice.tokens, NONE)
        named = self._named("cmpl", account, now, request["model"], TEXT)
        is_stream = request.get("stream") is True
        chunks = answer_of(named, [choice], usage, is_stream=is_stream, include_usage=wants_usage(request))
        return ProviderReply(chunks=chunks, is_stream=is_stream, bill=bill, output_tokens=choice.tokens)

    def embeddings(self, body: bytes) -> ProviderReply:
        """``POST /embeddings``: small vectors. Equal texts have equal vectors."""
        request = read_small(body)
        given = request.get("input")
        is_batch = isinstance(given, list) and any(isinstance(item, str | list) for item in given)
        texts = [joined(item, "input") for item in (given if is_batch and isinstance(given, list) else [given])]
        dimensions = request.get("dimensions") or _DIMENSIONS
        if not isinstance(dimensions, int) or not 0 < dimensions <= 4096:
            raise refuse("Invalid 'dimensions'.", "dimensions", "invalid_value")
        vectors: list[Any] = [_vector(text, dimensions) for text in texts]
        if request.get("encoding_format") == "base64":  # little-endian floats; the ``openai`` SDK asks for this form
            vectors = [base64.b64encode(struct.pack(f"<{dimensions}f", *one)).decode() for one in vectors]
        rows = [{"object": "embedding", "index": i, "embedding": one} for i, one in enumerate(vectors)]
        tokens = sum(self._count(text) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        answer = {"object": "list", "data": rows, "model": request.get("model"), "usage": usage}
        return ProviderReply(
            chunks=[orjson.dumps(answer)], is_stream=False, bill=Bill(0, 0, 0, plain=tokens), output_tokens=0
        )

    def _named(self, prefix: str, account: str, now: float, model: str, kind: str) -> Json:
        name = digest(account.encode(), self._profile.name.encode(), b"%d" % next(self._ids)).hex()
        return {"id": f"{prefix}-{name}", "object": kind, "created": int(now), "model": model}


def _vector(text: str, dimensions: int) -> list[float]:
    """A vector of length one, as OpenAI's vectors are."""
    raw = [
        word / 32768 - 1
        for i in range(-(-dimensions // _DIMENSIONS))
        for word in struct.unpack(f"<{_DIMENSIONS}H", digest(utf8(text), b"%d" % i))
    ][:dimensions]
    length = sum(x * x for x in raw) ** 0.5 or 1.0
    return [x / length for x in raw]

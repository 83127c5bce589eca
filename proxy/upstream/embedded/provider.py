"""One provider: its cache, its rules, and its answers. Pure; the caller gives the time.

An answer is deterministic and plausible: a text of the requested length, an object if JSON is asked for, or calls of
the requested tools. Its usage has the provider's own fields. Anthropic's have the form in which litellm 1.109 passes
them on (``llms/anthropic/chat/transformation.py``, ``calculate_usage``): the prompt tokens include the cached tokens.
DashScope's: https://www.alibabacloud.com/help/en/model-studio/context-cache.

``lay_out`` turns a request into the prompt that the provider's cache sees: the positions of its blocks, with the seeds
between the sections, and the values by which the provider separates caches. The order is tools, then system, then
messages. The profile (``CacheProfile.breaking``) says which request members stand before which section: a change of
such a member breaks the cache for everything after it. ``PromptReader`` reads bodies into prompts, and ``Provider``
bills them and answers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import orjson

from proxy.kit.value import chain, dataclass, digest, replace
from proxy.protocol.caches import Bill, Life, PromptPositions, make_cache, validate
from proxy.protocol.providers import DEFAULTS, CacheProfile, Family, UsageForm
from proxy.protocol.request.tokens import Encode
from proxy.protocol.response.event_format import DONE, event_of
from proxy.upstream.embedded.turns import (
    KNOWN_TURNS,
    SYSTEM_ROLES,
    BlockKind,
    BlockMaker,
    ChatRequest,
    Json,
    PromptBlock,
    PromptMessage,
    TurnReader,
    cache_control,
    dumps,
    named_life,
    read_chat,
    refuse,
    wants_usage,
)

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
# The answer to a request for JSON, in the pieces of a stream. No schema is followed.
_OBJECT = ('{"answer": ', '"done"}')


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer: text in pieces as they are streamed, or a tool call in the form of a message."""

    pieces: tuple[str, ...]
    finish_reason: str
    tokens: int
    call: Json | None = None

    def message(self) -> dict[str, Any]:
        """The answer as an OpenAI message, as the client will send it back."""
        if self.call is None:
            return {"role": "assistant", "content": "".join(self.pieces)}
        return {"role": "assistant", "content": None, "tool_calls": [self.call]}


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
    if name := _called_tool(request):
        function = {"name": name, "arguments": "{}"}
        call = {"id": f"call_{seed.hex()[:24]}", "type": "function", "function": function}
        return Completion((), "tool_calls", encode(name) + encode("{}"), call)
    form = request.settings.get("response_format")
    if isinstance(form, Mapping) and form.get("type") in ("json_object", "json_schema"):
        return _limited(_OBJECT, limit, encode)
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
            return Completion(tuple(kept), "length", tokens)
        kept.append(piece)
        tokens += cost
    return Completion(tuple(kept), "stop", tokens)


def _words(seed: bytes) -> Iterator[str]:
    for i in count():
        sentence = _SENTENCES[(seed[i % len(seed)] + i) % len(_SENTENCES)]
        for j, word in enumerate(sentence.split(" ")):
            yield word if i == j == 0 else " " + word


def _called_tool(request: ChatRequest) -> str:
    """The tool that this answer calls, if the request demands a call; empty if the answer is a text. A request that
    ends in tool results is answered by text."""
    choice = request.settings.get("tool_choice")
    if not request.tool_names or request.turns[-1].answers is not None:
        return ""
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        return name if isinstance(name, str) else request.tool_names[0]
    return request.tool_names[0] if choice == "required" else ""


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
    the usage was asked for, it has its own event. ``named`` are the members that every object of the answer has."""
    if not is_stream:
        rows = [_row(i, "message", {**c.message(), "refusal": None}, c.finish_reason) for i, c in enumerate(choices)]
        return [orjson.dumps({**named, "object": "chat.completion", "choices": rows, "usage": usage})]
    head = {**named, "object": "chat.completion.chunk"}
    chunks = [{**head, "choices": [row]} for i, choice in enumerate(choices) for row in _deltas(i, choice)]
    if include_usage:
        chunks = [*({**chunk, "usage": None} for chunk in chunks), {**head, "choices": [], "usage": usage}]
    return [*(event_of(orjson.dumps(chunk)) for chunk in chunks), DONE]


def _row(index: int, name: str, said: Json, finish_reason: str | None) -> Json:
    return {"index": index, name: said, "logprobs": None, "finish_reason": finish_reason}


def _deltas(index: int, choice: Completion) -> Iterator[Json]:
    """The rows of a choice in the order in which OpenAI streams them: first the role, then the text in pieces, or first
    the name of the call and then its arguments."""
    said: list[Json] = [{"role": "assistant", "content": None if choice.call else ""}]
    said += [{"content": piece} for piece in choice.pieces]
    if choice.call is not None:
        function = choice.call["function"]
        said.append({"tool_calls": [{"index": 0, **choice.call, "function": {**function, "arguments": ""}}]})
        said.append({"tool_calls": [{"index": 0, "function": {"arguments": function["arguments"]}}]})
    yield from (_row(index, "delta", one, None) for one in said)
    yield _row(index, "delta", {}, choice.finish_reason)


_START = digest(b"prompt")
_RUN_KINDS = frozenset({BlockKind.CALL, BlockKind.RESULT})


def lay_out(request: ChatRequest, profile: CacheProfile, account: str) -> PromptPositions:
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


def extend(prompt: PromptPositions, turn: PromptMessage) -> bytes:
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


def _positions(sections: Sequence[tuple[bytes, Sequence[PromptBlock]]], scope: bytes) -> PromptPositions:
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
    return PromptPositions(scope, tuple(hashes), tuple(ends), tuple(runs), marks)


def _with_automatic(
    prompt: PromptPositions, sections: Sequence[tuple[bytes, Sequence[PromptBlock]]], settings: Mapping[str, Any]
) -> PromptPositions:
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

    def laid_out(self, request: ChatRequest, account: str) -> PromptPositions:
        """The request's positions and markers. Raises UpstreamRejected if the provider would refuse them."""
        prompt = lay_out(request, self.profile, account)
        if (complaint := validate(prompt, self.profile)) is not None:
            raise refuse(complaint, "messages")
        return prompt

    def prompt(self, body: bytes) -> PromptPositions:
        """The body's positions and markers, if only one account is billed. Raises UpstreamRejected."""
        return self.laid_out(read_chat(body, self.turns), "")


TAIL_TOKENS = 3
"""The tokens that the provider adds after every prompt, which are never cached (observed: 2 with Anthropic, 3 with
OpenAI)."""


@dataclass(frozen=True, slots=True)
class ProviderReply:
    """An answer to produce. ``store`` writes the exchange into the cache, given the time of the first byte."""

    chunks: Sequence[bytes]
    is_stream: bool
    bill: Bill
    output_tokens: int
    store: Callable[[float], object]


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
        name = digest(account.encode(), self._profile.name.encode(), b"%d" % next(self._ids)).hex()
        named = {"id": f"chatcmpl-{name}", "created": int(now), "model": request.model}
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

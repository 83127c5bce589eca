"""One provider: its cache, its rules, and its answers. Pure; the caller gives the time.

``lay_out`` turns a request into the prompt that the provider's cache sees: the positions of its blocks, with the seeds
between the sections, and the values by which the provider separates caches. The order is tools, then system, then
messages. The profile (``CacheProfile.breaking``) says which request members stand before which section: a change of
such a member breaks the cache for everything after it. ``PromptReader`` reads bodies into prompts, and ``Provider``
bills them and answers.
"""

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import orjson

from proxy.core.caches import make_cache, validate
from proxy.core.caches.cache import Bill, Life, Prompt
from proxy.core.digest import chain, digest
from proxy.core.providers import DEFAULTS, NONE, CacheProfile
from proxy.core.request.tokens import Encode
from proxy.core.value import dataclass, replace
from proxy.core.wire.json_body import utf8
from proxy.upstream.embedded.completion import CHAT, TEXT, answer_of, complete, told, usage_fields, write
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
    check_model,
    dumps,
    named_life,
    parsed_value,
    read_chat,
    read_object,
    refuse,
    wants_usage,
)

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
        request = parsed(body)
        text = _joined(request.get("prompt"), "prompt")
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
        request = parsed(body)
        given = request.get("input")
        is_batch = isinstance(given, list) and any(isinstance(item, str | list) for item in given)
        texts = [_joined(item, "input") for item in (given if is_batch and isinstance(given, list) else [given])]
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


def parsed(body: bytes) -> dict[str, Any]:
    """A small JSON object, parsed completely."""
    read_object(body)
    request: dict[str, Any] = parsed_value(body, "body")
    check_model(request)
    return request


def _joined(given: object, name: str) -> str:
    """One text from a text, a list of texts, or a list of token numbers."""
    if isinstance(given, str):
        return given
    if isinstance(given, list) and given:
        return " ".join(_joined(item, name) if isinstance(item, str | list) else str(item) for item in given)
    raise refuse(f"Invalid type for '{name}': expected a string or an array.", name, "invalid_type")


def _vector(text: str, dimensions: int) -> list[float]:
    """A vector of length one, as OpenAI's vectors are."""
    raw = [
        word / 32768 - 1
        for i in range(-(-dimensions // _DIMENSIONS))
        for word in struct.unpack(f"<{_DIMENSIONS}H", digest(utf8(text), b"%d" % i))
    ][:dimensions]
    length = sum(x * x for x in raw) ** 0.5 or 1.0
    return [x / length for x in raw]

"""One provider: its cache, its rules, and its answers. Pure; the caller gives the time."""

import base64
import struct
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import orjson

from proxy.core.caches import make_cache
from proxy.core.caches.prompt import Bill
from proxy.core.digest import digest
from proxy.core.providers import NONE, CacheProfile
from proxy.core.request.tokens import Encode
from proxy.core.value import dataclass, replace
from proxy.core.wire.surrogates import utf8
from proxy.upstream.embedded.blocks import Json, parsed_value, refuse
from proxy.upstream.embedded.completion import Completion, complete, told, write
from proxy.upstream.embedded.layout import ENTRIES_A_TURN, PromptReader, extend
from proxy.upstream.embedded.request import ChatRequest, check_model, read_object, wants_usage
from proxy.upstream.embedded.turns import KNOWN_TURNS
from proxy.upstream.embedded.wire import (
    CHAT,
    TEXT,
    answer_of,
    chat_pieces,
    chat_rows,
    text_pieces,
    text_rows,
    usage_fields,
)

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
        request = self._reader.request(body)
        prompt = self._reader.laid_out(request, account)
        cached = self._cache.bill(prompt, now)
        bill = replace(cached, plain=cached.plain + TAIL_TOKENS)
        choices = self._choices(request, output_tokens, told(bill, self._profile) if self._tells else "")
        tokens = sum(choice.tokens for choice in choices)
        usage = usage_fields(bill, tokens, self._profile)
        named = self._named("chatcmpl", account, now, request.model, CHAT)
        pieces = chat_pieces(choices) if request.stream else None
        chunks = answer_of(named, chat_rows(choices), pieces, usage, include_usage=request.include_usage)
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
        pieces = text_pieces(choice) if is_stream else None
        chunks = answer_of(named, text_rows(choice), pieces, usage, include_usage=wants_usage(request))
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

    def _choices(self, request: ChatRequest, output_tokens: int, opening: str) -> tuple[Completion, ...]:
        """The answers. Their seed is the last message, so that the same conversation gets the same answer in any
        layout."""
        seed = digest(*(block.digest for block in request.turns[-1].blocks))
        return tuple(
            complete(request, digest(seed, b"%d" % i) if i else seed, output_tokens, self._count, opening)
            for i in range(request.settings.get("n") or 1)
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

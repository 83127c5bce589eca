"""The embedded provider: an OpenAI-compatible provider in this process that really keeps a prompt cache.

The cache profile of a deployment chooses the provider that it imitates (``proxy.protocol.providers``): Claude on any
server (markers as litellm accepts them in OpenAI format), OpenAI up to GPT-5.5 and other automatic caches, OpenAI
GPT-5.6 and newer (``prompt_cache_breakpoint``), DeepSeek (units), vLLM (blocks), or a provider without a cache. Nothing
here asks for a provider's name. A request is checked as that provider would check it, cut into blocks (``turns``), laid
out in the provider's order, billed, and answered with a deterministic text and the provider's own usage fields
(``provider``, ``proxy.protocol.caches``). Cache entries appear at the first byte of the answer, or after its last byte
if the provider keeps only whole exchanges. They are dated by ``Call.now``, so that a replay in virtual time has the
recorded pauses.

``EmbeddedUpstream`` is the transport: faults, one ledger per account, and answers that are produced chunk by chunk,
with the waits that the deployment asks for. It serves chat completions and nothing else. ``Provider`` is one provider
of it, pure and usable by itself. Nothing here knows the rest of the proxy: the provider bills the requests that arrive.

Faults are failures on demand, from ``Deployment.params["faults"]`` or the request header ``x-embedded-fault``. A fault
is ``kind[;n=1][;seconds=2][;after=3][;status=503]``. ``n`` is how many requests of an account have the fault
(all requests if it is not given; faults of the same text share their count). ``seconds`` is a wait or a retry-after,
and ``after`` is the number of chunks that are sent before the fault.

- ``rate-limit``: 429 with ``retry-after``.
- ``error``: 500, or ``status``.
- ``slow-headers``, ``slow-first-byte``: a wait before the answer, or before its first byte.
- ``cut``: the connection breaks in the middle of the answer.
- ``empty-stream``: a 200 with only ``[DONE]``; ``no-bytes``: a 200 without a byte.
- ``refuse-rewrite``: a 400 if any cache marker is present.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from enum import StrEnum
from functools import cache, partial
from hashlib import sha256
from typing import Self

from proxy.engine.exchange import Call
from proxy.kit.errors import UpstreamError, UpstreamRejected, UpstreamUnavailable, error_body
from proxy.kit.value import dataclass
from proxy.models import Deployment, Headers
from proxy.protocol.request.tokens import Encode
from proxy.protocol.response.event_format import DONE
from proxy.protocol.response.usage import BillSum
from proxy.upstream.embedded.provider import DEFAULT_OUTPUT_TOKENS, Provider, ProviderReply
from proxy.upstream.embedded.turns import KNOWN_TURNS, refuse

FAULT_HEADER = "x-embedded-fault"


class FaultKind(StrEnum):
    """A kind of failure."""

    RATE_LIMIT = "rate-limit"
    ERROR = "error"
    SLOW_HEADERS = "slow-headers"
    SLOW_FIRST_BYTE = "slow-first-byte"
    CUT = "cut"
    EMPTY_STREAM = "empty-stream"
    NO_BYTES = "no-bytes"
    REFUSE_REWRITE = "refuse-rewrite"


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """One failure. ``text`` is the text in which it was written; it identifies the fault."""

    kind: FaultKind
    text: str
    n: int | None = None
    seconds: float = 1.0
    after: int = 3
    status: int = 500


def parse_fault(text: str) -> InjectedFault:
    """A fault from its text. Raises ValueError."""
    kind, *pairs = (part.strip() for part in text.split(";"))
    options = dict(pair.partition("=")[::2] for pair in pairs if pair)
    return InjectedFault(
        kind=FaultKind(kind),
        text=text,
        n=int(options["n"]) if "n" in options else None,
        seconds=float(options.get("seconds", 1.0)),
        after=int(options.get("after", 3)),
        status=int(options.get("status", 500)),
    )


@dataclass(slots=True)
class AccountTotals(BillSum):
    """The totals of one account. Tokens are billed from the first byte on, because the cache also stores from then on.

    ``cancelled`` counts calls that were given up before their end.
    """

    requests: int = 0
    answered: int = 0
    output: int = 0
    cancelled: int = 0


@dataclass(slots=True, repr=False)
class EmbeddedAnswer:
    """``proxy.engine.ports.Answer``, and the iterator over its own body: the chunks that are sent, and when.
    ``began`` is called at the first chunk. ``ended`` is called once, with the number of chunks sent so far, and whether
    the answer was given up before its end. ``breaks``: the connection breaks after the last chunk."""

    status: int
    headers: Headers
    body: Sequence[bytes]
    first_byte_s: float = 0.0
    pace_s: float = 0.0
    breaks: bool = False
    began: Callable[[], object] = lambda: None
    ended: Callable[[int, bool], object] = lambda produced, is_cancelled: None
    _produced: int = 0
    _is_over: bool = False
    _given_up: asyncio.Event = field(default_factory=asyncio.Event)

    def chunks(self) -> Self:
        """The body as it is produced."""
        return self

    __aiter__ = chunks

    async def __anext__(self) -> bytes:
        if self._produced == len(self.body) and not self._given_up.is_set():
            self._end(is_cancelled=False)
            if self.breaks:
                raise UpstreamUnavailable("the connection to the upstream broke in mid-answer")
            raise StopAsyncIteration
        seconds = self.pace_s if self._produced else self.first_byte_s
        if seconds <= 0:
            await asyncio.sleep(0)  # let other tasks run, as any socket would
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._given_up.wait(), seconds)
        if self._given_up.is_set():
            raise UpstreamUnavailable("the call was given up")
        if self._produced == 0:
            self.began()
        self._produced += 1
        return self.body[self._produced - 1]

    async def aclose(self) -> None:
        """Stop producing. A reader that waits is woken."""
        self._given_up.set()
        self._end(is_cancelled=self._produced < len(self.body) or self.breaks)

    def _end(self, *, is_cancelled: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self.ended(self._produced, is_cancelled)


ANONYMOUS = "anonymous"

_JSON: Headers = (("content-type", "application/json"),)
_SSE: Headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
_PATH = "/chat/completions"
_CUT_SLICE_BYTES = 64
# The counts of faults that have occurred are kept for at most this many distinct faults.
_KNOWN_FAULTS = 10_000


def account_name(key: str) -> str:
    """The account of an API key or Authorization header. The key cannot be computed from it."""
    secret = key.removeprefix("Bearer ").strip()
    return sha256(secret.encode()).hexdigest()[:16] if secret else ANONYMOUS


class EmbeddedUpstream:
    """``proxy.engine.ports.Upstream`` without a network: every deployment's profile has a provider with its own
    cache.

    ``Deployment.params`` may contain ``output_tokens`` (the approximate length of answers), ``first_byte_s`` and
    ``pace_s`` (the seconds before the first chunk, and before each further chunk), and ``faults`` (see ``faults``). The
    cache takes its time only from ``Call.now``.
    """

    def __init__(self, encode: Encode, *, remembered: int = KNOWN_TURNS, tells: bool = False) -> None:
        """``remembered``: how many messages each provider keeps, with ten cache entries for each message. ``tells``:
        answers say what the cache did."""
        self._provider_of = cache(partial(Provider, encode=encode, remembered=remembered, tells=tells))
        self.ledgers: dict[str, AccountTotals] = defaultdict(AccountTotals)
        """The totals of each account (``account_name`` of its key)."""
        self._struck: Counter[tuple[str, str]] = Counter()
        self._closed = False

    async def open(self, call: Call) -> EmbeddedAnswer:
        """Answer a call. A refusal of the provider is also an answer."""
        if self._closed:
            raise UpstreamUnavailable("the embedded provider is closed").unreached()
        body = call.body if isinstance(call.body, bytes) else b"".join([part async for part in call.body])
        ledger = self.ledgers[_account(call)]
        try:
            return await self._route(call, body, ledger)
        except UpstreamRejected as error:
            return EmbeddedAnswer(error.status, (*_JSON, *error.headers.items()), [error_body(error)])

    async def aclose(self) -> None:
        """Refuse further calls."""
        self._closed = True

    async def _route(self, call: Call, body: bytes, ledger: AccountTotals) -> EmbeddedAnswer:
        if call.method != "POST" or call.path != _PATH:
            raise UpstreamRejected(
                f"Invalid URL ({call.method} /v1{call.path})", status=404, error_type="invalid_request_error"
            )
        ledger.requests += 1
        shapes = self._struck_by(call, body)
        provider = self._provider_of(call.deployment.profile)
        output_tokens = int(_number(call.deployment, "output_tokens", DEFAULT_OUTPUT_TOKENS))
        reply = provider.chat(body, _account(call), call.now, output_tokens)
        headers_s = shapes[FaultKind.SLOW_HEADERS].seconds if FaultKind.SLOW_HEADERS in shapes else 0.0
        try:
            await asyncio.sleep(headers_s)
        except asyncio.CancelledError:
            ledger.cancelled += 1
            raise
        return self._answer(call, reply, shapes, headers_s, ledger)

    def _answer(
        self,
        call: Call,
        reply: ProviderReply,
        shapes: Mapping[FaultKind, InjectedFault],
        headers_s: float,
        ledger: AccountTotals,
    ) -> EmbeddedAnswer:
        name = sha256(f"{_account(call)}/{ledger.requests}/{call.now}".encode()).hexdigest()[:24]
        own: Headers = (("x-request-id", f"req_{name}"), ("x-ratelimit-limit-requests", "10000"))
        headers = (*(_SSE if reply.is_stream else _JSON), *own)
        if FaultKind.EMPTY_STREAM in shapes or FaultKind.NO_BYTES in shapes:
            nothing = [DONE] if reply.is_stream and FaultKind.EMPTY_STREAM in shapes else []
            return EmbeddedAnswer(200, headers, nothing)
        slow = shapes.get(FaultKind.SLOW_FIRST_BYTE)
        first_byte_s = slow.seconds if slow is not None else _number(call.deployment, "first_byte_s", 0.0)
        cut, total = shapes.get(FaultKind.CUT), len(reply.chunks)
        chunks = reply.chunks if cut is None else _cut(reply.chunks, cut.after)
        pace_s = _number(call.deployment, "pace_s", 0.0)
        first_byte_at, after_answer = call.now + headers_s + first_byte_s, call.deployment.profile.after_answer

        def began() -> None:
            if not after_answer:
                reply.store(first_byte_at)
            ledger.add(reply.bill)
            ledger.answered += 1

        def ended(produced: int, is_cancelled: bool) -> None:
            if after_answer and cut is None and not is_cancelled:
                reply.store(first_byte_at + pace_s * (total - 1))
            ledger.output += reply.output_tokens * min(produced, total) // total
            ledger.cancelled += is_cancelled

        return EmbeddedAnswer(200, headers, chunks, first_byte_s, pace_s, cut is not None, began, ended)

    def _struck_by(self, call: Call, body: bytes) -> Mapping[FaultKind, InjectedFault]:
        """The faults that change this answer. Raises UpstreamRejected for a fault that refuses the request."""
        account = _account(call)
        shapes: dict[FaultKind, InjectedFault] = {}
        has_marks = b'"cache_control"' in body or b'"prompt_cache_breakpoint"' in body
        for fault in _faults(call):
            if fault.kind is FaultKind.REFUSE_REWRITE and not has_marks:
                continue
            if fault.n is not None:
                if len(self._struck) >= _KNOWN_FAULTS:
                    self._struck.clear()
                self._struck[account, fault.text] += 1
                if self._struck[account, fault.text] > fault.n:
                    continue
            if (error := _rejection(fault)) is not None:
                raise error
            shapes[fault.kind] = fault
        return shapes


def _account(call: Call) -> str:
    if call.deployment.api_key:
        return account_name(call.deployment.api_key)
    return account_name(next((value for name, value in call.headers if name.lower() == "authorization"), ""))


def _faults(call: Call) -> list[InjectedFault]:
    """The faults of the headers, then those of the configuration file: one text, or a list of texts."""
    texts = [value for name, value in call.headers if name.lower() == FAULT_HEADER]
    given = call.deployment.params.get("faults")
    texts += [] if given is None else map(str, given) if isinstance(given, list | tuple) else [str(given)]
    try:
        return [parse_fault(text) for text in texts]
    except ValueError as error:
        raise refuse(f"{FAULT_HEADER}: {error}", FAULT_HEADER) from error


def _rejection(fault: InjectedFault) -> UpstreamRejected | None:
    """The error answer of a fault, if the fault is an error answer."""
    return {
        FaultKind.RATE_LIMIT: UpstreamRejected(
            "Rate limit reached for requests. Please try again later.",
            status=429,
            error_type="requests",
            code="rate_limit_exceeded",
            headers={"retry-after": f"{fault.seconds:g}", "x-ratelimit-remaining-requests": "0"},
        ),
        FaultKind.ERROR: UpstreamRejected(
            "The server had an error while processing your request.", status=fault.status, error_type="server_error"
        ),
        FaultKind.REFUSE_REWRITE: refuse("Cache markers are not accepted.", "messages"),
    }.get(fault.kind)


def _number(deployment: Deployment, name: str, default: float) -> float:
    value = deployment.params.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise UpstreamError(f"the embedded model {deployment.name!r} needs a number as {name}")
    return value


def _cut(chunks: Sequence[bytes], after: int) -> Sequence[bytes]:
    """The first chunks of an answer, but never all of them. An answer of one chunk is cut into slices."""
    if len(chunks) == 1:
        body = chunks[0]
        chunks = [body[i : i + _CUT_SLICE_BYTES] for i in range(0, len(body), _CUT_SLICE_BYTES)]
    return chunks[: min(after, len(chunks) - 1)]

"""Work on an upstream's answer, in the order in which it is done.

The beginning of an error is read before the answer is passed on, because its text decides how the request goes on. A
load balancer or a CDN in front of a provider answers in HTML or plain text. Chat clients expect OpenAI's error object,
so they get one, with the status and headers of the answer.

As an answer passes, it gets the usage of its request if the client asks for it (``stratiform: {return_usage: true}``).
A stream gets one more chunk, without choices, before the event that ends it. A JSON body gets one more member. A
compressed answer, an error, and a stream that ends within an event pass unchanged.

After the last event of a stream, its end is awaited for a moment.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import responses

import orjson

from proxy.core.response.outcome import AnswerWithout, Outcome
from proxy.core.response.refusal import NO_WORDS, Refusal, refusal_in
from proxy.core.response.stream import BodyFold, Fold, StreamFold
from proxy.core.structured.context import SECTION
from proxy.core.wire.json_body import Unreadable, text_value
from proxy.engine.exchange import Exchange
from proxy.engine.headers import content_type, is_coded
from proxy.engine.ports import UsageReports
from proxy.engine.suppress import suppress_and_log
from proxy.errors import ProxyError, UpstreamRejected, UpstreamUnavailable, error_body
from proxy.ports import Answer, Headers

_MOST_BYTES = 1 << 16
_MOST_S = 2.0
# For errors with these statuses, the text decides how the request goes on: an account without money, or a member that
# the upstream does not know.
_TELLING = frozenset({400, 402, 403, 422, 429})
# Further statuses by which an upstream may say that a request is too large.
_ON_SIZE = frozenset({413, 500})
_SHOWN_CHARS = 200
# How long the proxy waits for the end of a body after its last event. Then the connection is dropped.
_LINGER_S = 0.5
_REPLACED = frozenset({"content-type", "content-length", "content-encoding"})


def check_status(answer: Answer) -> None:
    """Raises UpstreamUnavailable if the answer's status is not one that a server may pass on (RFC 9110, section 15)."""
    if not 200 <= answer.status <= 599:
        raise UpstreamUnavailable(f"the upstream answered with status {answer.status}, which is none")


@dataclass(slots=True, repr=False)
class WholeAnswer:
    """A complete answer that replaces one that an upstream sends piece by piece."""

    status: int
    headers: Headers
    body: bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        """The whole body as one chunk."""
        if self.body:
            yield self.body

    async def aclose(self) -> None:
        """Does nothing: no connection is open."""


class ReadAhead:
    """An answer whose beginning has been read. All of it is still passed on, including the error with which it breaks
    off. The iterator of the answer's chunks must be able to continue after a wait for it was cancelled."""

    def __init__(self, answer: Answer, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.status = answer.status
        self.headers = answer.headers
        self.aclose = answer.aclose
        self._chunks: list[bytes] = []
        self._failure: ProxyError | None = None
        self._rest = answer.chunks()

    async def read(self) -> bytes:
        """The body, as far as it arrives soon and is short enough to be an error object."""
        size = sum(map(len, self._chunks))
        try:
            async with asyncio.timeout(_MOST_S):
                while self._failure is None and size <= self._most_bytes:
                    self._chunks.append(await anext(self._rest))
                    size += len(self._chunks[-1])
        except ProxyError as error:
            self._failure = error
        except (TimeoutError, StopAsyncIteration):
            pass
        return b"".join(self._chunks)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body from its beginning. Raises the error that interrupted it."""
        for chunk in self._chunks:
            yield chunk
        if self._failure is not None:
            raise self._failure
        async for chunk in self._rest:
            yield chunk


async def with_refusal_read(answer: Answer, *, reads_size: bool = False) -> tuple[Answer, Refusal]:
    """The answer, and its refusal if that decides how the request goes on. Compressed bytes are not read.
    ``reads_size``: it matters whether the request is too large."""
    is_telling = answer.status in _TELLING or (reads_size and answer.status in _ON_SIZE)
    if not is_telling or is_coded(answer.headers):
        return answer, NO_WORDS
    ahead = ReadAhead(answer)
    return ahead, refusal_in(await ahead.read())


async def shaped(answer: Answer) -> Answer:
    """An error whose content type is neither JSON nor a stream of events as OpenAI's error object, and every other
    answer as it is. If the body is a JSON object after all, only its content type is changed. For a body that is long
    or slow, or that breaks off, the beginning is enough."""
    kind = content_type(answer.headers)
    if answer.status < 400 or "json" in kind or kind.startswith("text/event-stream"):
        return answer
    ahead = answer if isinstance(answer, ReadAhead) else ReadAhead(answer)
    found = await ahead.read()
    await ahead.aclose()
    with suppress(Unreadable):
        if isinstance(text_value(found), dict):
            return _whole(answer, found)
    is_text = kind.startswith("text/plain") and not is_coded(answer.headers)
    text = " ".join(found.decode("utf-8", "replace").split())[:_SHOWN_CHARS] if is_text else ""
    phrase = f" ({responses[answer.status]})" if answer.status in responses else ""
    message = f"the upstream answered {answer.status}{phrase}, without an error object"
    error = UpstreamRejected(
        f"{message}: {text}" if text else message,
        status=answer.status,
        error_type="server_error" if answer.status >= 500 else "invalid_request_error",
        code="upstream_error",
    )
    return _whole(answer, error_body(error))


def _whole(answer: Answer, body: bytes) -> WholeAnswer:
    kept = [(name, value) for name, value in answer.headers if name not in _REPLACED]
    headers = [*kept, ("content-type", "application/json"), ("content-length", str(len(body)))]
    return WholeAnswer(answer.status, headers, body)


TOKEN_USAGE = "token_usage"
"""The name of the member in the answer's section."""
_MOST_KEPT = 1 << 16


class BodyAddition:
    """Adds a member to a JSON object as the object passes, after its other members. No other byte changes. The last
    closing brace is held back until ``end``, with the white space after it. So the object may have any length and
    arrive in any pieces."""

    def __init__(self) -> None:
        self._kept = b""
        self._before = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take a piece of the body. Returns the bytes that may pass now."""
        text = self._kept + chunk
        place = text.rfind(b"}")
        if place < 0 or text[place + 1 :].strip() or len(text) - place > _MOST_KEPT:
            place = len(text)
        passed, self._kept = text[:place], text[place:]
        self._before = passed.rstrip()[-1:] or self._before
        return passed

    def end(self, chunk: bytes, member: bytes) -> bytes:
        """Take the last piece of the body. Returns the rest with the ``member``, which is a name and a value. Nothing
        is added if the body does not end as an object does, or if the member is empty."""
        passed = self.feed(chunk)
        if not self._kept or not member:
            return passed + self._kept
        return passed + (b"" if self._before == b"{" else b",") + member + self._kept


class ReturnedUsage:
    """Adds the usage of the exchange to the end of one answer."""

    def __init__(self, exchange: Exchange, fold: Fold, reports: UsageReports) -> None:
        self._exchange = exchange
        self._reports = reports
        self._body = BodyAddition() if isinstance(fold, BodyFold) else None

    def feed(self, out: bytes) -> bytes:
        """The part of these bytes that may pass now."""
        return out if self._body is None else self._body.feed(out)

    async def end(self, end: bytes, outcome: Outcome, *, is_between: bool) -> bytes:
        """The last bytes of the answer, with the usage of the exchange, which has been booked. ``is_between``: no event
        of a stream is open before these bytes."""
        is_read = self._body is None or outcome.usage is not None or outcome.finish_reason != ""
        section = await self._section() if is_read and outcome.error is None else b""
        if self._body is not None:
            return self._body.end(end, b'"%b":%b' % (SECTION.encode(), section) if section else b"")
        return self._event(section) + end if section and is_between else end

    async def _section(self) -> bytes:
        with suppress_and_log("usage_reports"):
            return orjson.dumps({TOKEN_USAGE: await self._reports(self._exchange)})
        return b""

    def _event(self, section: bytes) -> bytes:
        arrival, said = self._exchange.arrival, self._exchange.answer.outcome.said
        chunk = {
            "id": (said.id if said is not None else "") or arrival.id,
            "object": "chat.completion.chunk",
            "created": int(arrival.now),
            "model": self._exchange.requested.model,
            "choices": [],
            SECTION: orjson.Fragment(section),
        }
        return b"data: " + orjson.dumps(chunk) + b"\n\n"


def change_of(exchange: Exchange, fold: Fold, reports: UsageReports | None) -> ReturnedUsage | AnswerWithout | None:
    """The object that changes an answer as it passes: it adds the usage, if the client asks for that, or else it takes
    out the reply to a question that only the proxy asked. None if nothing is changed, or if the answer is not read."""
    if isinstance(fold, BodyFold) and not fold.is_read:
        return None
    if exchange.returns_usage and reports is not None:
        return ReturnedUsage(exchange, fold, reports)
    if (inquiry := exchange.inquiry) is not None and inquiry.asks:
        return AnswerWithout(inquiry.question.told, is_stream=isinstance(fold, StreamFold))
    return None


async def ended(chunks: AsyncIterator[bytes]) -> None:
    """Wait a moment for the end of a body whose last event has arrived, so that its connection can serve another
    call."""
    with suppress(TimeoutError, ProxyError):
        async with asyncio.timeout(_LINGER_S):
            async for _ in chunks:
                pass

"""Work on an upstream's answer, in the order in which it is done.

The beginning of an error is read before the answer is passed on, because its text decides how the request goes on. A
load balancer or a CDN in front of a provider answers in HTML or plain text. Chat clients expect OpenAI's error object,
so they get one, with the status and headers of the answer.

As an answer passes, it gets the usage of its request if the client asks for it (``stratiform: {return_usage: true}``).
A stream gets one more chunk, without choices, before the event that ends it. A JSON body gets one more member. A
compressed answer, an error, and a stream that ends within an event pass unchanged.

After the last event of a stream, its end is awaited for a moment.

Calls of panels by the model are answered by the proxy, and the client never sees them. A model that sees live panels
may call the tool that shows them, which no client knows. If the model calls nothing else, the proxy makes a further
call to the same deployment with the panel's current text, and that answer continues where the first one stopped. There
are at most two further calls, and each is answered by one body. If the model also calls the client's own tools, the
panel call is taken out, and no further call is made. The client sees one answer, whose usage is the sum.
A compressed answer passes unread.

All calls belong to one exchange, with one reservation and one settlement. The reservation is extended for each further
call by the most that the call can cost. The plan is about the first call alone. A further call uses the body that the
upstream accepted, the same deployment, the same transport with its deadline and its redaction, and the same breaker.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from http.client import responses

import orjson

from proxy.context import SECTION
from proxy.engine.attempts import Attempts, failure_answered, failure_of
from proxy.engine.exchange import Call, Exchange
from proxy.engine.headers import form_of
from proxy.engine.ports import Answer, Client, Ports, UsageReports
from proxy.kit.errors import ProxyError, UpstreamError, UpstreamRejected, UpstreamUnavailable, error_body
from proxy.kit.resilience import Failure
from proxy.kit.tasks import suppress_and_log
from proxy.kit.value import dataclass, replace
from proxy.models import Headers
from proxy.protocol.response import BodyFold, Fold, StreamFold
from proxy.protocol.response.outcome import AnswerWithout, Outcome
from proxy.protocol.response.panel_answer import (
    MOST_BYTES,
    PanelAnswer,
    PanelAnswers,
    PanelBody,
    PanelCallOutcome,
    PanelStream,
    continued_request,
)
from proxy.protocol.response.refusal import NO_WORDS, Refusal, refusal_in
from proxy.protocol.wire.json_body import Unreadable, text_value

_log = logging.getLogger("stratiform")
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
    if not is_telling or form_of(answer.headers).is_coded:
        return answer, NO_WORDS
    ahead = ReadAhead(answer)
    return ahead, refusal_in(await ahead.read())


async def shaped(answer: Answer) -> Answer:
    """An error whose content type is neither JSON nor a stream of events as OpenAI's error object, and every other
    answer as it is. If the body is a JSON object after all, only its content type is changed. For a body that is long
    or slow, or that breaks off, the beginning is enough."""
    form = form_of(answer.headers)
    if form.is_json or form.is_events:
        return answer
    ahead = answer if isinstance(answer, ReadAhead) else ReadAhead(answer)
    found = await ahead.read()
    await ahead.aclose()
    with suppress(Unreadable):
        if isinstance(text_value(found), dict):
            return _whole(answer, found)
    is_text = form.kind.startswith("text/plain") and not form.is_coded
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
        self._kept = self._before = b""

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


_MOST_FURTHER = 2
# These headers of the first call are about that call alone.
_OF_ONE_CALL = frozenset({"idempotency-key", "content-length"})


def reads_panel_calls(answer: Answer, call: Call) -> bool:
    """Whether calls of panels can be found in an answer."""
    form = form_of(answer.headers)
    if answer.status >= 300 or form.is_coded:
        return False
    return form.is_json or (call.stream and (not form.kind or form.is_events))


@dataclass(slots=True)
class _MadeCall:
    """A call that was made at ``began_s``. ``size`` is the size of its body in bytes. ``fold`` reads its answer as it
    arrives."""

    size: int
    fold: StreamFold | BodyFold
    began_s: float
    is_billed: bool = True


class NotContinued(UpstreamError):
    """The reply to a further call was not a usable answer."""

    def __init__(self, why: str, failure: Failure | None = None) -> None:
        super().__init__(f"the upstream did not go on with its answer: {why}")
        self.failure = failure


class ContinuedAnswer:
    """An upstream's answer without calls of panels, together with the answers that continue it. ``call`` is the latest
    call that was made."""

    def __init__(
        self, first: Answer, exchange: Exchange, client: Client, ports: Ports, answers: PanelAnswers, call: Call,
        attempts: Attempts,
    ) -> None:  # fmt: skip
        self.status = first.status
        self.headers: Headers = [pair for pair in first.headers if pair[0].lower() != "content-length"]
        self._first, self._current = first, first
        self._exchange, self._client, self._ports, self._answers = exchange, client, ports, answers
        self._upstream, self._call, self._attempts = ports.upstreams[call.deployment.transport], call, attempts
        self._made: list[_MadeCall] = []

    async def aclose(self) -> None:
        """Close every answer that is open."""
        if self._current is not self._first:
            await self._current.aclose()
        await self._first.aclose()

    async def chunks(self) -> AsyncIterator[bytes]:
        """All answers as one stream of pieces. An empty piece says that an answer has begun. Raises the error that
        interrupts it."""
        form, may_follow = form_of(self._first.headers), self._may_follow
        reader: PanelBody | PanelStream = PanelBody() if form.is_json else PanelStream()
        fold = self._begin(BodyFold(form.length) if form.is_json else StreamFold()).fold
        chunks = self._first.chunks()
        async for chunk in chunks:
            fold.feed(chunk)
            yield reader.feed(chunk)
            if reader.is_over:
                break
        fold.close()
        yield reader.close()
        await ended(chunks)
        found = await self._ports.aside.run_large(reader.size, reader.read, may_follow=may_follow)
        yield reader.end(await self._last(found, is_body=form.is_json) if found is not None else None)

    async def _last(self, found: PanelAnswer, *, is_body: bool) -> PanelAnswer:
        """The answer that the client gets in the place of this one."""
        while found.message is not None:
            call = await self._next_call(found)
            if call is None:
                self._count(PanelCallOutcome.GAVE_UP, found.taken)
                return found
            try:
                following = await self._following(call, found)
            except ProxyError as error:
                self._count(PanelCallOutcome.FAILED, found.taken)
                self._attempts.answered(error.failure if isinstance(error, NotContinued) else failure_of(error))
                _log.warning("exchange %s: a panel's call was not answered (%s)", self._exchange.arrival.id, error.code)
                if is_body and not found.has_words:
                    raise
                return found
            self._count(PanelCallOutcome.ANSWERED, found.taken)
            found = following
        is_last = len(self._made) > _MOST_FURTHER
        self._count(PanelCallOutcome.GAVE_UP if is_last else PanelCallOutcome.TAKEN_OUT, found.taken)
        return found

    async def _next_call(self, found: PanelAnswer) -> Call | None:
        """The call that follows an answer. None if no call may follow, or if the proxy itself fails."""
        body, following = self._call.body, None
        if self._client.has_left or not isinstance(body, bytes) or found.message is None:
            return None
        with suppress_and_log("panels.answer"):
            # Each call may ask for the same panel, which may be nearly all of the body.
            size, make = len(body) * (1 + found.taken), continued_request
            following = await self._ports.aside.run_large(size, make, body, found.message, self._answers)
        if following is None:
            return None
        spent = self._ports.meter.spent(self._exchange, [self._booked(made) for made in self._made if made.is_billed])
        has_room = await self._ports.admission.extend(self._exchange, spent, self._added_tokens(len(following)))
        if not has_room or not self._attempts.goes_on():
            return None
        headers = [(name, value) for name, value in self._call.headers if name.lower() not in _OF_ONE_CALL]
        self._call = replace(self._call, body=following, headers=headers, stream=False)
        return self._call

    async def _following(self, call: Call, found: PanelAnswer) -> PanelAnswer:
        """The answer to a further call. Raises ProxyError if there is no usable answer."""
        may_follow, fold, reader = self._may_follow, BodyFold(), PanelBody()
        self._current = await self._opened(call, fold)
        async for chunk in self._current.chunks():
            self._attempts.answered()
            fold.feed(chunk)
            reader.feed(chunk)
            if reader.size > MOST_BYTES:
                raise NotContinued("it is too long")
        fold.close()
        await self._current.aclose()
        read = await self._ports.aside.run_large(reader.size, reader.read, found, may_follow=may_follow)
        if read is None:
            raise NotContinued("there is no message in it")
        return read

    async def _opened(self, call: Call, fold: BodyFold) -> Answer:
        await self._ports.admission.take_turn(self._exchange, call.deployment)
        made, reservation = self._begin(fold), self._exchange.reservation
        # The upstream continues a call that does not stream when the client leaves. Under a hard limit the proxy
        # therefore reads such an answer to its end.
        self._client.is_awaited |= reservation is not None and reservation.is_hard
        # A provider may continue with a request after the client has left. The call therefore counts as billed until it
        # has failed.
        try:
            answer = await self._upstream.open(call)
        except ProxyError as error:
            made.is_billed = isinstance(error, UpstreamError) and error.may_bill
            raise
        made.is_billed = 200 <= answer.status < 300
        if made.is_billed and not form_of(answer.headers).is_coded:
            return answer
        await answer.aclose()
        raise NotContinued(f"it answered with status {answer.status}", failure_answered(answer.status, answer.headers))

    @property
    def _may_follow(self) -> bool:
        """Whether another call may follow the one that is made next. A request for several answers cannot be
        continued."""
        return len(self._made) < _MOST_FURTHER and self._exchange.requested.demand.answers == 1

    def _begin(self, fold: StreamFold | BodyFold) -> _MadeCall:
        body = self._call.body
        self._made.append(_MadeCall(len(body) if isinstance(body, bytes) else 0, fold, self._exchange.elapsed_s()))
        return self._made[-1]

    def _count(self, outcome: PanelCallOutcome, calls: int) -> None:
        if calls:
            self._exchange.answer.panel_calls[outcome.value] += calls

    def noted(self, outcome: Outcome) -> Outcome:
        """The outcome of the answer that the client gets, with the usage of the first call. The outcomes of further
        calls are stored on the exchange."""
        if not self._made:
            return outcome
        first = self._made[0].fold.outcome()
        self._exchange.answer.further = tuple(self._booked(made) for made in self._made[1:] if made.is_billed)
        return replace(
            outcome,
            usage=first.usage,
            reported=first.reported,
            saw_content=outcome.saw_content or first.saw_content,
            events=first.events,
            tokens=first.tokens,
            cache_cause=first.cache_cause,
        )

    def _booked(self, made: _MadeCall) -> Outcome:
        """The outcome of a call, with its usage or with the amounts that are booked in place of a usage."""
        outcome, silent_s = made.fold.outcome(), self._exchange.elapsed_s() - made.began_s
        if isinstance(made.fold, BodyFold) and not outcome.is_open:
            silent_s = 0.0  # a body arrives only when all of it is written
        return self._ports.meter.booked(self._exchange, outcome, self._added_tokens(made.size), silent_s)

    def _added_tokens(self, size: int) -> int:
        """The most tokens that a prompt of this many bytes has in addition to the first call's prompt: each token has
        at least one byte."""
        return max(0, size - self._made[0].size)

"""Calls of panels by the model: the proxy answers them, and the client never sees them.

A model that sees live panels may call the tool that shows them, which no client knows. If the model calls nothing else,
the proxy makes a further call to the same deployment with the panel's current text, and that answer continues where the
first one stopped. There are at most two further calls, and each is answered by one body. If the model also calls the
client's own tools, the panel call is taken out, and no further call is made. The client sees one answer, whose usage is
the sum. A compressed answer passes unread.

All calls belong to one exchange, with one reservation and one settlement. The reservation is extended for each further
call by the most that the call can cost. The plan is about the first call alone. A further call uses the body that the
upstream accepted, the same deployment, the same transport with its deadline and its redaction, and the same breaker.
"""

import logging
from collections.abc import AsyncIterator

from proxy.core.resilience import Failure
from proxy.core.response.outcome import Outcome
from proxy.core.response.panel_answer import (
    MOST_BYTES,
    PanelAnswer,
    PanelAnswers,
    PanelBody,
    PanelCallOutcome,
    PanelStream,
    continued_request,
)
from proxy.core.response.stream import BodyFold, StreamFold
from proxy.core.value import dataclass, replace
from proxy.engine.attempts import Attempts, failure_answered, failure_of
from proxy.engine.exchange import Exchange
from proxy.engine.headers import content_length, content_type, is_coded
from proxy.engine.ports import Admission, Client, Meter
from proxy.engine.suppress import suppress_and_log
from proxy.engine.upstream_answer import ended
from proxy.errors import ProxyError, UpstreamError
from proxy.ports import Answer, Call, Headers, Upstream
from proxy.tasks import Aside

_MOST_FURTHER = 2
# These headers of the first call are about that call alone.
_OF_ONE_CALL = frozenset({"idempotency-key", "content-length"})

_log = logging.getLogger("stratiform")


def reads_panel_calls(answer: Answer, call: Call) -> bool:
    """Whether calls of panels can be found in an answer."""
    kind = content_type(answer.headers)
    if answer.status >= 300 or is_coded(answer.headers):
        return False
    return "json" in kind or (call.stream and (not kind or kind.startswith("text/event-stream")))


@dataclass(frozen=True, slots=True)
class PanelService:
    """The means to answer calls of panels: the panels of the request, the prices, the limits, and a place for large
    work."""

    answers: PanelAnswers
    meter: Meter
    admission: Admission
    aside: Aside


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
        self, first: Answer, exchange: Exchange, client: Client, service: PanelService, upstream: Upstream, call: Call,
        attempts: Attempts,
    ) -> None:  # fmt: skip
        self.status = first.status
        self.headers: Headers = [pair for pair in first.headers if pair[0].lower() != "content-length"]
        self._first, self._current = first, first
        self._exchange, self._client, self._service = exchange, client, service
        self._upstream, self._call, self._attempts = upstream, call, attempts
        self._made: list[_MadeCall] = []

    async def aclose(self) -> None:
        """Close every answer that is open."""
        if self._current is not self._first:
            await self._current.aclose()
        await self._first.aclose()

    async def chunks(self) -> AsyncIterator[bytes]:
        """All answers as one stream of pieces. An empty piece says that an answer has begun. Raises the error that
        interrupts it."""
        is_body, may_follow = "json" in content_type(self.headers), self._may_follow
        reader: PanelBody | PanelStream = PanelBody() if is_body else PanelStream()
        fold = self._begin(BodyFold(content_length(self._first.headers)) if is_body else StreamFold()).fold
        chunks = self._first.chunks()
        async for chunk in chunks:
            fold.feed(chunk)
            yield reader.feed(chunk)
            if reader.is_over:
                break
        fold.close()
        yield reader.close()
        await ended(chunks)
        found = await self._service.aside.run_large(reader.size, reader.read, may_follow=may_follow)
        yield reader.end(await self._last(found, is_body=is_body) if found is not None else None)

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
            size, service = len(body) * (1 + found.taken), self._service
            following = await service.aside.run_large(size, continued_request, body, found.message, service.answers)
        if following is None:
            return None
        spent = self._service.meter.spent(self._exchange, [self._booked(made) for made in self._made if made.is_billed])
        has_room = await self._service.admission.extend(self._exchange, spent, self._added_tokens(len(following)))
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
        read = await self._service.aside.run_large(reader.size, reader.read, found, may_follow=may_follow)
        if read is None:
            raise NotContinued("there is no message in it")
        return read

    async def _opened(self, call: Call, fold: BodyFold) -> Answer:
        await self._service.admission.take_turn(self._exchange, call.deployment)
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
        if made.is_billed and not is_coded(answer.headers):
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
        return self._service.meter.booked(self._exchange, outcome, self._added_tokens(made.size), silent_s)

    def _added_tokens(self, size: int) -> int:
        """The most tokens that a prompt of this many bytes has in addition to the first call's prompt: each token has
        at least one byte."""
        return max(0, size - self._made[0].size)

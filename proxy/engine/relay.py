"""Makes attempts at one exchange's call, and passes the upstream's answer on to the client as it arrives.

A request that the upstream refuses as too large for the context window is handled as its capability profile says. The
first refusal shows how the model counts tokens. The request is fitted again with that count, and sent once more if it
has become smaller. Then the profile decides. Until then, nothing of any answer has reached the client. All attempts
share one reservation, and refused attempts are not billed.

A profile may ask for a completion in which the model says nothing. Its forms are OpenAI's
(https://platform.openai.com/docs/api-reference/chat/object, .../completions/object). No provider has written it, so its
usage is zero.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import TypeVar

import orjson

from proxy.engine.attempts import Attempts, OurEdit, Outgoing, failure_answered, failure_of, refusal_of
from proxy.engine.bodies import Raw
from proxy.engine.conclusion import Conclusion, own_headers, shown
from proxy.engine.exchange import GATEWAY_TIMEOUTS, Call, Exchange, ExchangeOutcome, Settlement
from proxy.engine.headers import BodyForm, for_client, form_of
from proxy.engine.ports import Answer, Client, ClientDisconnected, Ports, TellsUsage, Upstream
from proxy.engine.upstream_answer import (
    ContinuedAnswer,
    ReturnedUsage,
    change_of,
    check_status,
    ended,
    reads_panel_calls,
    shaped,
    with_refusal_read,
)
from proxy.kit.errors import (
    BudgetExceeded,
    ContextTooLong,
    ProxyError,
    RateLimited,
    UpstreamError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
    error_form,
    sse_error,
)
from proxy.kit.resilience import Failure
from proxy.kit.tasks import suppress_and_log
from proxy.kit.value import dataclass, field, replace
from proxy.models import Headers
from proxy.models.charges import runs_on
from proxy.prompts.window import OverBudget
from proxy.protocol.response import MAX_BODY_BYTES, BodyFold, Fold, StreamFold
from proxy.protocol.response.event_format import DONE, END_OF_EVENT, event_data, event_of, payload_of
from proxy.protocol.response.outcome import AnswerWithout, Outcome
from proxy.protocol.response.panel_answer import PanelAnswers
from proxy.protocol.response.refusal import (
    NO_WORDS,
    ContextRefusalOutcome,
    Refusal,
    is_context_refusal,
    named_tokens,
    refusal_of_object,
)
from proxy.protocol.response.usage import usage_of

# These answers have no body, whatever their length says: RFC 9110 section 8.6. The server would wait for the body.
_WITHOUT_BODY = frozenset({204, 304})
_HOLD_BYTES = 1 << 16
_HOLD_S = 10.0
_RATE_PREFIX = "x-ratelimit-"
# SDKs obey this header (https://github.com/openai/openai-python, _base_client.py). It says that the proxy has made all
# the attempts that were worth making.
_NOT_AGAIN = ("x-should-retry", "false")
_CUT_OFF = "the client's connection is closed, so that it takes the answer for no whole one"

_log = logging.getLogger("stratiform")


class AttemptResult(Enum):
    """The result of an attempt. Unless the attempt is done, nothing of it has reached the client."""

    DONE = auto()
    REFUSED = auto()
    """The answer was a 4xx that one of the proxy's edits may have caused, or an empty stream."""
    FAILED = auto()
    """The attempt failed, and another one follows."""
    TOO_LARGE = auto()
    """The upstream refuses the request as too large for the context window, and the exchange has a profile that says
    how the request is handled."""


@dataclass(slots=True)
class _Hold:
    """The beginning of an answer that may have to be requested again, held back until it is too long or too old. A
    stream may turn out empty: it is held back until it has content. A JSON body may break off: it is held back until it
    is complete (``is_whole``). (A fold has a copy of such a body anyway.)"""

    until_s: float
    is_whole: bool
    held: bytearray = field(default_factory=bytearray)

    def keeps(self, chunk: bytes, fold: Fold, elapsed_s: float) -> bool:
        """Take a chunk. Returns whether it and all chunks before it stay held back."""
        self.held += chunk
        is_known = fold.saw_content and not self.is_whole
        most_bytes = MAX_BODY_BYTES if self.is_whole else _HOLD_BYTES
        return not (is_known or len(self.held) > most_bytes or elapsed_s > self.until_s)


T = TypeVar("T", bound=Outgoing | Raw)
"""A request as it is sent."""
Accepted = Callable[[], None]
"""Called when the upstream accepts the request after it refused the one before."""


@dataclass(slots=True)
class AnswerRelay:
    """Sends the requests of one exchange, and passes the answer on to the client."""

    _exchange: Exchange
    _client: Client
    _ports: Ports
    _conclusion: Conclusion
    _panels: PanelAnswers | None = None  # if they are given, the model's calls of panels are answered
    _refused_edits: OurEdit = OurEdit.NONE
    _said: Refusal = NO_WORDS
    _on_accepted: Accepted | None = None
    # The shares of the budget of the context window that are still to be tried.
    _shares: Sequence[float] = (1.0, 0.75, 0.5)
    _further: ContinuedAnswer | None = None
    _source: Answer | TellsUsage | None = None

    async def send(
        self,
        sent: T,
        attempts: Attempts,
        call_of: Callable[[T], Awaitable[tuple[Call, OurEdit]]],
        without: Callable[[T, OurEdit, bool], Accepted],
        resize: Callable[[float], Awaitable[T]],
    ) -> None:
        """Send a request, or the one that replaces it, until an answer is passed on. ``call_of`` makes its call, and
        says which of the proxy's edits may be refused. ``without`` takes those that were refused out of it, and is told
        whether the upstream names the question for usage. ``resize`` makes the request for the deployment that is
        called next, with this share of the budget of its context window. Raises ProxyError."""
        while True:
            call, suspects = await call_of(sent)
            match await self._attempt(self._ports.upstreams[call.deployment.transport], call, attempts, suspects):
                case AttemptResult.DONE:
                    return
                case AttemptResult.REFUSED:
                    self._on_accepted = without(sent, self._refused_edits, self._said.names_usage)
                case AttemptResult.TOO_LARGE:
                    smaller = await self._smaller(sent, resize)
                    if smaller is None:
                        return
                    self._on_accepted, sent = None, smaller
                case AttemptResult.FAILED if await attempts.pause():
                    # Another deployment has another cache, and perhaps another model.
                    self._on_accepted = None
                    self._exchange.deployment = attempts.deployment
                    sent = await resize(1.0)

    async def _smaller(self, refused: T, resize: Callable[[float], Awaitable[T]]) -> T | None:
        """The request that replaces one that was refused as too large. None: the client already has its answer. Raises
        UpstreamRejected."""
        exchange, profile, windows = self._exchange, self._exchange.window, self._ports.windows
        assert profile is not None
        fitted, deployment = exchange.fitted, exchange.deployment
        sizes = fitted.sizes if fitted is not None else {}
        if windows is not None and fitted is not None and deployment is not None:
            windows.refused(deployment, fitted, named_tokens(self._said), scope=exchange.principal.scope)
        outgoing = await self._resized(refused, resize)
        if profile.over_budget is not OverBudget.RETRY:
            self._shares = ()
        if outgoing is not None:
            note_context_refusal(exchange, ContextRefusalOutcome.RETRIED, sizes)
            return outgoing
        if profile.over_budget is OverBudget.EMPTY:
            note_context_refusal(exchange, ContextRefusalOutcome.EMPTY, sizes)
            kind = "text/event-stream" if exchange.requested.stream else "application/json"
            exchange.answer.status = 200
            exchange.ending = ExchangeOutcome.HUNG_UP if self._client.has_left else ExchangeOutcome.COMPLETED
            await self._conclusion.book(exchange)
            await self._finish(empty_completion(exchange), 200, [("content-type", kind), *own_headers(exchange)])
            return None
        note_context_refusal(exchange, ContextRefusalOutcome.ERROR, sizes)
        raise UpstreamRejected(
            "the upstream refuses the request as too large for the model's context window: send fewer or shorter"
            " messages, or ask for a shorter answer",
            status=400,
            error_type="invalid_request_error",
            code="context_length_exceeded",
            param="messages",
        )

    async def _resized(self, refused: T, resize: Callable[[float], Awaitable[T]]) -> T | None:
        """The next smaller request. A request that is as large as the refused one would be refused, too."""
        with suppress(ContextTooLong):
            while self._shares:
                share, self._shares = self._shares[0], self._shares[1:]
                outgoing = await resize(share)
                if outgoing.size < refused.size:
                    return outgoing
        return None

    async def _attempt(self, upstream: Upstream, call: Call, attempts: Attempts, suspects: OurEdit) -> AttemptResult:
        """Send a call and pass its answer on."""
        exchange = self._exchange
        if self._client.has_left:
            raise ClientDisconnected
        if exchange.lost != Settlement() and not await self._ports.admission.extend(exchange, exchange.lost):
            raise BudgetExceeded("The upstream did not answer, and no budget is left for another attempt.")
        if not attempts.began():
            return AttemptResult.FAILED
        try:
            await self._ports.admission.take_turn(exchange, call.deployment)
            exchange.attempts += 1
            exchange.call, exchange.called = call, call.deployment
            is_hard = exchange.reservation is not None and exchange.reservation.is_hard
            is_background = exchange.requested.demand.wants.is_background
            self._client.is_awaited = is_hard and runs_on(
                call.deployment.server, is_stream=call.stream, is_background=is_background
            )
            exchange.answer.asked(exchange.elapsed_s(), runs_on=self._client.is_awaited)
            answer = self._source = await upstream.open(call)
            try:
                check_status(answer)
                exchange.answer.status, said = answer.status, NO_WORDS
                if answer.status >= 400:
                    answer, said, found = await self._judged(answer, attempts, suspects)
                    if found is not None:
                        return found
                exchange.answer.further, self._further = (), None
                if self._panels is not None and reads_panel_calls(answer, call):
                    answer = self._further = ContinuedAnswer(
                        answer, exchange, self._client, self._ports, self._panels, call, attempts
                    )
                told = await shaped(answer) if answer.status >= 400 and exchange.arrival.is_chat else answer
                result = await self._pass_on(told, attempts, may_refuse=OurEdit.LAYOUT in suspects)
                if result is AttemptResult.DONE and answer.status >= 400:
                    self._count_passed(answer.status, said)
                elif result is not AttemptResult.DONE:
                    if exchange.answer.outcome.error is None:
                        await self._lose_answer()  # an empty stream
                    exchange.answer.outcome, exchange.answer.error_code = Outcome(), ""
                return result
            finally:
                await answer.aclose()
        except ProxyError as error:
            found = await self._failed(error, attempts, suspects)
            if found is None:
                raise
            return found
        finally:
            attempts.abandoned()

    async def _judged(
        self, answer: Answer, attempts: Attempts, suspects: OurEdit
    ) -> tuple[Answer, Refusal, AttemptResult | None]:
        """An error answer, what it says, and the result that takes its place. None as the result: the error is passed
        on."""
        answer, said = await with_refusal_read(answer, reads_size=self._reads_size(attempts))
        failure = failure_answered(answer.status, answer.headers, said)
        if answer.status in GATEWAY_TIMEOUTS:
            await self._lose_answer()
        return answer, said, self._instead(answer.status, said, failure, attempts, suspects)

    def _instead(
        self, status: int, said: Refusal, failure: Failure | None, attempts: Attempts, suspects: OurEdit
    ) -> AttemptResult | None:
        """The result that takes the place of an answer or an error that is not passed on. None: it is passed on."""
        if (found := self._too_large(status, said, attempts)) is not None:
            return found
        has_no_quota = failure is not None and failure.kind == "quota"
        if not has_no_quota and (refused := suspects.in_refusal(status, said)):
            attempts.refused()
            return self._refused(refused, said)
        may_follow = failure is not None and not self._client.is_started and attempts.failed(failure)
        return self._nothing() if may_follow else None

    async def _failed(self, error: ProxyError, attempts: Attempts, suspects: OurEdit) -> AttemptResult | None:
        """The result that follows an upstream error. None: the client gets the error."""
        # If the client breaks off an upload, the upstream connection fails too. That is no failure of the upstream.
        failure = failure_of(error) if self._client.failure is None else None
        said, suspected = NO_WORDS, OurEdit.NONE
        # An upstream that breaks off a call itself does not continue it. One that the proxy stopped waiting for may.
        self._exchange.answer.runs_on &= isinstance(error, UpstreamTimeout)
        if isinstance(error, RateLimited):
            attempts.abandoned()  # a limit of the operator: the deployment was not called
        # A refusal whose body breaks off is still a refusal.
        answer, may_bill = self._exchange.answer, isinstance(error, UpstreamError) and error.may_bill
        is_billed = answer.is_accepted or (may_bill and answer.status < 300)
        if is_billed and self._client.failure is None and not self._client.is_started:
            await self._lose_answer()
        if isinstance(error, UpstreamRejected):
            said, suspected = refusal_of(error), suspects
        found = self._instead(error.status, said, failure, attempts, suspected)
        if found is None:
            self._count_passed(error.status, said)
            if attempts.is_spent:
                error.headers.update([_NOT_AGAIN])
        return found

    def _reads_size(self, attempts: Attempts) -> bool:
        """Whether the proxy does anything about a request that is too large."""
        return self._exchange.window is not None or bool(attempts.wider)

    def _too_large(self, status: int, said: Refusal, attempts: Attempts) -> AttemptResult | None:
        """The result that follows if the upstream refuses the request as too large for the context window. None:
        nothing follows, or the upstream refuses it for another reason. A model with a wider window is tried first,
        because it loses nothing of the request."""
        exchange = self._exchange
        if not self._reads_size(attempts) or self._client.is_started or not is_context_refusal(status, said):
            return None
        if attempts.widened():
            note_context_refusal(exchange, ContextRefusalOutcome.WIDER)
            return self._nothing()
        if exchange.window is None:
            return None
        self._said = said
        attempts.refused()
        self._nothing()
        return AttemptResult.TOO_LARGE

    def _count_passed(self, status: int, said: Refusal) -> None:
        if is_context_refusal(status, said):
            note_context_refusal(self._exchange, ContextRefusalOutcome.PASSED)

    def _refused(self, refused: OurEdit, said: Refusal = NO_WORDS) -> AttemptResult:
        # The next attempt's answer has not begun. The bytes that were held back of this attempt are not part of it.
        self._exchange.answer.first_byte_s = None
        self._refused_edits, self._said = refused, said
        return AttemptResult.REFUSED

    def _nothing(self) -> AttemptResult:
        """Clear everything that the attempt has recorded."""
        self._exchange.answer.status = 0
        self._exchange.answer.first_byte_s = None
        self._exchange.call, self._client.is_awaited = None, False
        return AttemptResult.FAILED

    async def _lose_answer(self) -> None:
        """The upstream will bill an answer that no client gets. The answer is priced, and then its record is
        cleared."""
        await self._conclusion.lose(self._exchange)
        answer = self._exchange.answer
        answer.outcome, answer.further = Outcome(), ()

    async def _pass_on(self, answer: Answer, attempts: Attempts, *, may_refuse: bool) -> AttemptResult:
        exchange, client, record, written = self._exchange, self._client, self._exchange.answer, 0
        form, chunks = form_of(answer.headers), answer.chunks()
        fold = _fold_of(answer.status, form, exchange)
        may_break = form.is_json and answer.status < 300
        hold = self._hold(fold, attempts, may_refuse=may_refuse, may_break=may_break)
        told = change_of(exchange, fold, self._ports.usage_reports)
        headers, passes = self._headers(answer, fold, is_spent=attempts.is_spent, keep_length=told is None), False
        try:
            # If another attempt could follow, the client gets nothing before the first bytes that it can use.
            if hold is None and not attempts.may_follow:
                await client.start(answer.status, headers)
            async for chunk in chunks:
                out = fold.feed(chunk)
                if record.first_byte_s is None:
                    self._note_first_byte()
                if exchange.requested.stream and fold.written > written:
                    written = fold.written
                    exchange.heard()
                out = out if told is None else told.feed(out)
                if not passes and (hold is None or not hold.keeps(out, fold, exchange.elapsed_s())):
                    attempts.answered()
                    out, hold, passes = out if hold is None else bytes(hold.held), None, True
                if passes and out:
                    if not client.is_started:
                        await client.start(answer.status, headers)
                    record.sent_bytes += len(out)
                    await client.send(out)
                if fold.keeps_end:
                    break
            attempts.answered()
            # After the last event there may be the beginning of another one. The proxy does not wait for its end.
            is_between = fold.is_between
            rest = _rest_of(fold)
            is_held = hold is not None and isinstance(fold, StreamFold)
            if is_held and (instead := self._instead_of_stream(fold, attempts, may_refuse=may_refuse)) is not None:
                return instead
            end = await self._end_of(answer.status, fold, rest, told, is_between=is_between)
            await self._finish(end if hold is None else bytes(hold.held) + end, answer.status, headers)
        except ProxyError as error:
            await self._broken(error, fold)
        finally:
            self._note(fold)
        if isinstance(fold, StreamFold):
            await ended(chunks)
        return AttemptResult.DONE

    def _instead_of_stream(self, fold: Fold, attempts: Attempts, *, may_refuse: bool) -> AttemptResult | None:
        """The result that takes the place of a stream that ended while it was held back. None: it is passed on."""
        outcome = self._note(fold)
        found = self._too_large(*_told(outcome), attempts)
        if found is None and may_refuse and _is_void(outcome):
            attempts.refused()
            return self._refused(OurEdit.LAYOUT)
        return found

    def _hold(self, fold: Fold, attempts: Attempts, *, may_refuse: bool, may_break: bool) -> _Hold | None:
        until_s = self._exchange.elapsed_s() + _HOLD_S
        if isinstance(fold, StreamFold):
            return _Hold(until_s, False) if may_refuse or self._reads_size(attempts) else None
        # A further call may fail, too.
        may_fail = attempts.may_follow or self._panels is not None
        return _Hold(until_s, True) if may_break and may_fail else None

    async def _finish(self, end: bytes, status: int, headers: Headers) -> None:
        if not self._client.is_started:
            await self._client.start(status, headers)
        self._exchange.answer.sent_bytes += len(end)
        await self._client.end(end)

    async def _end_of(
        self, status: int, fold: Fold, rest: bytes, told: ReturnedUsage | AnswerWithout | None, *, is_between: bool
    ) -> bytes:
        """The whole answer is known: book it before the client has all of it. Returns the end of the answer, with its
        usage if the client asked for that."""
        if self._exchange.settlement is None:
            if self._exchange.answer.first_byte_s is None:
                self._note_first_byte()  # an empty answer ends where it begins
            outcome = self._note(fold)
            if self._on_accepted is not None and self._exchange.answer.is_accepted and not _is_void(outcome):
                self._on_accepted()
            passed = ExchangeOutcome.COMPLETED if outcome.error is None else ExchangeOutcome.BROKEN
            ending = ExchangeOutcome.REJECTED if status >= 400 else passed
            self._exchange.ending = ExchangeOutcome.HUNG_UP if self._client.has_left else ending
            await self._conclusion.book(self._exchange)
        end = fold.end() + rest
        if isinstance(told, AnswerWithout):
            return told.end(end)
        return end if told is None else await told.end(end, self._note(fold), is_between=is_between)

    def _headers(self, answer: Answer, fold: Fold, *, is_spent: bool, keep_length: bool) -> Headers:
        deployment = self._exchange.deployment
        headers = for_client(
            answer.headers,
            keep_length=keep_length and not isinstance(fold, StreamFold) and answer.status not in _WITHOUT_BODY,
            hides_account=deployment is not None and deployment.uses_operators_key,
        )
        reservation = self._exchange.reservation
        if reservation is not None and reservation.rates:  # the provider's headers are about its own account
            headers = [(name, value) for name, value in headers if not name.startswith(_RATE_PREFIX)]
        if is_spent:
            headers = [*((name, value) for name, value in headers if name != _NOT_AGAIN[0]), _NOT_AGAIN]
        return [*headers, *own_headers(self._exchange, headers)]

    def _note_first_byte(self) -> None:
        exchange = self._exchange
        exchange.answer.first_byte_s = exchange.elapsed_s()
        if exchange.planned.plan is not None and exchange.answer.is_accepted:
            with suppress_and_log("planner.on_accepted"):
                self._ports.planner.on_accepted(exchange.planned.plan, exchange.time())

    async def _broken(self, error: ProxyError, fold: Fold) -> None:
        """The upstream broke off. In a stream of events, an event that SDKs raise as an error says so. Then every
        answer is cut off at this point, so that no client takes it for a complete one."""
        if not self._client.is_started:
            raise error
        self._exchange.answer.runs_on &= isinstance(error, UpstreamTimeout)
        self._exchange.ending = ExchangeOutcome.BROKEN
        self._exchange.answer.note(error)
        self._note(fold)
        await self._conclusion.book(self._exchange)
        _log.warning("exchange %s: the answer broke off (%s): %s", self._exchange.arrival.id, error.code, _CUT_OFF)
        if isinstance(fold, StreamFold):
            event = sse_error(error, error_form(self._exchange.arrival.path))
            await self._client.send(END_OF_EVENT + event if fold.is_cut else event)

    def _note(self, fold: Fold) -> Outcome:
        """Record the outcome of the answer as far as it is known now, unless the exchange is settled. Returns what is
        recorded."""
        answer = self._exchange.answer
        if self._exchange.settlement is not None:
            return answer.outcome
        outcome = fold.outcome() if self._further is None else self._further.noted(fold.outcome())
        if outcome.is_open and outcome.usage is None and isinstance(self._source, TellsUsage):
            outcome = replace(outcome, usage=usage_of(self._source.usage_so_far()))
        answer.outcome = outcome
        if outcome.error is not None and not answer.error_code:
            answer.error_code = "upstream_stream_error"
        return outcome


def note_context_refusal(
    exchange: Exchange, outcome: ContextRefusalOutcome, sizes: Mapping[str, int] | None = None
) -> None:
    """Count a refusal for the context window, and log only the sizes of what was sent. ``sizes`` are the tokens of each
    component of the request."""
    exchange.answer.context_refusals[outcome] += 1
    if not _log.isEnabledFor(logging.INFO):
        return
    profile = shown(exchange.window.name) if exchange.window is not None else "none"
    known = exchange.fitted.sizes if exchange.fitted is not None else {}
    shown_sizes = " ".join(f"{name}_tokens={count}" for name, count in (sizes or known).items())
    _log.info(
        "exchange %s: refused as too large for the context window: profile=%s outcome=%s attempt=%d in_bytes=%d %s",
        exchange.arrival.id, profile, outcome, exchange.attempts, exchange.arrival.size, shown_sizes,
    )  # fmt: skip


def _told(outcome: Outcome) -> tuple[int, Refusal]:
    """The refusal in a stream whose first event is an error, with the status that other upstreams would use for that
    error."""
    if outcome.error is None or outcome.saw_content:
        return 0, NO_WORDS
    code = outcome.error.get("code")
    return code if type(code) is int else 400, refusal_of_object({"error": dict(outcome.error)})


def _is_void(outcome: Outcome) -> bool:
    """Whether the stream is empty, or its first event is an error that other upstreams report by their status."""
    if outcome.error is None:
        return outcome.is_empty
    code = outcome.error.get("code", outcome.error.get("status"))
    return not outcome.saw_content and type(code) is int and bool(OurEdit.LAYOUT.behind(code))


def _fold_of(status: int, form: BodyForm, exchange: Exchange) -> Fold:
    """The fold that reads an answer. Compressed bytes are not read. A model's answer is what the request asked for,
    unless its content type names the other form. On a raw path, every event of a stream passes. The stream is never cut
    within an event, so that an error event can follow."""
    _, is_json, is_events, is_coded, length = form
    if is_coded or status >= 300:
        return BodyFold(length, is_read=False, is_compressed=is_coded)
    if not (is_json or is_events) and exchange.asks_model:
        is_json, is_events = not exchange.requested.stream, exchange.requested.stream
    if is_events:
        return StreamFold(drop_usage=exchange.arrival.is_chat and not exchange.requested.wants_usage)
    return BodyFold(length, is_read=is_json)


def _rest_of(fold: Fold) -> bytes:
    """The rest of an answer that the upstream has ended. Raises UpstreamUnavailable if it has ended within an event: a
    client would drop that event, and take what came before for the whole answer."""
    rest = b"" if fold.keeps_end else fold.close()
    if isinstance(fold, StreamFold):
        data = event_data(rest) if rest and not rest.endswith((b"\n", b"\r")) else b""
        if fold.is_cut or (data.startswith(b"{") and payload_of(data) is None):
            raise UpstreamUnavailable("the upstream's answer ended within an event")
    return rest


# OpenAI's own upper bound for ``n``.
_MOST_ANSWERS = 128
_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def empty_completion(exchange: Exchange) -> bytes:
    """A completion in which the model says nothing, in the form in which the client has asked for one: one JSON body,
    or a stream of events. A chat's completion has messages; any other has texts."""
    asked, arrival, is_chat = exchange.requested, exchange.arrival, exchange.arrival.is_chat
    begins, form = ("chatcmpl", "chat.completion") if is_chat else ("cmpl", "text_completion")
    # A name that a client chooses may hold half of a surrogate pair, which cannot be written as JSON.
    head = {
        "id": f"{begins}-{arrival.id}",
        "object": form,
        "created": int(arrival.now),
        "model": asked.model.encode("utf-8", "replace").decode(),
    }

    def choices(said: Mapping[str, object], finish: str | None) -> list[Mapping[str, object]]:
        count = max(1, min(asked.demand.answers, _MOST_ANSWERS))
        return [{"index": index, **said, "logprobs": None, "finish_reason": finish} for index in range(count)]

    said = {"role": "assistant", "content": ""}
    if not asked.stream:
        whole = choices({"message": said} if is_chat else {"text": ""}, "stop")
        return orjson.dumps({**head, "choices": whole, "usage": _NO_USAGE})
    if is_chat:
        head["object"] = f"{form}.chunk"
    opened = choices({"delta": said} if is_chat else {"text": ""}, None)
    closed = choices({"delta": {}} if is_chat else {"text": ""}, "stop")
    usage: list[Mapping[str, object]] = [{"choices": [], "usage": _NO_USAGE}] if asked.wants_usage else []
    chunks = [{**head, **chunk} for chunk in ({"choices": opened}, {"choices": closed}, *usage)]
    return b"".join([*(event_of(orjson.dumps(chunk)) for chunk in chunks), DONE])

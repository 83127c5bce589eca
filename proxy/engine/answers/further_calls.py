"""Further calls of one exchange, by which the model's calls of panels are answered: whether one may go out, and what
all of them use.

All calls are one exchange: one reservation, which is extended for each of them by the most that it can cost, and one
settlement. The plan is about the first call alone. A further call goes the first one's way: the body that the upstream
took, the same deployment, the same transport with its deadline and its redaction, past the same breaker.
"""

import logging
from dataclasses import dataclass, field, replace

from proxy.aside import Aside
from proxy.core.resilience.retry import Failure
from proxy.core.response.body_fold import BodyFold
from proxy.core.response.outcome import Outcome
from proxy.core.response.panel_calls import Object, PanelAnswers, PanelCallOutcome, continued_request
from proxy.core.response.stream import StreamFold
from proxy.engine.attempts.retry import Attempts, failure_answered, failure_of
from proxy.engine.exchange import Exchange
from proxy.engine.headers import get
from proxy.engine.ports import Admission, Client, Meter
from proxy.engine.suppress import suppress_and_log
from proxy.errors import ProxyError, UpstreamError
from proxy.ports import Answer, Call, Upstream

MOST_FURTHER = 2
# Of the first call's headers these are about that call alone.
_OF_ONE_CALL = frozenset({"idempotency-key", "content-length"})

_log = logging.getLogger("stratiform")


@dataclass(frozen=True, slots=True)
class PanelService:
    """What answers calls of panels: the panels of the request, the prices, and a place for large work."""

    answers: PanelAnswers
    meter: Meter
    admission: Admission
    aside: Aside


@dataclass(slots=True)
class MadeCall:
    """A call that was made at ``began_s``; ``size`` is that of its body in bytes. ``fold`` reads its answer as it
    comes."""

    size: int
    fold: StreamFold | BodyFold
    began_s: float
    is_billed: bool = True


class NotContinued(UpstreamError):
    """A further call was answered with something else than an answer."""

    def __init__(self, why: str, failure: Failure | None = None) -> None:
        super().__init__(f"the upstream did not go on with its answer: {why}")
        self.failure = failure


@dataclass(slots=True, repr=False)
class FurtherCalls:
    """The first call of one attempt, and the calls that follow it. ``call`` is the latest of them."""

    exchange: Exchange
    client: Client
    service: PanelService
    upstream: Upstream
    call: Call
    attempts: Attempts
    made: list[MadeCall] = field(default_factory=list)

    @property
    def may_follow(self) -> bool:
        """Whether another call may follow the one that is made next. Several answers to one request cannot go on."""
        return len(self.made) < MOST_FURTHER and self.exchange.requested.demand.answers == 1

    def begin(self, fold: StreamFold | BodyFold) -> MadeCall:
        """A call is made, whose answer the fold reads. The first one was answered already."""
        body = self.call.body
        size = len(body) if isinstance(body, bytes) else 0
        self.made.append(MadeCall(size, fold, self.exchange.elapsed_s()))
        return self.made[-1]

    async def request(self, message: Object | None, calls: int) -> Call | None:
        """The call that follows the model's message with so many calls; None where none may, or where the proxy meets
        an error of its own."""
        body, following = self.call.body, None
        if self.client.has_left or message is None or not isinstance(body, bytes):
            return None
        with suppress_and_log("panels.answer"):
            # Each call may ask for the same panel, which may be nearly all of the body.
            size, answers = len(body) * (1 + calls), self.service.answers
            following = await self.service.aside.run_large(size, continued_request, body, message, answers)
        if following is None or not await self._may_spend(len(following)) or not self.attempts.goes_on():
            return None
        headers = [(name, value) for name, value in self.call.headers if name.lower() not in _OF_ONE_CALL]
        self.call = replace(self.call, body=following, headers=headers)
        return self.call

    async def open(self, call: Call, fold: StreamFold | BodyFold) -> Answer:
        """Send a further call, whose answer the fold reads. Raises ProxyError where it is not answered."""
        made = self.begin(fold)
        # A provider that has a request when its client leaves may go on with it: it is billed until it has failed.
        try:
            answer = await self.upstream.open(call)
        except ProxyError as error:
            made.is_billed = isinstance(error, UpstreamError) and error.may_bill
            raise
        made.is_billed = 200 <= answer.status < 300
        if made.is_billed and get(answer.headers, "content-encoding") in (None, "", "identity"):
            return answer
        await answer.aclose()
        failure = failure_answered(answer.status, answer.headers)
        raise NotContinued(f"it answered with status {answer.status}", failure)

    def broke(self, error: ProxyError, calls: int) -> None:
        """A further call failed."""
        self.count(PanelCallOutcome.FAILED, calls)
        self.attempts.broke(error.failure if isinstance(error, NotContinued) else failure_of(error))
        _log.warning("exchange %s: a panel's call was not answered (%s)", self.exchange.arrival.id, error.code)

    def left_over(self, calls: int) -> None:
        """Calls of our tool were taken out of the answer, and no further call follows."""
        is_last = len(self.made) > MOST_FURTHER
        self.count(PanelCallOutcome.GAVE_UP if is_last else PanelCallOutcome.TAKEN_OUT, calls)

    def count(self, outcome: PanelCallOutcome, calls: int) -> None:
        """Count calls of our tool by what became of them."""
        if calls:
            self.exchange.answer.panel_calls[outcome.value] += calls

    def noted(self, outcome: Outcome) -> Outcome:
        """The outcome of what the client gets, with the usage of the first call in it. That of further calls is left on
        the exchange."""
        if not self.made:
            return outcome
        first = self.made[0].fold.outcome()
        self.exchange.answer.further = tuple(self._booked(made) for made in self.made[1:] if made.is_billed)
        return replace(
            outcome,
            usage=first.usage,
            reported=first.reported,
            saw_content=outcome.saw_content or first.saw_content,
            events=first.events,
            tokens=first.tokens,
            cache_cause=first.cache_cause,
        )

    async def _may_spend(self, size: int) -> bool:
        """Whether the limits leave room for a call with so many bytes."""
        spent = self.service.meter.spent(self.exchange, [self._booked(made) for made in self.made if made.is_billed])
        return await self.service.admission.extend(self.exchange, spent, self._added_tokens(size))

    def _booked(self, made: MadeCall) -> Outcome:
        """The answer to a call, with its usage or what is booked in its place."""
        silent_s = self.exchange.elapsed_s() - made.began_s
        return self.service.meter.booked(self.exchange, made.fold.outcome(), self._added_tokens(made.size), silent_s)

    def _added_tokens(self, size: int) -> int:
        """The most tokens that a prompt of so many bytes has beside those of the first call's: a token has a byte."""
        return max(0, size - self.made[0].size)

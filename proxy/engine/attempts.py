"""Chooses which deployments are called for a request, how often, and with which body. Nothing here reads an answer.

A circuit breaker for each deployment says whether it may be called now. Times are from the process's own clock.

When deployments share the work, a session's requests go to the deployment that served the earlier ones, because a
provider's cache does not move. Weighted rendezvous hashing orders equal deployments for a session. Each deployment gets
a number from the digest of the session's key and its own id, and the highest number comes first. Adding or removing a
deployment moves only the sessions that it gains or loses.

One exchange has one reservation and one settlement, however many attempts it takes. A failure decides whether another
attempt follows, where, and after which wait. An attempt is followed by another only while nothing of any answer has
reached the client.

Two edits of a chat request can make an upstream refuse a request that it would otherwise accept: the layout, and
``stream_options``, which asks for usage in streams and which strict servers do not know. On other paths, it is the
question for the cause of a cache miss. At most one more call is made before the client gets an answer, so the second
call is the client's own request, without any edit that may be to blame. The edit that was to blame decides what is
remembered: a layout is barred for the session, and a question is not sent to the deployment for a while.

``Inquiries`` asks providers why prompts were not read from their caches, on the paths where providers answer this
question. It also diagnoses those requests itself (``stratiform.ask_provider_for_cause``). The provider's reply to a
question that only the proxy asked is removed from the answer.
"""

import asyncio
import math
import random
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Flag, auto
from hashlib import blake2b
from time import perf_counter

import orjson

from proxy.engine.exchange import Exchange, Inquiry
from proxy.engine.headers import get
from proxy.kit.errors import (
    CircuitOpen,
    ProxyError,
    RateLimited,
    UpstreamLoading,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.kit.lru import LastUsed
from proxy.kit.resilience import (
    ORDINARY,
    Breaker,
    BreakerPolicy,
    BreakerState,
    Failure,
    Kind,
    Option,
    RetryPolicy,
    is_quota,
    kind_of,
    next_step,
)
from proxy.kit.tasks import Aside, suppress_and_log, work_in
from proxy.kit.value import replace
from proxy.models import Deployment, Headers, Transport
from proxy.planner.diagnose import Continued, Conversations, Exchanged
from proxy.planner.plan import Plan
from proxy.planner.record import is_continuation, wire_record
from proxy.protocol.prices import Price
from proxy.protocol.providers import PROFILES, fitted
from proxy.protocol.request import ParsedBody, RequestFields, untouched
from proxy.protocol.request.tokens import bytes_over_four, quick
from proxy.protocol.response.outcome import QUESTIONS
from proxy.protocol.response.refusal import NO_WORDS, Refusal
from proxy.protocol.wire.json_body import MOST_ELEMENTS, TooMany, parse_members, splice

# Clients choose the names that match a wildcard, so the number of remembered names is bounded.
_MOST = 2048


class Breakers:
    """A breaker for each deployment, created at its first failure. Without a policy, all calls are let through.

    ``on_change`` is called with the id of a deployment and its new state.
    """

    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        on_change: Callable[[str, str], None] | None = None,
        now: Callable[[], float] = perf_counter,
    ) -> None:
        self._policy = policy
        self._on_change = on_change
        self._now = now
        self._breakers: OrderedDict[str, Breaker] = OrderedDict()
        self._announced: dict[str, BreakerState] = {}

    def admits(self, deployment: Deployment) -> bool:
        """Whether a call may go to the deployment."""
        breaker = self._breakers.get(deployment.id)
        return breaker is None or breaker.admits(self._now())

    def waits_s(self, deployment: Deployment) -> float:
        """Seconds until it is worth calling the deployment again."""
        breaker = self._breakers.get(deployment.id)
        return 0.0 if breaker is None else breaker.waits_s(self._now())

    def is_failing(self, deployment: Deployment) -> bool:
        """Whether the deployment's breaker is open or half-open because of failures. A deployment that only asked to be
        called later does not count: it still answers so itself."""
        breaker = self._breakers.get(deployment.id)
        if breaker is None or breaker.is_resting:
            return False
        return breaker.state(self._now()) is not BreakerState.CLOSED

    def began(self, deployment: Deployment) -> int | None:
        """A call is about to be sent. Returns its number, for ``ended`` or ``abandoned``. None: the call must not be
        sent."""
        breaker = self._breakers.get(deployment.id)
        if breaker is None:
            return ORDINARY
        call = breaker.began(self._now())
        self._announce(deployment, breaker)
        return call

    def ended(self, deployment: Deployment, call: int, *, is_failure: bool) -> None:
        """The call was answered, or failed."""
        breaker = self._breakers.get(deployment.id)
        if breaker is None:
            # Calls are counted from the first failure on, so a deployment that always works costs nothing.
            if not is_failure or self._policy is None:
                return
            breaker = self._made(deployment, self._policy)
        breaker.ended(self._now(), call, is_failure=is_failure)
        self._announce(deployment, breaker)

    def abandoned(self, deployment: Deployment, call: int) -> None:
        """The client left before the call was answered."""
        if (breaker := self._breakers.get(deployment.id)) is not None:
            breaker.abandoned(call)

    def rest(self, deployment: Deployment, seconds: float) -> None:
        """The upstream has said when to call it again."""
        if self._policy is None:
            return
        breaker = self._breakers.get(deployment.id) or self._made(deployment, self._policy)
        breaker.rest(self._now(), seconds)
        self._announce(deployment, breaker)

    def _made(self, deployment: Deployment, policy: BreakerPolicy) -> Breaker:
        breaker = self._breakers[deployment.id] = Breaker(policy)
        if len(self._breakers) > _MOST:
            gone, _ = self._breakers.popitem(last=False)
            self._announced.pop(gone, None)
        return breaker

    def _announce(self, deployment: Deployment, breaker: Breaker) -> None:
        state = breaker.state(self._now())
        if self._on_change is not None and state is not self._announced.get(deployment.id, BreakerState.CLOSED):
            self._announced[deployment.id] = state
            self._on_change(deployment.id, state.value)


def ordered(deployments: Sequence[Deployment], key: bytes) -> list[Deployment]:
    """Equal deployments in the order in which the session of that key tries them. A deployment of weight 0 comes after
    all others."""
    return sorted(deployments, key=lambda d: _draw(d, key), reverse=True)


def _draw(deployment: Deployment, key: bytes) -> float:
    if deployment.weight <= 0:
        return -math.inf
    number = int.from_bytes(blake2b(deployment.id.encode(), key=key[:64], digest_size=8).digest(), "big")
    return -deployment.weight / math.log((number + 1) / (2**64 + 1))


_MOST_S = 1e6
# How long a deployment without money is skipped if there is another one: as long as a breaker lets it rest.
_QUOTA_REST_S = 60.0
_NO_FAULT: frozenset[Kind] = frozenset({"rate-limited", "quota", "loading"})

ONE_TRY = RetryPolicy(retries=0)

Levels = Sequence[Sequence[Deployment]]


class Attempts:
    """Selects the deployments of an exchange's attempts. ``deployment`` is the one that is called next.

    ``on_failure`` is called for each failed attempt that is followed by another.
    """

    def __init__(
        self,
        levels: Levels,
        breakers: Breakers,
        policy: RetryPolicy,
        elapsed_s: Callable[[], float],
        on_failure: Callable[[Kind], None],
        *,
        wider: Levels | None = (),
    ) -> None:
        """The ``wider`` deployments are called, one level after the other, only if the context window of another
        deployment is too small. None: no second deployment is ever called. Raises CircuitOpen if the breakers of all
        deployments are open."""
        options = [(level, d) for level, group in enumerate(levels) for d in group]
        self._breakers = breakers
        self._options = options
        self._tries = [0] * len(options)
        self._missed: set[int] = set()
        if wider is None:
            self._options = [options[self._first()]]
            self._tries = [0]
        self._policy = policy
        self._elapsed_s = elapsed_s
        self._on_failure = on_failure
        self._call: int | None = None
        """The breaker's number of the call in progress. None: no call is in progress."""
        first = 1 + max(level for level, _ in self._options)
        self.wider = [(first + level, d) for level, group in enumerate(wider or ()) for d in group]
        """The deployments with wider context windows that are left to be called, each with its level."""
        self._asked: set[str] = set()
        self._counted: set[int] = set()
        self._wait_s = 0.0
        self.is_spent = False
        """The call failed, and the client must not repeat it: all attempts that were worth making were made."""
        self._index = self._first()
        self.deployment = self._options[self._index][1]

    @property
    def others(self) -> tuple[Deployment, ...]:
        """The deployments that may serve the exchange instead."""
        return (*(d for i, (_, d) in enumerate(self._options) if i != self._index), *(d for _, d in self.wider))

    @property
    def may_follow(self) -> bool:
        """Whether another attempt could follow a failure at all."""
        return max(self._policy.retries, *self._policy.retries_after.values(), 0) > 0 or len(self._options) > 1

    def began(self) -> bool:
        """The attempt is about to be sent. Returns whether it may be sent. It may not if another call has begun to
        probe the deployment since this one was chosen. Then ``pause`` comes next, and another deployment is called.
        Raises CircuitOpen if there is no other deployment."""
        self._call = self._breakers.began(self.deployment)
        if self._call is None:
            self._missed.add(self._index)
            self._index, self._wait_s = self._first(), 0.0
            return False
        self._tries[self._index] += 1
        self._asked.add(self.deployment.id)
        return True

    def goes_on(self) -> bool:
        """The attempt was answered, and needs another call to the same deployment. Returns whether that call may be
        sent. Like any call, it ends with ``answered`` or ``abandoned``, or it fails the attempt."""
        self.answered()
        self._call = self._breakers.began(self.deployment)
        return self._call is not None

    def answered(self, failure: Failure | None = None) -> None:
        """The call ended. Without a ``failure`` of the upstream, the upstream works: it has answered, even if only with
        a refusal, or the call itself was to blame. This changes nothing if the call has already ended."""
        call, self._call = self._call, None
        if call is None:
            return
        is_failure = failure is not None and failure.kind not in _NO_FAULT
        # One client's call counts as one failure, with its SDK's retries, because it must not open a breaker all by
        # itself. A call that probes a deployment whose breaker is open counts in any case.
        is_known = self._policy.spent > 0 or self._index in self._counted
        if is_failure and is_known and not self._breakers.is_failing(self.deployment):
            self._breakers.abandoned(self.deployment, call)
            return
        if is_failure:
            self._counted.add(self._index)
        self._breakers.ended(self.deployment, call, is_failure=is_failure)

    def refused(self) -> None:
        """The upstream works, and it refuses the layout. The client's own request replaces this attempt."""
        self.answered()
        self._tries[self._index] -= 1

    def widened(self) -> bool:
        """The upstream works, and the request is too large for its model. Returns whether a model with a wider window
        follows. If so, ``pause`` comes next, and the deployments before it are not called again."""
        self.answered()
        level = self._options[self._index][0]
        fresh = [(at, d) for at, d in self.wider if at > level and d.id not in self._asked]
        found = next((at for at, d in fresh if self._breakers.admits(d)), None)
        if found is None:
            return False
        self._options = [(at, d) for at, d in fresh if at >= found]
        self._tries = [0] * len(self._options)
        self._missed, self._counted = set(), set()
        self._index, self._wait_s = self._first(), 0.0
        return True

    def abandoned(self) -> None:
        """Nobody waits for the attempt any more. This changes nothing if the attempt has already ended in another
        way."""
        if self._call is not None:
            self._breakers.abandoned(self.deployment, self._call)
            self._call = None

    def failed(self, failure: Failure) -> bool:
        """The attempt failed. Returns whether another one follows. If so, ``pause`` comes next."""
        self.answered(failure)
        options = [
            Option(level, self._tries[i], self._breakers.admits(d)) for i, (level, d) in enumerate(self._options)
        ]
        step = next_step(self._policy, options, self._index, failure, self._elapsed_s(), random.random())
        if step is None or step[0] != self._index:
            # Other requests stay away from a deployment that has no capacity or no money left. This is not done if
            # there is no other deployment, or if the limit may be that of the client's own key.
            rest_s = _QUOTA_REST_S if failure.kind == "quota" else failure.retry_after_s
            is_own = len(self._options) > 1 and self.deployment.api_key is not None
            if failure.kind in _NO_FAULT and rest_s and is_own:
                self._breakers.rest(self.deployment, rest_s)
        if step is None:
            self.is_spent = failure.kind == "quota" or max(self._tries) > 1
            return False
        self._on_failure(failure.kind)
        self._index, self._wait_s = step
        return True

    async def pause(self) -> bool:
        """Wait until the next attempt is due. Returns whether it goes to another deployment."""
        if self._wait_s > 0:
            await asyncio.sleep(self._wait_s)
        before, self.deployment = self.deployment, self._options[self._index][1]
        return self.deployment is not before

    def _first(self) -> int:
        """The index of the next deployment among those that were not called yet. Raises CircuitOpen."""
        fresh = [(i, d) for i, (_, d) in enumerate(self._options) if i not in self._missed and not self._tries[i]]
        for index, deployment in fresh:
            if self._breakers.admits(deployment):
                return index
        # If some deployments only asked to be called later, the first of them is called: its own answer says when to
        # come back.
        for index, deployment in fresh:
            if not self._breakers.is_failing(deployment):
                return index
        raise self.shut()

    def shut(self) -> CircuitOpen:
        """The error if no deployment may be called."""
        wait_s = min(self._breakers.waits_s(deployment) for _, deployment in self._options)
        return CircuitOpen(
            "the upstream of this model keeps failing and is left alone for a moment",
            headers={"retry-after": str(max(1, round(wait_s)))},
        )


def failure_of(error: ProxyError) -> Failure | None:
    """The failure that an upstream's error stands for. None if another attempt would end in the same way."""
    match error:
        case UpstreamTimeout():
            return Failure("timeout")
        case UpstreamUnavailable():
            return Failure("unavailable")
        case UpstreamLoading() | RateLimited():
            kind: Kind = "loading" if isinstance(error, UpstreamLoading) else "rate-limited"
            return Failure(kind, retry_after_s(list(error.headers.items())))
        case UpstreamRejected():
            return failure_answered(error.status, list(error.headers.items()), refusal_of(error))
        case _:
            return None


def refusal_of(error: UpstreamRejected) -> Refusal:
    """The refusal in a provider's error."""
    return Refusal(error.message, error.message, error.code, error.error_type, (error.param,) if error.param else ())


def failure_answered(status: int, headers: Headers, said: Refusal = NO_WORDS) -> Failure | None:
    """The failure that an answer stands for. None if the answer is no failure, or if another attempt would get the
    same. If the text that it ``said`` is not given, only a 402 is known to be about a quota."""
    if is_quota(status, said.code, said.type, message=said.message):
        return Failure("quota")
    kind = kind_of(status)
    if kind is None:
        return None
    return Failure(kind, retry_after_s(headers), get(headers, "x-should-retry") == "false")


def retry_after_s(headers: Headers) -> float | None:
    """The wait that ``retry-after-ms`` or ``retry-after`` (seconds or a date, RFC 9110 section 10.2.3) asks for."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = get(headers, name)
        if text is None:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            seconds = _until(text)
        if seconds >= 0:
            return min(seconds, _MOST_S)
    return None


def _until(date: str) -> float:
    try:
        then = parsedate_to_datetime(date)
    except (ValueError, OverflowError):  # no date, or one with numbers that no date has
        return -1.0
    now = datetime.now(UTC)  # noqa: TID251 - the date is that of the upstream's wall clock
    return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds())


_NOT_THE_LAYOUT = frozenset({401, 403, 429})
# These statuses say nothing about a member of the request. With any other one, a server may refuse a member that it
# does not know: most servers do with 400 or 422, those of SageMaker with 424.
_NOT_A_MEMBER = frozenset({402, 404, 408, 413})

# Servers are updated, so a refusal is forgotten after this time. A new try costs one refused call.
_FOR_S = 3600.0


class OurEdit(Flag):
    """The proxy's edits that an upstream may refuse."""

    NONE = 0
    LAYOUT = auto()
    USAGE = auto()
    CAUSE = auto()

    def behind(self, status: int) -> "OurEdit":
        """The edits among these that may be the cause of an answer with this status."""
        if not 400 <= status < 500 or status in _NOT_THE_LAYOUT:
            return OurEdit.NONE
        return self & ~OurEdit.USAGE if status in _NOT_A_MEMBER else self

    def in_refusal(self, status: int, said: Refusal) -> "OurEdit":
        """The edits among these that may be the cause of a refusal, by its status and its text. If the text names
        another member, the question for usage is not to blame. A layout may be to blame for anything."""
        found = self.behind(status)
        return found & ~OurEdit.USAGE if said.names_another else found


class Outgoing:
    """One plan's request to one deployment. ``suspects`` are the proxy's edits for which it may be refused and sent
    again, once."""

    def __init__(self, plan: Plan, head: RequestFields, model: str, *, asks_usage: bool) -> None:
        self.plan = plan
        self._head = head
        self._model = model
        self._lacks_usage = head.parsed is not None and head.parsed.usage_asked() is not None
        self._asks_usage = asks_usage and self._lacks_usage
        self.is_original = False
        self.blamed = OurEdit.NONE
        self.suspects = OurEdit.LAYOUT if plan.rewritten else OurEdit.NONE
        if self._asks_usage:
            self.suspects |= OurEdit.USAGE

    @property
    def body(self) -> bytes:
        """The request as it is sent now."""
        head, laid_out = self._head, self.plan.original if self.is_original else self.plan.body
        if self._asks_usage or head.parsed is None or not self._lacks_usage:
            return laid_out
        if laid_out == untouched(head, self._model):
            return untouched(head, self._model, asks_usage=False)
        # The operator's reminder is in the original, too.
        options = head.parsed.members.get("stream_options")
        changes = {"stream_options": None if options is None else bytes(options)}
        return splice(laid_out, parse_members(laid_out), changes)

    @property
    def size(self) -> int:
        """How many bytes are sent."""
        return len(self.body)

    def retreat(self, refused: OurEdit, *, names_usage: bool) -> None:
        """Remove the edits that were refused. If either of the two may be to blame, the layout is blamed unless the
        upstream names the question for usage. Barring a layout affects one session only. Without the question, the
        bills of all clients would be estimates."""
        is_both = refused == OurEdit.LAYOUT | OurEdit.USAGE
        self.blamed = (OurEdit.USAGE if names_usage else OurEdit.LAYOUT) if is_both else refused
        if OurEdit.LAYOUT in refused:
            self.is_original = True
        if OurEdit.USAGE in refused:
            self._asks_usage = False
        self.suspects = OurEdit.NONE


class QuestionOptOut:
    """The deployments that refuse one of the proxy's questions, for usage in streams or for the cause of a cache miss.
    For each, it stores until when the question is not sent. Times are from the process's own clock."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self._until: LastUsed[str, float] = LastUsed(_MOST)

    def add(self, deployment: Deployment) -> None:
        """The deployment has refused the question, and accepted the same request without it."""
        self._until.put(deployment.id, self._now() + _FOR_S)

    def __contains__(self, deployment: Deployment) -> bool:
        until = self._until.get(deployment.id)
        return until is not None and self._now() < until


MOST_ASKED_BYTES = 512
"""The most bytes that the question adds to a request. An id of another form is not sent back."""
_ID = re.compile(r"[\w.:-]{1,256}", re.ASCII)


class Inquiries:
    """The conversations of all clients. ``price_of`` returns the price of a deployment's tokens, or None if it is not
    known. ``memory_bytes``: the room for the conversations."""

    def __init__(
        self, price_of: Callable[[Deployment], Price | None], aside: Aside, memory_bytes: int = 64 << 20
    ) -> None:
        self._price_of, self._aside = price_of, aside
        self._conversations = Conversations(memory_bytes)
        self._refused = QuestionOptOut()

    async def open(self, exchange: Exchange, parsed: ParsedBody | None) -> Inquiry | None:
        """The inquiry for a request that its provider may be asked about. None for any other request."""
        question = QUESTIONS.get(exchange.parsed.text)
        if question is None or parsed is None or not exchange.asks_model:
            return None
        scope, at = exchange.principal.scope + exchange.parsed.text, exchange.arrival.now
        found = None
        with suppress_and_log("inquiries.open"):
            found = await self._aside.run_large(work_in(parsed.body), self._read, parsed.body, scope, at)
        return None if found is None else Inquiry(question, scope, parsed, found)

    def _read(self, body: bytes, scope: str, at: float) -> Continued | None:
        try:
            read = orjson.loads(body)
            record = wire_record(read, quick(bytes_over_four), at=at, most=MOST_ELEMENTS)
        except (ValueError, RecursionError, TooMany):
            return None
        parent = read.get("previous_response_id") if is_continuation(read) else ""
        return self._conversations.find(scope, record, parent if isinstance(parent, str) else "")

    def changes(self, inquiry: Inquiry | None, deployment: Deployment) -> Mapping[str, bytes]:
        """The members that put the question to the provider that is called next. Empty if it cannot be asked, or if the
        client asks itself."""
        if inquiry is None:
            return {}
        inquiry.asks, question = False, inquiry.question
        is_called = deployment.transport is Transport.HTTP and deployment.server == question.server
        # OpenAI refuses the field for models with the older cache rules.
        may_ask = is_called and (question.from_first or deployment.profile.name == question.profile)
        if inquiry.is_refused or not may_ask or deployment in self._refused:
            return {}
        changes = question.changes(inquiry.parsed.members, inquiry.continued.previous(deployment.id))
        inquiry.asks = bool(changes)
        return changes

    def refused(self, deployment: Deployment) -> None:
        """The deployment accepts without the question a request that it refused with the question."""
        self._refused.add(deployment)

    def learn(self, exchange: Exchange, inquiry: Inquiry) -> None:
        """The provider accepted the request. Record what broke its cache, and add the exchange to the conversation."""
        deployment, outcome, found = exchange.deployment, exchange.answer.outcome, inquiry.continued
        if deployment is None:
            return
        # The rules of the cache may differ from those of chats, for which the same deployment may have no cache.
        profile, usage, rules = deployment.profile, outcome.usage, inquiry.question.profile
        if profile.name != rules:
            profile = fitted(PROFILES[rules], deployment.model)
        broke = None
        if found.comparison is not None:
            broke = found.comparison.diagnosed(usage, profile, self._price_of(deployment))
        if broke is not None and broke.lost:
            exchange.planned.result = replace(exchange.planned.result, broke=broke)
        name = outcome.said.id if outcome.said is not None and _ID.fullmatch(outcome.said.id) else ""
        said = Exchanged(found.record.answered(usage, profile), name, deployment.id)
        self._conversations.add(inquiry.scope, found, said)

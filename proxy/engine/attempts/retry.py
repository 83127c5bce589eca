"""The attempts of one exchange: where each goes, what a failure means, and how long to wait before the next.

One exchange has one reservation and one settlement, however many attempts it takes. An attempt is followed by another
only while nothing of any answer has reached the client.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from proxy.core.resilience.retry import (
    Failure,
    Kind,
    Option,
    RetryPolicy,
    is_quota,
    kind_of,
    next_step,
)
from proxy.core.response.refusal import NO_WORDS, Refusal
from proxy.engine.attempts.affinity import ordered
from proxy.engine.attempts.breaker import Breakers
from proxy.engine.headers import get
from proxy.errors import (
    CircuitOpen,
    ProxyError,
    RateLimited,
    UpstreamLoading,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.ports import Deployment, Headers

_MOST_S = 1e6
# How long a deployment without money is passed over where there is another: as long as a breaker lets it rest.
_QUOTA_REST_S = 60.0
_NO_FAULT: frozenset[Kind] = frozenset({"rate-limited", "quota", "loading"})

ONE_TRY = RetryPolicy(retries=0)

Levels = Sequence[Sequence[Deployment]]


class Attempts:
    """Where an exchange's attempts go. ``deployment`` is the one whose turn it is.

    ``on_failure`` hears of each failed attempt that is followed by another.
    """

    def __init__(
        self,
        levels: Levels,
        key: bytes,
        breakers: Breakers,
        policy: RetryPolicy,
        elapsed_s: Callable[[], float],
        on_failure: Callable[[Kind], None],
        *,
        wider: Levels | None = (),
    ) -> None:
        """``key`` says which session it is. ``wider`` are asked, one level after the other, where the context window of
        another is too small, and in no other case; None: no second deployment is asked for anything. Raises CircuitOpen
        where every deployment was shut."""
        options = [(level, d) for level, group in enumerate(levels) for d in ordered(group, key)]
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
        """The breaker's number of the call that is on its way; None where none is."""
        first = 1 + max(level for level, _ in self._options)
        self._wider = [(first + level, d) for level, group in enumerate(wider or ()) for d in ordered(group, key)]
        self._asked: set[str] = set()
        self._counted: set[int] = set()
        self._wait_s = 0.0
        self.is_spent = False
        """The call failed in a way that the client must not repeat: what was to be tried has been tried."""
        self._index = self._first()
        self.deployment = self._options[self._index][1]

    @property
    def has_wider(self) -> bool:
        """Whether a deployment with a wider context window is left to be asked."""
        return bool(self._wider)

    @property
    def others(self) -> tuple[Deployment, ...]:
        """The deployments that may serve the exchange instead."""
        own = (d for i, (_, d) in enumerate(self._options) if i != self._index)
        return (*own, *(d for _, d in self._wider))

    @property
    def may_follow(self) -> bool:
        """Whether a failure could be followed by another attempt at all."""
        return self._policy.most_retries > 0 or len(self._options) > 1

    def began(self) -> bool:
        """The attempt is about to go out; says whether it may. Where it may not, because another call probes the
        deployment since this one was chosen, ``pause`` comes next, and then another deployment's turn. Raises
        CircuitOpen where there is none."""
        if not self._begins_call():
            self._missed.add(self._index)
            self._index, self._wait_s = self._first(), 0.0
            return False
        self._tries[self._index] += 1
        self._asked.add(self.deployment.id)
        return True

    def goes_on(self) -> bool:
        """The attempt was answered, and needs another call of the same deployment; says whether that may go out. As any
        call it ends with ``answered``, ``broke`` or ``abandoned``, or fails the attempt."""
        self._report(is_failure=False)
        return self._begins_call()

    def broke(self, failure: Failure | None) -> None:
        """A call failed that was not the attempt's first: the client gets what is there. None: it was the call's
        fault."""
        self._report(is_failure=failure is not None and failure.kind not in _NO_FAULT)

    def answered(self) -> None:
        """The upstream works: it has answered, if only with a refusal."""
        self._report(is_failure=False)

    def refused(self) -> None:
        """The upstream works and will not have the layout: the client's own request takes this attempt's place."""
        self._report(is_failure=False)
        self._tries[self._index] -= 1

    def widened(self) -> bool:
        """The upstream works, and the request is too large for its model; says whether a model with a wider window
        follows: then ``pause`` comes next. Those before it are not asked again."""
        self._report(is_failure=False)
        level = self._options[self._index][0]
        fresh = [(at, d) for at, d in self._wider if at > level and d.id not in self._asked]
        found = next((at for at, d in fresh if self._breakers.admits(d)), None)
        if found is None:
            return False
        self._options = [(at, d) for at, d in fresh if at >= found]
        self._tries = [0] * len(self._options)
        self._missed, self._counted = set(), set()
        self._index, self._wait_s = self._first(), 0.0
        return True

    def abandoned(self) -> None:
        """Nobody waits for the attempt any more. After any other ending of it this changes nothing."""
        if self._call is not None:
            self._breakers.abandoned(self.deployment, self._call)
            self._call = None

    def failed(self, failure: Failure) -> bool:
        """The attempt failed; says whether another one follows: then ``pause`` comes next."""
        self._report(is_failure=failure.kind not in _NO_FAULT)
        options = [
            Option(level, self._tries[i], self._breakers.admits(d)) for i, (level, d) in enumerate(self._options)
        ]
        step = next_step(self._policy, options, self._index, failure, self._elapsed_s(), random.random())
        if step is None or step.index != self._index:
            self._let_rest(failure)
        if step is None:
            self.is_spent = failure.kind == "quota" or max(self._tries) > 1
            return False
        self._on_failure(failure.kind)
        self._index, self._wait_s = step.index, step.wait_s
        return True

    async def pause(self) -> bool:
        """Wait for the next attempt's turn; says whether it goes to another deployment."""
        if self._wait_s > 0:
            await asyncio.sleep(self._wait_s)
        before, self.deployment = self.deployment, self._options[self._index][1]
        return self.deployment is not before

    def _first(self) -> int:
        """Whose turn it is among those that were not asked yet. Raises CircuitOpen."""
        fresh = [(i, d) for i, (_, d) in enumerate(self._options) if i not in self._missed and not self._tries[i]]
        for index, deployment in fresh:
            if self._breakers.admits(deployment):
                return index
        # Where some only asked for time, the first of them says when to come back in its own words.
        for index, deployment in fresh:
            if not self._breakers.is_failing(deployment):
                return index
        raise self.shut()

    def shut(self) -> CircuitOpen:
        """What is said where every deployment is left alone."""
        wait_s = min(self._breakers.waits_s(deployment) for _, deployment in self._options)
        return CircuitOpen(
            "the upstream of this model keeps failing and is left alone for a moment",
            headers={"retry-after": str(max(1, round(wait_s)))},
        )

    def _begins_call(self) -> bool:
        """Ask the breaker for a call's number; says whether the call may go out."""
        self._call = self._breakers.began(self.deployment)
        return self._call is not None

    def _report(self, *, is_failure: bool) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        # One client's call, with its SDK's retries, counts once: it must not shut a deployment all by itself. A call
        # that probes a deployment that was shut decides in any case.
        is_known = self._policy.spent > 0 or self._index in self._counted
        if is_failure and is_known and not self._breakers.is_failing(self.deployment):
            self._breakers.abandoned(self.deployment, call)
            return
        if is_failure:
            self._counted.add(self._index)
        self._breakers.ended(self.deployment, call, is_failure=is_failure)

    def _let_rest(self, failure: Failure) -> None:
        """Keep others away from a deployment that has no capacity or no money left. Not where there is no other, nor
        where the limit may be that of the client's own key."""
        rest_s = _QUOTA_REST_S if failure.kind == "quota" else failure.retry_after_s
        if failure.kind not in _NO_FAULT or not rest_s:
            return
        if len(self._options) > 1 and self.deployment.api_key is not None:
            self._breakers.rest(self.deployment, rest_s)


def failure_of(error: ProxyError) -> Failure | None:
    """The failure that an upstream's error is; None where another attempt would end alike."""
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
    """What a provider's error says."""
    params = (error.param,) if error.param else ()
    return Refusal(error.message, error.message, error.code, error.error_type, params)


def failure_answered(status: int, headers: Headers, said: Refusal = NO_WORDS) -> Failure | None:
    """The failure that an answer is; None where it is none, or another attempt would get the same. Without what it
    ``said``, only a 402 is known to be about a quota."""
    if is_quota(status, said.code, said.type, message=said.message):
        return Failure("quota")
    kind = kind_of(status)
    if kind is None:
        return None
    return Failure(kind, retry_after_s(headers), get(headers, "x-should-retry") == "false")


def retry_after_s(headers: Headers) -> float | None:
    """What ``retry-after-ms`` or ``retry-after`` (seconds or a date, RFC 9110 section 10.2.3) ask for."""
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
    except ValueError:
        return -1.0
    now = datetime.now(UTC)  # noqa: TID251 - the date is that of the upstream's wall clock
    return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds())

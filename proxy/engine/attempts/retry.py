"""The attempts of one exchange: the deployment of each, the meaning of a failure, and the wait before the next attempt.

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
        key: bytes,
        breakers: Breakers,
        policy: RetryPolicy,
        elapsed_s: Callable[[], float],
        on_failure: Callable[[Kind], None],
        *,
        wider: Levels | None = (),
    ) -> None:
        """``key`` identifies the session. The ``wider`` deployments are called, one level after the other, only if the
        context window of another deployment is too small. None: no second deployment is ever called. Raises CircuitOpen
        if the breakers of all deployments are open."""
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
        """The breaker's number of the call in progress. None: no call is in progress."""
        first = 1 + max(level for level, _ in self._options)
        self._wider = [(first + level, d) for level, group in enumerate(wider or ()) for d in ordered(group, key)]
        self._asked: set[str] = set()
        self._counted: set[int] = set()
        self._wait_s = 0.0
        self.is_spent = False
        """The call failed, and the client must not repeat it: all attempts that were worth making were made."""
        self._index = self._first()
        self.deployment = self._options[self._index][1]

    @property
    def has_wider(self) -> bool:
        """Whether a deployment with a wider context window is left to be called."""
        return bool(self._wider)

    @property
    def others(self) -> tuple[Deployment, ...]:
        """The deployments that may serve the exchange instead."""
        own = (d for i, (_, d) in enumerate(self._options) if i != self._index)
        return (*own, *(d for _, d in self._wider))

    @property
    def may_follow(self) -> bool:
        """Whether another attempt could follow a failure at all."""
        return self._policy.most_retries > 0 or len(self._options) > 1

    def began(self) -> bool:
        """The attempt is about to be sent. Returns whether it may be sent. It may not if another call has begun to
        probe the deployment since this one was chosen. Then ``pause`` comes next, and another deployment is called.
        Raises CircuitOpen if there is no other deployment."""
        if not self._begins_call():
            self._missed.add(self._index)
            self._index, self._wait_s = self._first(), 0.0
            return False
        self._tries[self._index] += 1
        self._asked.add(self.deployment.id)
        return True

    def goes_on(self) -> bool:
        """The attempt was answered, and needs another call to the same deployment. Returns whether that call may be
        sent. Like any call, it ends with ``answered``, ``broke`` or ``abandoned``, or it fails the attempt."""
        self._report(is_failure=False)
        return self._begins_call()

    def broke(self, failure: Failure | None) -> None:
        """A call failed that was not the attempt's first one. The client gets the answer as far as it exists. None: the
        call itself was to blame."""
        self._report(is_failure=failure is not None and failure.kind not in _NO_FAULT)

    def answered(self) -> None:
        """The upstream works: it has answered, even if only with a refusal."""
        self._report(is_failure=False)

    def refused(self) -> None:
        """The upstream works, and it refuses the layout. The client's own request replaces this attempt."""
        self._report(is_failure=False)
        self._tries[self._index] -= 1

    def widened(self) -> bool:
        """The upstream works, and the request is too large for its model. Returns whether a model with a wider window
        follows. If so, ``pause`` comes next, and the deployments before it are not called again."""
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
        """Nobody waits for the attempt any more. This changes nothing if the attempt has already ended in another
        way."""
        if self._call is not None:
            self._breakers.abandoned(self.deployment, self._call)
            self._call = None

    def failed(self, failure: Failure) -> bool:
        """The attempt failed. Returns whether another one follows. If so, ``pause`` comes next."""
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

    def _begins_call(self) -> bool:
        """Get a call's number from the breaker. Returns whether the call may be sent."""
        self._call = self._breakers.began(self.deployment)
        return self._call is not None

    def _report(self, *, is_failure: bool) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        # One client's call counts as one failure, with its SDK's retries, because it must not open a breaker all by
        # itself. A call that probes a deployment whose breaker is open counts in any case.
        is_known = self._policy.spent > 0 or self._index in self._counted
        if is_failure and is_known and not self._breakers.is_failing(self.deployment):
            self._breakers.abandoned(self.deployment, call)
            return
        if is_failure:
            self._counted.add(self._index)
        self._breakers.ended(self.deployment, call, is_failure=is_failure)

    def _let_rest(self, failure: Failure) -> None:
        """Keep other requests away from a deployment that has no capacity or no money left. This is not done if there
        is no other deployment, or if the limit may be that of the client's own key."""
        rest_s = _QUOTA_REST_S if failure.kind == "quota" else failure.retry_after_s
        if failure.kind not in _NO_FAULT or not rest_s:
            return
        if len(self._options) > 1 and self.deployment.api_key is not None:
            self._breakers.rest(self.deployment, rest_s)


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
    params = (error.param,) if error.param else ()
    return Refusal(error.message, error.message, error.code, error.error_type, params)


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

"""Decides about attempts: which deployment is called, whether another attempt follows, and when. Pure.

A circuit breaker gives an upstream that fails no calls for a while, and then tries it with one call. It is a state
machine, and times are seconds of any clock that come from outside:

    closed ──(more than ``allowed_fails`` in ``window_s``, and at least half of the calls)──▶ open
    open ──(``cooldown_s`` later)──▶ half-open: one call is let through
    half-open ──(it succeeds)──▶ closed          half-open ──(it fails)──▶ open

A call asks again (``began``) at the moment when it is sent: many calls may have been admitted before the probing call
was sent. The number that a call gets tells the end of the probe from the end of calls that began earlier. Half of the
calls must fail, not only some in a row: otherwise one client whose requests crash the provider could block it for all
others. If an upstream asks for time (``rest``, from its ``retry-after``), its breaker is open for that long and then
closed. Such an upstream works, and has said when to call it again.

A request is tried again only if nothing of its answer has reached the client. A provider's cache does not move: if one
deployment holds a prompt, another one must write it anew, at full price. So if the wait is short, the same deployment
is tried once more, and only then the next one. If the upstream cannot be reached at all, the next deployment is tried
at once.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

from proxy.kit.value import dataclass, field, replace

FAILED_SHARE = 0.5


class BreakerState(StrEnum):
    """Whether calls are let through."""

    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a breaker opens, and for how long. The defaults are LiteLLM's (``allowed_fails``, ``cooldown_time``)."""

    allowed_fails: int = 3
    cooldown_s: float = 5.0
    window_s: float = 60.0
    most_rest_s: float = 60.0


ORDINARY = 0
"""The number of every call that is not a probe."""


class Breaker:
    """The breaker of one upstream. If ``began`` lets a call go, either ``ended`` or ``abandoned`` follows once, with
    the number that ``began`` returned."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._calls = 0
        self._failed = 0
        self._window_from = 0.0
        self._until: float | None = None
        self.is_resting = False
        self._probe = ORDINARY  # the number of the probe that is under way
        self._last_probe = ORDINARY

    def state(self, now: float) -> BreakerState:
        """The state at the time ``now``."""
        if self._until is None:
            return BreakerState.CLOSED
        if now < self._until:
            return BreakerState.OPEN
        return BreakerState.CLOSED if self.is_resting else BreakerState.HALF_OPEN

    def admits(self, now: float) -> bool:
        """Whether a call may be sent. A half-open breaker lets one call through at a time."""
        state = self.state(now)
        return state is BreakerState.CLOSED or (state is BreakerState.HALF_OPEN and self._probe == ORDINARY)

    def waits_s(self, now: float) -> float:
        """How long until it is worth asking again."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def began(self, now: float) -> int | None:
        """Begin a call that is about to be sent. Returns its number, or None if it must not be sent. If the upstream
        has asked for time, a call that has no other upstream may still be sent."""
        match self.state(now):
            case BreakerState.HALF_OPEN if self._probe == ORDINARY:
                self._last_probe += 1
                self._probe = self._last_probe
                return self._probe
            case BreakerState.CLOSED if self._until is not None:
                self._close()
            case BreakerState.HALF_OPEN | BreakerState.OPEN if not self.is_resting:
                return None
            case _:
                pass
        return ORDINARY

    def ended(self, now: float, call: int, *, is_failure: bool) -> None:
        """Record that the call with this number was answered, or failed."""
        if self._until is not None:
            # The end of the probe decides. Of calls that began earlier, only a success counts.
            if not is_failure and not self.is_resting:
                self._close()
            elif is_failure and call == self._probe != ORDINARY:
                self._open(now, self._policy.cooldown_s)
            return
        if now - self._window_from >= self._policy.window_s:
            self._calls = self._failed = 0
            self._window_from = now
        self._calls += 1
        self._failed += is_failure
        if self._failed > self._policy.allowed_fails and self._failed >= FAILED_SHARE * self._calls:
            self._open(now, self._policy.cooldown_s)

    def abandoned(self, call: int) -> None:
        """Record that the client left before the result of the call was known. If the call was the probe, the next call
        may be the probe."""
        if call == self._probe:
            self._probe = ORDINARY

    def rest(self, now: float, seconds: float) -> None:
        """Record that the upstream has said when to call it again."""
        until = now + min(seconds, self._policy.most_rest_s)
        if self._until is None or (self.is_resting and until > self._until):
            self._open(now, until - now)
            self.is_resting = True

    def _open(self, now: float, seconds: float) -> None:
        self._until = now + seconds
        self.is_resting = False
        self._probe = ORDINARY

    def _close(self) -> None:
        self._until = None
        self.is_resting = False
        self._probe = ORDINARY
        self._calls = self._failed = 0


RETRY_COUNT = "x-stainless-retry-count"
USER_AGENT = "user-agent"

Kind = Literal["unavailable", "timeout", "rate-limited", "quota", "server-error", "loading"]
Stays = Literal["always", "beside-others", "never"]

_MOST_SPENT = 100
_REPEATING = ("ai/", "ai-sdk/", "codex_")
_NEVER = frozenset({501, 505})
_PATIENT: frozenset[Kind] = frozenset({"rate-limited", "server-error"})
_NAMES_QUOTA = frozenset({402, 403, 429})
# Anthropic answers an account without credit as if the request were invalid: only the message says the cause. Only its
# beginning is compared, because the rest may be a client's words. https://github.com/continuedev/continue/issues/5499
_INVALID = 400
_NO_CREDIT = "Your credit balance is too low"
# The error names of providers and gateways for an account without money: insufficient_quota and billing_* are OpenAI's,
# with billing_error for Anthropic (https://docs.anthropic.com/en/api/errors); the others are Moonshot's and One API's.
_QUOTA_NAMES = frozenset(
    {
        "insufficient_quota", "insufficient_user_quota", "exceeded_current_quota_error", "billing_hard_limit_reached",
        "billing_not_active", "billing_error", "insufficient_balance",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to retry, and how long to wait. ``retries`` holds for each level: a group of equal deployments, then
    each fallback.

    ``retries_after`` gives the number of retries for kinds of failures, as LiteLLM's ``retry_policy`` does.
    ``retries_of`` gives these numbers for single names of models, as LiteLLM's ``model_group_retry_policy`` does.
    ``least_wait_s`` is LiteLLM's ``retry_after``. If the wait would be longer than ``most_wait_s``, the client is told
    to wait itself. Nothing is tried again later than ``most_total_s`` after the request. ``patience_s`` is a wait that
    is cheaper than a cold cache. It is also the longest wait that the proxy takes because the upstream asked for it.

    ``stays`` says when a deployment that failed is called again within one exchange. A client that repeats its calls by
    itself does this better (``of``). But if another deployment could take over, a warm cache is worth a
    second attempt first. ``spent`` is how often the client has already tried its call.
    """

    retries: int = 2
    first_wait_s: float = 0.25
    least_wait_s: float = 0.0
    most_wait_s: float = 8.0
    most_total_s: float = 60.0
    patience_s: float = 2.0
    stays: Stays = "always"
    spent: int = 0
    retries_after: Mapping[Kind, int] = field(default_factory=dict)
    retries_of: Mapping[str, Mapping[Kind, int]] = field(default_factory=dict)

    def of(self, model: str, count: str | None = None, agent: str | None = None) -> "RetryPolicy":
        """The policy for a request that names this model and has this retry count and user agent.

        SDKs repeat a call that failed. If the proxy repeated each of their attempts as well, one call would become
        nine. So the proxy does only what the client cannot do: it calls another deployment. The SDKs that Stainless
        generates (OpenAI's, Anthropic's and those of many others) say in ``x-stainless-retry-count`` how often they
        have tried before, and obey ``x-should-retry``. The AI SDK (https://ai-sdk.dev) and Codex also retry, but they
        do neither: the proxy knows them by name.
        """
        found = self.retries_of.get(model)
        policy = self if found is None else replace(self, retries_after=found)
        if count is not None and count.isascii() and count.isdigit():
            return replace(policy, stays="beside-others", spent=int(count) if len(count) <= 3 else _MOST_SPENT)
        if any(word.startswith(_REPEATING) for word in (agent or "").lower().split()):
            return replace(policy, stays="never")
        return policy


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt failed. ``retry_after_s`` is the wait that the upstream asked for. ``is_final``: the upstream said
    not to retry.

    "quota" means that the deployment's account has no money left: no wait helps there, and another one may serve.
    "loading" means that the proxy cannot call the deployment yet."""

    kind: Kind
    retry_after_s: float | None = None
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """A deployment of the route: its level, its number of attempts, and whether its breaker lets a call through."""

    level: int
    tries: int
    is_admitted: bool


Step = tuple[int, float]
"""The next attempt: the index of its option, and the seconds to wait before it."""


def kind_of(status: int) -> Kind | None:
    """The kind of failure that a status means; None if another attempt would get the same answer."""
    if status == 429:
        return "rate-limited"
    if status == 408:
        return "timeout"
    return "server-error" if status >= 500 and status not in _NEVER else None


def is_quota(status: int, *names: object, message: str = "") -> bool:
    """Whether an error with this code and type, and this message, says that the account has no money left."""
    if status == _INVALID:
        return message.startswith(_NO_CREDIT)
    return status == 402 or (status in _NAMES_QUOTA and any(type(n) is str and n in _QUOTA_NAMES for n in names))


def backoff_s(policy: RetryPolicy, tries: int, failure: Failure, luck: float) -> float:
    """How long to wait before the next attempt at the same deployment, after ``tries`` attempts. ``luck`` is uniform in
    [0, 1).

    The wait grows exponentially, with jitter
    (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/), so that clients that failed together do
    not return together. It is never shorter than the upstream asked for.
    """
    drawn = policy.first_wait_s * 2.0 ** min(tries - 1, 16) * (0.5 + 0.5 * luck)
    if failure.retry_after_s is not None:
        return max(failure.retry_after_s + 0.1 * drawn, policy.least_wait_s)
    return max(min(drawn, policy.most_wait_s), policy.least_wait_s)


def next_step(
    policy: RetryPolicy, options: Sequence[Option], current: int, failure: Failure, elapsed_s: float, luck: float
) -> Step | None:
    """The attempt after a failed one; None if there is no further attempt and the client gets the failure."""
    if failure.is_final:
        return None
    here = options[current]
    wait_s = backoff_s(policy, here.tries, failure, luck)
    others = [i for i, o in enumerate(options) if o.level == here.level and i != current and o.is_admitted]
    fresh = [i for i in others if not options[i].tries]
    step: Step | None = None
    made = sum(o.tries for o in options if o.level == here.level)
    retries = policy.retries_after.get(failure.kind, policy.retries)
    may_stay = policy.stays == "always" or (policy.stays == "beside-others" and len(options) > 1)
    if made <= retries:
        # If the upstream names a wait, the client decides about it, because only the client knows what it is worth. The
        # proxy itself takes only a short wait.
        is_told = failure.retry_after_s is not None and failure.retry_after_s > policy.patience_s
        is_possible = here.is_admitted and wait_s <= policy.most_wait_s and not is_told
        can_stay = may_stay and made + policy.spent <= retries and is_possible and failure.kind != "quota"
        is_patient = here.tries == 1 and wait_s <= policy.patience_s and failure.kind in _PATIENT
        if can_stay and (is_patient or not others):
            step = (current, wait_s)
        elif fresh:
            step = (fresh[0], 0.0)
        elif others and policy.stays == "always" and failure.kind != "quota":
            step = (min(others, key=lambda i: options[i].tries), min(wait_s, 1.0))
    if step is None:
        later = (i for i, o in enumerate(options) if o.level > here.level and o.is_admitted)
        step = next(((i, 0.0) for i in later), None)
    return step if step is not None and elapsed_s + step[1] <= policy.most_total_s else None

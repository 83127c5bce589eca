"""Decides whether, when and where another attempt follows a failed one. Pure.

A request is tried again only if nothing of its answer has reached the client. A provider's cache does not move: if one
deployment holds a prompt, another one must write it anew, at full price. So if the wait is short, the same deployment
is tried once more, and only then the next one. If the upstream cannot be reached at all, the next deployment is tried
at once.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from proxy.core.value import dataclass, field, replace

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
    itself does this better (``beside_client``). But if another deployment could take over, a warm cache is worth a
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

    def of(self, model: str) -> "RetryPolicy":
        """The policy for requests that name this model."""
        found = self.retries_of.get(model)
        return self if found is None else replace(self, retries_after=found)

    @property
    def most_retries(self) -> int:
        """The greatest number of retries after any failure."""
        return max(self.retries, *self.retries_after.values(), 0)


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


@dataclass(frozen=True, slots=True)
class Step:
    """The next attempt: which option, and after how long."""

    index: int
    wait_s: float


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
    base = policy.first_wait_s * 2.0 ** min(tries - 1, 16)
    drawn = base * (0.5 + 0.5 * luck)
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
            step = Step(current, wait_s)
        elif fresh:
            step = Step(fresh[0], 0.0)
        elif others and policy.stays == "always" and failure.kind != "quota":
            step = Step(min(others, key=lambda i: options[i].tries), min(wait_s, 1.0))
    if step is None:
        later = (i for i, o in enumerate(options) if o.level > here.level and o.is_admitted)
        step = next((Step(i, 0.0) for i in later), None)
    return step if step is not None and elapsed_s + step.wait_s <= policy.most_total_s else None


def beside_client(policy: RetryPolicy, count: str | None, agent: str | None) -> RetryPolicy:
    """The policy for a request with this retry count and user agent.

    SDKs repeat a call that failed. If the proxy repeated each of their attempts as well, one call would become nine. So
    the proxy does only what the client cannot do: it calls another deployment. The SDKs that Stainless generates
    (OpenAI's, Anthropic's and those of many others) say in ``x-stainless-retry-count`` how often they have tried
    before, and obey ``x-should-retry``. The AI SDK (https://ai-sdk.dev) and Codex also retry, but they do neither: the
    proxy knows them by name.
    """
    if count is not None and count.isascii() and count.isdigit():
        return replace(policy, stays="beside-others", spent=int(count) if len(count) <= 3 else _MOST_SPENT)
    if any(word.startswith(_REPEATING) for word in (agent or "").lower().split()):
        return replace(policy, stays="never")
    return policy

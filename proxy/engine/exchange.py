"""One request and its results: the only mutable object that travels through the proxy.

An exchange is opened when a request arrives. Each phase notes on it what later phases read: what arrived, which model
is requested, how the request uses the account's objects, what was planned, what the upstream answered, and what was
settled. ``proxy.engine.conclusion`` ends it exactly once. Durations are measured by a monotonic clock; ``now``
is unix seconds and may be virtual.
"""

import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from time import perf_counter

from proxy.context.session import AssembledChat
from proxy.kit.errors import ProxyError, UpstreamTimeout, UpstreamUnavailable
from proxy.kit.modes import Mode, Reason
from proxy.kit.value import dataclass, field
from proxy.models import Deployment, Headers, RateLimit
from proxy.planner.diagnose import Continued
from proxy.planner.plan import Plan, PlanResult
from proxy.prompts.window import CapabilityProfile
from proxy.prompts.window.fitting import Fitted
from proxy.protocol.account import Act, Operation, Path, asks_model, read_path
from proxy.protocol.request import ParsedBody
from proxy.protocol.request.demand import Demand
from proxy.protocol.response.outcome import MissQuestion, Outcome
from proxy.protocol.response.refusal import ContextRefusalOutcome
from proxy.protocol.response.usage import Usage


class ExchangeOutcome(StrEnum):
    """How an exchange ended. What each ending means stands in ``proxy/app/settings/LOGS.md``."""

    COMPLETED = "completed"
    REJECTED = "rejected"
    BROKEN = "broken"
    HUNG_UP = "hung-up"
    REFUSED = "refused"
    FAILED = "failed"


# The status that stands for an ending without an answer.
_STATUS = {
    ExchangeOutcome.HUNG_UP: 499,
    ExchangeOutcome.BROKEN: 502,
    ExchangeOutcome.REFUSED: 400,
    ExchangeOutcome.FAILED: 500,
}
# A gateway gave up waiting for a server that had the request: RFC 9110 section 15.6.5, Cloudflare's 524,
# https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/error-524/, and
# the 408 of a LiteLLM proxy (litellm/exceptions.py, Timeout).
GATEWAY_TIMEOUTS = frozenset({408, 504, 524})
# A model that writes without thinking makes no pauses longer than this.
_PAUSE_S = 1.0


@dataclass(slots=True)
class Arrival:
    """The request as it arrived. ``path`` starts after ``/v1``. ``opened`` is a reading of the monotonic clock.

    ``id`` is unique across workers. ``size`` is the bytes of the request's body, as far as they are known. ``keys`` are
    the credentials that the client sent: everything that is logged or stored about the exchange is searched for them.
    ``addressed`` is the model that the request's address names in addition to the path; it takes precedence over the
    model in the body. ``named`` is the client's id for its request (``x-request-id``), empty if it gave none.
    ``trace`` is the trace from the client's header ``traceparent``. ``tells_id``: the request's id is sent to the
    upstream, the client's own id or else the proxy's.
    """

    method: str
    path: str
    now: float
    id: str = field(default_factory=lambda: "sx-" + os.urandom(8).hex())
    opened: float = field(default_factory=perf_counter)
    size: int = 0
    is_chat: bool = False
    keys: tuple[str, ...] = field(default=(), repr=False)
    addressed: str = ""
    named: str = ""
    trace: str = ""
    tells_id: bool = False


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request. ``scope`` isolates state (team and key, hashed); ``team`` is a metric label.

    ``mode`` is the highest mode that the operator allows this key. ``virtual`` says that the key is the proxy's own
    (the master key, or a team's): it must never be sent upstream. ``forwards_key`` says the opposite: the client sends
    the provider's key, and the deployment's own key must not be used for the request.

    ``key_id`` is the public id of a virtual key. ``user`` is the user that the key is for, or else the user that the
    request names. Both are written into the ledger. ``models`` are allow-lists: a model must be in each of them
    (``proxy.protocol.access``). ``is_confined``: the request may reach only the team's own objects of the operator's
    account. ``paths`` are those that the team may use although they reach the whole account.
    """

    scope: str
    team: str = "default"
    session_hint: str = ""
    mode: Mode = Mode.TIER
    virtual: bool = False
    forwards_key: bool = False
    key_id: str = ""
    user: str = ""
    models: Sequence[Sequence[str]] = ()
    rates: Sequence[RateLimit] = ()
    is_confined: bool = False
    paths: Sequence[str] = ()


@dataclass(slots=True)
class Reservation:
    """The amounts that were set aside for one exchange. The part that sets them aside keeps more data in a subclass.

    ``is_limited``: a budget or a rate limit holds for the exchange, so its size and model must be known. ``is_hard``:
    its usage counts against a hard limit, so it must be known to the end. ``notice`` is a message to the client that a
    budget's soft limit is exceeded, and ``rates`` are the remaining amounts of rate limits, as headers.
    ``prompt_tokens`` is the most tokens that the prompt has; 0 if the number was not needed. ``passes_limits``: the
    deployment that was called last has written answers that were longer than their requests allowed.
    """

    exchange_id: str
    team: str
    is_limited: bool = False
    is_hard: bool = False
    notice: str = ""
    rates: Headers = ()
    prompt_tokens: int = 0
    passes_limits: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One request to an upstream. ``path`` starts with the slash behind ``/v1`` ("/chat/completions").
    ``forwards_key``: the client's own key must be used, and no other."""

    deployment: Deployment
    method: str
    path: str
    headers: Headers = field(repr=False)
    body: bytes | AsyncIterator[bytes] = field(repr=False)
    stream: bool
    now: float
    query: str = ""
    forwards_key: bool = False


@dataclass(slots=True)
class Requested:
    """The model that is requested, and what is requested of it.

    ``model`` is the name that the client uses. ``further`` are the deployments of all other models that the request
    names: its provider may choose any of these models. ``decided_by`` is the reason why a deployment serves a request
    without a model; it is empty for all other requests.
    """

    model: str = ""
    stream: bool = False
    wants_usage: bool = False
    demand: Demand = Demand()
    further: Sequence[Deployment] = ()
    decided_by: str = ""


@dataclass(slots=True)
class ObjectUse:
    """What the request does to the objects of the provider's account.

    ``pin`` is the deployment that holds the objects that the request names. ``is_stored``: the provider stores what the
    request makes. ``is_filtered``: the request asks for a list of which the client gets only the team's own objects.
    ``made_family`` is the family of the objects that the request makes, if it is not the family of its operation.
    """

    operation: Operation = Operation(Act.ASK)
    pin: Deployment | None = None
    is_stored: bool = True
    is_filtered: bool = False
    made_family: str = ""


@dataclass(slots=True)
class Planned:
    """The decision about the request's layout.

    ``plan`` is None on paths where nothing is planned. ``was_retried``: the upstream refused the layout, and the
    client's own request replaced it. ``result`` is what the planner got from the end of the exchange. ``assembled`` is
    the request that was planned, if it was assembled from structured context.
    """

    mode: Mode = Mode.PASSTHROUGH
    reason: str = Reason.NOT_CHAT
    plan: Plan | None = None
    was_retried: bool = False
    result: PlanResult = PlanResult()
    assembled: AssembledChat | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class Inquiry:
    """The question to the provider why the prompt was not read from its cache. ``scope`` keeps conversations apart.
    ``asks``: the call that was sent last contains the question. ``is_refused``: an upstream has refused the question in
    this exchange."""

    question: MissQuestion
    scope: str
    parsed: ParsedBody
    continued: Continued
    asks: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class AnswerRecord:
    """The known facts about the upstream's answer. The code that passes the answer on fills them in."""

    status: int = 0
    error_code: str = ""
    why: str = ""  # the upstream was not reached or broke off, in words of the proxy
    outcome: Outcome = Outcome()
    first_byte_s: float | None = None
    sent_bytes: int = 0
    asked_s: float = 0.0
    """When the call was sent."""
    heard_s: float | None = None
    """When text that the model wrote last arrived."""
    silent_s: float = 0.0
    """How long nothing arrived before that. Short pauses do not count."""
    runs_on: bool = False
    """Whether the upstream finishes the call, and bills all of it, even if the proxy gives it up, and a hard limit
    applies."""
    further: tuple[Outcome, ...] = ()
    """The outcomes of further calls of this exchange, each with its usage. They continued the answer after calls of
    panels. ``outcome`` is the outcome of the first call, and the plan is about that call alone."""
    panel_calls: Counter[str] = field(default_factory=Counter)
    """How many calls of the proxy's own tool there were, by their result (``PanelCallOutcome``)."""
    context_refusals: Counter[ContextRefusalOutcome] = field(default_factory=Counter)
    """How often the upstream refused the request as too large for the context window, by the result."""

    def asked(self, now_s: float, *, runs_on: bool) -> None:
        """A call is sent. Everything that an upstream said before was about another call."""
        self.status = 0
        self.asked_s, self.heard_s, self.silent_s, self.runs_on = now_s, None, 0.0, runs_on

    def note(self, error: ProxyError) -> None:
        """This error is the end of the answer. Only the proxy's own words about an upstream are logged."""
        self.error_code = error.code or ""
        if isinstance(error, (UpstreamTimeout, UpstreamUnavailable)):
            self.why = error.message

    def silence_s(self, now_s: float) -> float:
        """How long nothing has arrived, up to now. The model may have been thinking during all of that time."""
        pause_s = now_s - (self.asked_s if self.heard_s is None else self.heard_s)
        return self.silent_s + (pause_s if self.heard_s is None or pause_s > _PAUSE_S else 0.0)

    @property
    def is_accepted(self) -> bool:
        """Whether the upstream accepted the request (2xx) and began to answer."""
        return self.first_byte_s is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Settlement:
    """The usage and the cost of an exchange. ``usage`` is the provider's report, or an estimate if the provider bills
    the request and reports nothing."""

    usage: Usage | None = None
    cost_usd: float = 0.0
    saved_usd: float = 0.0


@dataclass(slots=True)
class Exchange:
    """One request, from its arrival to its settlement."""

    arrival: Arrival
    principal: Principal = Principal(scope="", team="")
    """The sender. It belongs to no team until it is admitted."""
    requested: Requested = field(default_factory=Requested)
    objects: ObjectUse = field(default_factory=ObjectUse)
    deployment: Deployment | None = None
    """The deployment that serves the exchange now."""
    planned: Planned = field(default_factory=Planned)
    reservation: Reservation | None = None
    """Set once, by ``Admission.reserve``."""
    attempts: int = 0
    called: Deployment | None = None
    """The deployment that was called last. Another one may be chosen after that and never be called."""
    call: Call | None = field(default=None, repr=False)
    """The call that is in progress, or was answered."""
    answer: AnswerRecord = field(default_factory=AnswerRecord)
    ending: ExchangeOutcome | None = None
    inquiry: Inquiry | None = field(default=None, repr=False)
    """Set if the provider may be asked for the cause of a cache miss."""
    asks_break: bool = False
    """Whether the client asks why its request breaks the cache."""
    returns_usage: bool = False
    """Whether the client asks for the usage of the request in its answer."""
    prompts: str = ""
    """The version of the set of prompts that are composed into the request. Empty if there are none."""
    window: CapabilityProfile | None = None
    """The capability profile by whose budget the request is fitted to its context window."""
    fitted: Fitted | None = field(default=None, repr=False)
    """The request as it was fitted to the context window of its model."""
    sent: Sequence[tuple[bytes | ParsedBody, int]] = field(default=(), repr=False)
    """The bodies of which one will be sent, each with the most bytes that are written into it later. Budgets are
    checked against the largest."""
    counted_tokens: int = 0
    """The prompt's tokens, if the whole prompt was counted for a reservation; else 0."""
    overhead_s: float = 0.0
    total_s: float = 0.0
    lost: Settlement = Settlement()
    """The usage and cost of answers that broke off before any part of them reached the client. They are billed although
    another answer took their place."""
    settlement: Settlement | None = None
    """Set once, by ``proxy.engine.conclusion``. From then on, the exchange is in the ledger or about to be written to
    it."""
    read_as: Path | None = field(default=None, repr=False)
    """The parsed path, once it has been parsed. For a breakdown, it is the path of the chat request that the breakdown
    is about."""

    @property
    def parsed(self) -> Path:
        """The parsed path, which all checks share. Raises NotFound for a path that can be read in several ways."""
        if self.read_as is None:
            self.read_as = read_path(self.arrival.path)
        return self.read_as

    @property
    def asks_model(self) -> bool:
        """Whether the request asks a model. Such a request changes nothing, so it may be sent again, and it is billed
        by tokens."""
        return asks_model(self.arrival.method, self.parsed)

    @property
    def status(self) -> int:
        """The status of the answer, or the one that stands for the ending of an exchange without an answer."""
        return self.answer.status or _STATUS.get(self.ending or ExchangeOutcome.HUNG_UP, 500)

    @property
    def is_billed(self) -> bool:
        """Whether the provider bills the request: it accepted the request, or had it when the client left."""
        is_working = self.call is not None and (self.answer.status < 300 or self.answer.status in GATEWAY_TIMEOUTS)
        return self.answer.is_accepted or (is_working and self.ending is ExchangeOutcome.HUNG_UP)

    @property
    def billed_usage(self) -> Usage | None:
        """The settled usage that is this exchange's own. The cost of an object is billed to the exchange that makes it,
        however often the object is read afterwards."""
        return self.settlement.usage if self.settlement is not None and self.objects.operation.bills else None

    def stands_for(self, size: int) -> None:
        """Record how many bytes are sent, which may differ from how many arrived. The possible cost depends on the
        bytes that are sent."""
        self.arrival.size = size

    def heard(self) -> None:
        """The model has written something. This is noted for each piece of a stream."""
        answer, now_s = self.answer, perf_counter() - self.arrival.opened
        if answer.heard_s is None or now_s - answer.heard_s > _PAUSE_S:
            answer.silent_s = answer.silence_s(now_s)
        answer.heard_s = now_s

    def elapsed_s(self) -> float:
        """Seconds since the request was complete."""
        return perf_counter() - self.arrival.opened

    def time(self) -> float:
        """Unix seconds now, in the exchange's own time."""
        return self.arrival.now + self.elapsed_s()

"""One request and what became of it: the only mutable object that travels through the proxy.

An exchange is opened when a request arrives. Each phase notes on it what later phases read: what arrived, which model
is requested, how the request uses the account's objects, what was planned, what the upstream answered, and what was
settled. ``proxy.engine.conclusion`` ends it exactly once. Durations are measured by a monotonic clock; ``now``
is unix seconds and may be virtual.
"""

import os
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from time import perf_counter

from proxy.core.account.objects import Act, Operation
from proxy.core.account.paths import Path, asks_model, read_path
from proxy.core.diagnosis.conversations import Continued
from proxy.core.modes import Mode
from proxy.core.reasons import Reason
from proxy.core.request.demand import Demand
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.response.context_refusal import ContextRefusalOutcome
from proxy.core.response.miss_diagnostics import MissQuestion
from proxy.core.response.outcome import Outcome
from proxy.core.response.usage import Usage
from proxy.core.structured.chat import AssembledChat
from proxy.core.value import dataclass, field
from proxy.core.window.fitting import Fitted
from proxy.core.window.profile import CapabilityProfile
from proxy.ports import Call, Deployment, Plan, PlanResult, Principal, Reservation


class ExchangeOutcome(StrEnum):
    """How an exchange ended."""

    COMPLETED = "completed"
    """The upstream answered with a 2xx status, and the whole answer was passed on."""
    REJECTED = "rejected"
    """The upstream answered with an error of its own, and that was passed on."""
    BROKEN = "broken"
    """The upstream could not be reached, did not answer in time, or broke the answer off."""
    HUNG_UP = "hung-up"
    """The client left."""
    REFUSED = "refused"
    """The proxy refused the request: for its key, its budget, its model, or because it cannot be read."""
    FAILED = "failed"
    """An error of the proxy itself."""


_PAUSE_S = 1.0
"""A model that writes without thinking makes no longer pauses."""


def new_id() -> str:
    """An exchange id, unique across workers."""
    return "sx-" + os.urandom(8).hex()


@dataclass(slots=True)
class Arrival:
    """What arrived. ``path`` starts behind ``/v1``. ``opened`` is a reading of the monotonic clock."""

    method: str
    path: str
    now: float
    id: str = field(default_factory=new_id)
    opened: float = field(default_factory=perf_counter)
    size: int = 0
    """Bytes of the request's body, as far as they are known."""
    is_chat: bool = False
    keys: tuple[str, ...] = field(default=(), repr=False)
    """The credentials that the client sent: whatever is logged or kept of the exchange is searched for them."""
    addressed: str = ""
    """The model that the request's address names beside the path. It counts for more than what the body says."""
    named: str = ""
    """The id by which the client calls its request (``x-request-id``); empty where it gave none."""
    trace: str = ""
    """The trace that the request belongs to, as the client's header ``traceparent`` says it."""
    tells_id: bool = False
    """The upstream is told ``request_id``."""

    @property
    def request_id(self) -> str:
        """The id by which client and upstream know the request: the client's own, or else ours."""
        return self.named or self.id


@dataclass(slots=True)
class Requested:
    """Which model is requested, and what of it. ``model`` is the name that the client uses."""

    model: str = ""
    stream: bool = False
    wants_usage: bool = False
    demand: Demand = Demand()
    decided_by: str = ""
    """The reason why a deployment serves a request that names no model; empty for all other requests."""


@dataclass(slots=True)
class ObjectUse:
    """What the request does to the objects of the provider's account."""

    operation: Operation = Operation(Act.ASK)
    pin: Deployment | None = None
    """The deployment where the objects live that the request names."""
    is_stored: bool = True
    """The provider keeps what the request makes."""
    is_filtered: bool = False
    """The request asks for a list, and only the team's own objects of it go out."""
    made_family: str = ""
    """The family of what it makes, where that is not its operation's."""


@dataclass(slots=True)
class Planned:
    """What was decided about the request's layout. ``plan`` is None on paths where nothing is planned."""

    mode: Mode = Mode.PASSTHROUGH
    reason: str = Reason.NOT_CHAT
    plan: Plan | None = None
    was_retried: bool = False
    """The upstream refused the layout, and the client's own request took its place."""
    result: PlanResult = PlanResult()
    """What the end of the exchange has shown the planner."""
    assembled: AssembledChat | None = field(default=None, compare=False, repr=False)
    """What was planned, where it was assembled from structured context."""


@dataclass(slots=True)
class Inquiry:
    """The question to the provider why the prompt was not read from its cache. ``scope`` keeps conversations apart.
    ``asks``: the call that went out last holds the question. ``is_refused``: an upstream has refused it in this
    exchange."""

    question: MissQuestion
    scope: str
    parsed: ParsedBody
    continued: Continued
    asks: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class AnswerRecord:
    """What is known of the upstream's answer. The code that passes the answer on fills it in."""

    status: int = 0
    error_code: str = ""
    outcome: Outcome = Outcome()
    first_byte_s: float | None = None
    sent_bytes: int = 0
    asked_s: float = 0.0
    """When the call went out."""
    heard_s: float | None = None
    """When something of the answer came last that the model has written."""
    silent_s: float = 0.0
    """How long nothing came before that; short pauses do not count."""
    runs_on: bool = False
    """The upstream finishes the call, and bills all of it, also where the proxy gives it up; and a hard limit holds."""
    further: tuple[Outcome, ...] = ()
    """What further calls of this exchange used, each with its usage: they went on with the answer behind calls of
    panels. ``outcome`` is of the first call, which alone is what the plan is about."""
    panel_calls: Counter[str] = field(default_factory=Counter)
    """Calls of the proxy's own tool by what became of them (``PanelCallOutcome``)."""
    context_refusals: Counter[ContextRefusalOutcome] = field(default_factory=Counter)
    """How often the upstream refused the request as too large for the context window, by what became of it."""

    def asked(self, now_s: float, *, runs_on: bool) -> None:
        """A call goes out. Whatever an upstream said before was about another call."""
        self.status = 0
        self.asked_s, self.heard_s, self.silent_s, self.runs_on = now_s, None, 0.0, runs_on

    def silence_s(self, now_s: float) -> float:
        """How long nothing has come, up to now: in all that time the model may have thought."""
        pause_s = now_s - (self.asked_s if self.heard_s is None else self.heard_s)
        return self.silent_s + (pause_s if self.heard_s is None or pause_s > _PAUSE_S else 0.0)

    @property
    def is_accepted(self) -> bool:
        """The upstream took the request (2xx) and began to answer."""
        return self.first_byte_s is not None and 200 <= self.status < 300

    @property
    def is_over_budget(self) -> bool:
        """The client gets what its capability profile has for requests that are too large."""
        return any(self.context_refusals[one] for one in (ContextRefusalOutcome.EMPTY, ContextRefusalOutcome.ERROR))


@dataclass(frozen=True, slots=True)
class Settlement:
    """What an exchange used and cost. ``usage`` is the provider's report, or an estimate where the provider bills the
    request and reports nothing."""

    usage: Usage | None = None
    cost_usd: float = 0.0
    saved_usd: float = 0.0


@dataclass(slots=True)
class Exchange:
    """One request, from its arrival to its settlement."""

    arrival: Arrival
    principal: Principal | None = None
    requested: Requested = field(default_factory=Requested)
    objects: ObjectUse = field(default_factory=ObjectUse)
    deployment: Deployment | None = None
    """The deployment whose turn it is to serve the exchange."""
    planned: Planned = field(default_factory=Planned)
    reservation: Reservation | None = None
    """Set once, by ``Admission.reserve``."""
    attempts: int = 0
    call: Call | None = field(default=None, repr=False)
    """The call that is on its way to the upstream, or was answered."""
    answer: AnswerRecord = field(default_factory=AnswerRecord)
    ending: ExchangeOutcome | None = None
    inquiry: Inquiry | None = field(default=None, repr=False)
    """Set where the provider may be asked for the cause of a miss."""
    asks_break: bool = False
    """The client wants to be told why its request breaks the cache."""
    returns_usage: bool = False
    """The client wants to be told in the answer what the request used."""
    prompts: str = ""
    """The version of the set of prompts that are composed into the request; empty where none is."""
    window: CapabilityProfile | None = None
    """The capability profile by whose budget the request is fitted to its context window."""
    fitted: Fitted | None = field(default=None, repr=False)
    """The request as it was fitted to the context window of its model."""
    sent: Sequence[tuple[bytes | ParsedBody, int]] = field(default=(), repr=False)
    """The bodies of which one is sent, each with the bytes that are written into it later, at most. Budgets are held
    against the largest."""
    counted_tokens: int = 0
    """The prompt's tokens, if the whole prompt was counted for a reservation; else 0."""
    overhead_s: float = 0.0
    total_s: float = 0.0
    lost: Settlement = Settlement()
    """The usage and cost of answers that broke off before any part of them reached the client. They are billed although
    another answer took their place."""
    settlement: Settlement | None = None
    """Set once, by ``proxy.engine.conclusion``: from then on the exchange is, or is about to be, in the ledger."""
    read_as: Path | None = field(default=None, repr=False)
    """The path's reading, once somebody has read it; of a breakdown, that of the chat request that it is about."""

    @property
    def admitted(self) -> Principal:
        """The principal of an exchange that was admitted."""
        assert self.principal is not None
        return self.principal

    @property
    def parsed(self) -> Path:
        """The path's reading, which every check shares. Raises NotFound for a path that can be read in several ways."""
        if self.read_as is None:
            self.read_as = read_path(self.arrival.path)
        return self.read_as

    @property
    def asks_model(self) -> bool:
        """Whether the request asks a model: it changes nothing, so it may be sent again, and is billed by tokens."""
        return asks_model(self.arrival.method, self.parsed)

    @property
    def is_billed(self) -> bool:
        """Whether the provider bills the request: it took the request, or had it when the client left."""
        has_left = self.ending is ExchangeOutcome.HUNG_UP and self.call is not None and self.answer.status < 300
        return self.answer.is_accepted or has_left

    @property
    def billed_usage(self) -> Usage | None:
        """The settled usage that is this exchange's own. The cost of an object is billed to the exchange that makes it,
        however often the object is read afterwards."""
        return self.settlement.usage if self.settlement is not None and self.objects.operation.bills else None

    def arrived(self, now: float, size: int) -> None:
        """The request is complete. The client's own slowness up to here is not counted as the proxy's."""
        self.arrival.now, self.arrival.opened, self.arrival.size = now, perf_counter(), size

    def stands_for(self, size: int) -> None:
        """The request is sent with so many bytes, however many it came with: that is what it can cost."""
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

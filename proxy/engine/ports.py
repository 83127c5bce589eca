"""What the engine asks of the world: transports, a planner, the client's side of an exchange, and the parts that know
about exchanges (admission, the meter, the follower and others)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from proxy.context.session import AssembledChat
from proxy.engine.attempts import Inquiries
from proxy.engine.exchange import Call, Exchange, Principal, Settlement
from proxy.kit.clock import Clock
from proxy.kit.errors import ProxyError
from proxy.kit.modes import Mode
from proxy.kit.tasks import Aside
from proxy.kit.value import dataclass, field
from proxy.models import Deployment, Headers, Transport
from proxy.models.deployments import ModelTable
from proxy.planner.plan import Plan, PlanResult
from proxy.prompts.window import CapabilityProfile, WindowParts
from proxy.prompts.window.fitting import Fitted
from proxy.protocol.request import Inset, ParsedBody
from proxy.protocol.response.outcome import Outcome
from proxy.protocol.response.usage import Usage


class Answer(Protocol):
    """An upstream's answer, opened: the status and headers are known, the body is still to be read."""

    status: int
    headers: Headers

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises UpstreamUnavailable or UpstreamTimeout if the connection breaks."""

    async def aclose(self) -> None:
        """Give the call up, or release its connection. May be called more than once."""


@runtime_checkable
class TellsUsage(Protocol):
    """An answer that knows more about its usage than its chunks have shown."""

    def usage_so_far(self) -> Mapping[str, object]:
        """The usage that the provider has reported so far, as a usage object; empty if it has reported nothing."""


class Upstream(Protocol):
    """A transport. ``open`` raises ProxyError subclasses only; an upstream's own error is an Answer with its status."""

    async def open(self, call: Call) -> Answer:
        """Send the request and wait for status and headers."""

    async def aclose(self) -> None:
        """Release every connection."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A part that does not work as it should, and what is wrong with it. ``refuses``: requests are refused because of
    it."""

    part: str
    message: str
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A chat request to be planned: its body, its sender, and the deployment that it goes to. ``assembled`` is set if
    the body was assembled from structured context. ``inset`` are the operator's texts around the newest user message.
    ``repeats_texts``: earlier turns may be sent again with their texts. Without ``has_body`` the plan only tells its
    changes, and its body stays the original."""

    parsed: ParsedBody
    deployment: Deployment
    principal: Principal
    mode: Mode
    now: float
    assembled: AssembledChat | None = None
    inset: Inset = Inset()
    repeats_texts: bool = True
    has_body: bool = True


class Planner(Protocol):
    """Plans requests, and learns from the exchanges that follow."""

    def parse(self, body: bytes) -> ParsedBody:
        """The body, parsed with the help of earlier requests. Another thread may call this. Raises InvalidRequest if
        the body is no JSON object, and Unreadable if only the proxy cannot read it."""

    async def assemble(
        self,
        sent: ParsedBody,
        principal: Principal,
        now: float,
        own: ParsedBody | None = None,
    ) -> AssembledChat:
        """The request with its structured context as messages; ``now`` is when it arrived, in unix seconds. ``own`` is
        the request without the operator's system text; None: there is no such text. Raises InvalidRequest if the
        section that describes the context is not understood, PayloadTooLarge if it stands for too much text, and
        MissingContent if it only names texts and they are not known."""

    async def breakdown(self, assembled: AssembledChat, deployment: Deployment, mode: Mode) -> Mapping[str, object]:
        """The parts of which an assembled request would consist at this deployment, with their tiers, as a value for
        JSON. Nothing is sent or counted."""

    async def tokens(self, parsed: ParsedBody) -> int | None:
        """About how many tokens the messages and tools of a chat request have; None if they cannot be read."""

    async def plan(self, request: PlanRequest) -> Plan:
        """The plan for one chat request. Work that takes long is done without holding up the event loop.

        Raises InvalidRequest if the body is no chat request. Any other error is contained: the plan is then the
        original with the reason ``internal-error``.
        """

    def on_accepted(self, plan: Plan, now: float) -> None:
        """The upstream accepted the request and its first byte arrived: commit the shadow cache."""

    def refused(self, plan: Plan) -> None:
        """The upstream refused the rewritten body: the original is sent in its place. Nothing is learnt yet, because
        the upstream may refuse the original, too."""

    def barred(self, plan: Plan) -> None:
        """The upstream took the original after it had refused the rewritten body: bar this kind of plan for the
        session."""

    def on_completed(self, plan: Plan, usage: Usage | None, now: float) -> PlanResult:
        """The exchange ended well (2xx): count stability once and learn from the reported usage. Not called after an
        error, or after a cancel before the first byte."""


class Meter(Protocol):
    """Prices and counts exchanges. It never suspends and never blocks, because durable writes are queued."""

    def began(self) -> None:
        """An exchange has begun. ``settle`` always follows, exactly once."""

    def failed(self, exchange: Exchange, kind: str) -> None:
        """An attempt failed, and another one follows. ``kind`` has the values of ``upstream_errors_total``."""

    def lose(self, exchange: Exchange) -> Settlement:
        """The upstream got a call, and nothing of its answer has reached the client. Returns ``exchange.lost`` with the
        usage and the cost of the call added."""

    def price(self, exchange: Exchange) -> Settlement:
        """The exchange is about to end. Returns its usage and its cost, including ``exchange.lost``. Called once."""

    def spent(self, exchange: Exchange, outcomes: Sequence[Outcome]) -> Settlement:
        """The cost of these answers of the exchange by their usage, and of the lost calls before them. Nothing is
        counted."""

    def booked(self, exchange: Exchange, outcome: Outcome, further_tokens: int, silent_s: float) -> Outcome:
        """The outcome of a further call with its usage. If the answer reports no usage, the result has the usage that
        is booked for such a call: its prompt has ``further_tokens`` more tokens than the exchange's first one, and
        nothing arrived for ``silent_s``."""

    def settle(self, exchange: Exchange) -> None:
        """The exchange has ended, and ``ending`` says how. Counts everything."""


class Follower(Protocol):
    """Works after the exchanges of clients: keeps cached prefixes alive and compacts conversations. It never suspends,
    never blocks and never raises."""

    def ended(self, exchange: Exchange) -> None:
        """A client's exchange was settled. ``call`` is the last call that was sent."""

    async def aclose(self) -> None:
        """Send nothing more."""


UsageReports = Callable[[Exchange], Awaitable[Mapping[str, object]]]
"""Returns the usage of an exchange that was just booked, and the usage of its session, only in figures and as a value
that can be written as JSON. The session's data is read immediately, before anything is awaited."""


class Admission(Protocol):
    """Decides who may send a request, and what it may cost."""

    def admit(self, headers: Headers, now: float) -> Principal:
        """The principal that these headers identify. Raises Unauthorized."""

    def limits(self, principal: Principal) -> bool:
        """Whether a budget or a rate limit may hold for requests of this principal."""

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        """Reserve the most that this request can cost at its deployment, or at the ``others`` that may replace it.
        Called once for each exchange before its first attempt, also on raw paths, with what is known about its size.
        Sets ``exchange.reservation`` before it waits for anything, so that the end of the exchange can release the
        reservation. Raises BudgetExceeded, RateLimited, BudgetUnavailable. Raises Forbidden if the deployment would
        need the client's own key and that key is virtual."""

    async def extend(self, exchange: Exchange, spent: Settlement, further_tokens: int = 0) -> bool:
        """Extend the reservation for a further call of the exchange: to what its calls have ``spent`` so far plus the
        most that the further call can cost. The call's prompt may have ``further_tokens`` more tokens than the first
        call's. Returns whether the limits leave room for it."""

    async def take_turn(self, exchange: Exchange, deployment: Deployment) -> None:
        """A call is about to be sent. Count it if the deployment has its own limits, and set aside what it can cost in
        budgets that hold for its model only. Raises RateLimited, BudgetExceeded, BudgetUnavailable."""

    async def weigh(self, exchange: Exchange) -> None:
        """Record in the reservation how many tokens the prompt has, because the provider will not report it."""

    async def defer(self, exchange: Exchange) -> None:
        """Keep the reservation of an exchange that has ended. ``settle_later`` settles it when its cost is known. If
        that is never called, the reserved amount is billed."""

    async def settle_later(self, exchange: Exchange) -> None:
        """Settle an exchange that was deferred, perhaps by another worker. The exchange object was created again."""

    async def settle(self, exchange: Exchange) -> None:
        """Replace the exchange's reservation by its cost, or release the reservation if no attempt was made. Called
        once, after ``Meter.price``. It never raises. When it returns, the ledger entry is durable, or the failure is
        counted."""


@dataclass(frozen=True, slots=True)
class ComposeRequest:
    """A request whose prompts are to be composed. ``parsed`` is None if its body cannot be parsed. ``prompts`` and
    ``window`` are these members of its section, as JSON. ``persona`` and ``profile`` are requested by its headers.
    Nothing is learnt from the request unless ``keeps_state`` is set."""

    parsed: ParsedBody | None
    principal: Principal
    model: str
    prompts: bytes | None = None
    window: bytes | None = None
    persona: str = ""
    profile: str = ""
    keeps_state: bool = True

    @property
    def asks_anything(self) -> bool:
        """Whether the client says anything about its prompts or its context window."""
        return self.prompts is not None or self.window is not None or bool(self.persona or self.profile)


@dataclass(frozen=True, slots=True)
class ComposedRequest:
    """A request with the operator's prompts. ``body`` contains their system text, and is None if that changes nothing.
    ``inset`` holds the texts around the newest user message. They are not in the body. ``version`` is the version of
    the set of prompts, or "" if none is composed. ``profile`` has the budget of the context window, and ``parts`` are
    the parts that the request's section names for it. None: the request has none."""

    body: bytes | None = None
    inset: Inset = Inset()
    version: str = ""
    profile: CapabilityProfile | None = None
    parts: WindowParts | None = None
    is_required: bool = False
    """Whether the request must not be sent without these texts."""


class Composer(Protocol):
    """Composes the operator's prompts."""

    has_rules: bool
    """Whether requests may get prompts or a context window for which their clients do not ask."""

    async def compose(self, request: ComposeRequest) -> ComposedRequest:
        """The request with the operator's prompts added. Raises InvalidRequest or Forbidden if the client asks for
        something that is not understood or not allowed. Raises PromptInvalid if the operator's prompts cannot be
        composed and the configuration says that such a request is refused."""

    def requires(self, model: str, principal: Principal) -> bool:
        """Whether a request for that model must not be sent without the operator's prompts. If the model is not known
        (""), it may be any, here and in ``window``."""

    def window(self, model: str, principal: Principal, wished: str) -> CapabilityProfile | None:
        """The capability profile of a request for that model on a path other than chat. ``wished`` is the name in its
        header, or "". Raises the same errors as ``compose``."""


class Windows(Protocol):
    """Fits requests to the context windows of their models."""

    async def fitted(
        self,
        parsed: ParsedBody,
        composed: ComposedRequest,
        deployment: Deployment,
        *,
        scale: float = 1.0,
        scope: str = "",
    ) -> Fitted:
        """The request as it is sent to that deployment: with the parts that it names, and within the budget of its
        profile. The budget includes the operator's texts that are put around the newest user message later. ``scale``
        makes the budget smaller, for a request that an upstream has refused. ``scope`` is the principal's scope. A body
        that only the proxy cannot read is left as it is. Raises ContextTooLong and InvalidRequest before anything is
        changed."""

    async def fitted_completion(
        self,
        parsed: ParsedBody,
        profile: CapabilityProfile,
        deployment: Deployment,
        *,
        scale: float = 1.0,
        scope: str = "",
    ) -> Fitted:
        """A request for a completion as it is sent: its prompt and its suffix are shortened to the profile's budget.
        Raises the same errors as ``fitted``."""

    def settled(self, deployment: Deployment, fitted: Fitted, usage: Usage | None, *, scope: str = "") -> None:
        """An exchange whose request was ``fitted`` has ended well. Learn from the provider's token count."""

    def refused(self, deployment: Deployment, fitted: Fitted, tokens: int | None, *, scope: str = "") -> None:
        """The upstream has refused a request that was ``fitted`` as too large. Learn from the refusal. ``tokens`` is
        the size that the upstream names, or None."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The parts of the outside world that every exchange needs."""

    models: ModelTable
    upstreams: Mapping[Transport, Upstream]
    planner: Planner
    admission: Admission
    meter: Meter
    clock: Clock
    composer: Composer | None = None
    """None: nothing is composed."""
    windows: Windows | None = None
    """Needed if the composer gives a request a capability profile."""
    usage_reports: UsageReports | None = None
    """None: no answer contains the usage of its request."""
    inquiries: Inquiries | None = None
    """None: no provider is asked why a cache missed."""
    aside: Aside = field(default_factory=Aside)
    """Does large work beside the event loop."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of a request body in bytes. ``body_bytes`` is the most for a body that asks a model. ``peek_bytes`` is the
    most that is read on other paths to find the model's name (a larger body goes to the fallback deployment, unread).
    ``upload_bytes`` is the most that is streamed through.

    ``receive_s`` is the time that a body may take in addition to the time that its size explains.
    """

    body_bytes: int = 64 << 20
    peek_bytes: int = 8 << 20
    upload_bytes: int = 1 << 30
    receive_s: float = 60.0


class ClientDisconnected(Exception):
    """The client left before its request was complete."""


class Client(Protocol):
    """The client's side of one exchange. Header names are in lower case. ``path`` starts after ``/v1``.

    Sending waits while the client does not read. After the end of the request, the task that serves it is cancelled if
    the client leaves.
    """

    method: str
    path: str
    query: str
    headers: Headers
    is_started: bool
    failure: Exception | None
    """The error that broke off the request's body."""
    is_awaited: bool
    """Set while the answer must be read to its end even if the client has left. Then nothing is cancelled."""
    has_left: bool
    """The client left while its answer was awaited."""

    async def read(self, limit: int) -> bytes:
        """The whole request body. Raises PayloadTooLarge, RequestTimeout, ClientDisconnected."""

    async def peek(self, limit: int) -> bytes | None:
        """The whole request body, or None if it is longer than ``limit``. ``stream`` has all of it in either case."""

    def stream(self, limit: int) -> AsyncIterator[bytes]:
        """The request body as it arrives. Raises PayloadTooLarge, RequestTimeout, ClientDisconnected."""

    async def start(self, status: int, headers: Headers) -> None:
        """Send status and headers."""

    async def send(self, chunk: bytes) -> None:
        """Send a part of the answer's body."""

    async def end(self, last: bytes = b"") -> None:
        """Complete the answer's body with its ``last`` part. An answer that is not ended is cut off, so that the client
        can notice it."""

    async def refuse(self, error: ProxyError, headers: Headers) -> None:
        """Send a complete error answer."""

"""What the engine asks of the client's side of an exchange, and of the parts that know about exchanges: admission, the
meter, and what follows an exchange."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from proxy.core.prompts.composition import Inset
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.response.outcome import Outcome
from proxy.core.response.usage import Usage
from proxy.core.value import dataclass
from proxy.core.window.fitting import Fitted
from proxy.core.window.form import WindowParts
from proxy.core.window.profile import CapabilityProfile
from proxy.deployments import ModelTable
from proxy.engine.exchange import Exchange, Settlement
from proxy.engine.inquiries import Inquiries
from proxy.errors import ProxyError
from proxy.ports import Clock, Deployment, Headers, Planner, Principal, Transport, Upstream


class Meter(Protocol):
    """Prices and counts exchanges. It never suspends and never blocks: durable writes are queued."""

    def began(self, exchange: Exchange) -> None:
        """An exchange is opened; ``settle`` always follows, exactly once."""

    def failed(self, exchange: Exchange, kind: str) -> None:
        """An attempt failed, and another one follows; ``kind`` as in ``upstream_errors_total``."""

    def lose(self, exchange: Exchange) -> Settlement:
        """The upstream got a call, and nothing of an answer has reached the client: ``exchange.lost`` with what the
        call used and cost."""

    def price(self, exchange: Exchange) -> Settlement:
        """The exchange is about to end: what it used and cost, ``exchange.lost`` included. Called once."""

    def spent(self, exchange: Exchange, outcomes: Sequence[Outcome]) -> Settlement:
        """What these answers of the exchange cost by their usage, and what was lost before them. Nothing is counted."""

    def booked(self, exchange: Exchange, outcome: Outcome, further_tokens: int, silent_s: float) -> Outcome:
        """The answer to a further call with its usage: where it reports none, what is booked for a call whose prompt
        has so many tokens more than the exchange's first, and of which so long nothing came."""

    def settle(self, exchange: Exchange) -> None:
        """The exchange has ended; ``ending`` says how. Counts everything."""


class Follower(Protocol):
    """Does what follows behind the exchanges of clients: keeps prefixes alive, and compacts conversations. It never
    suspends, never blocks and never raises."""

    def returned(self, session: str) -> None:
        """The session (``Plan.session``) has another request."""

    def ended(self, exchange: Exchange) -> None:
        """A client's exchange was settled; ``call`` is what was sent last."""

    async def aclose(self) -> None:
        """Send nothing more."""


UsageReports = Callable[[Exchange], Awaitable[Mapping[str, object]]]
"""Says in figures alone what an exchange used that was just booked, and its session with it, as a value that can be
written as JSON. What is to be known of the session is read at once."""


class Admission(Protocol):
    """Who may send a request, and what it may cost."""

    @property
    def is_immediate(self) -> bool:
        """Whether ``settle`` never waits for anything."""

    def admit(self, headers: Headers, now: float) -> Principal:
        """Who this is. Raises Unauthorized."""

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        """Set aside the most that this request can cost at its deployment, or at the ``others`` that may stand in for
        it. Called once for every exchange before its first attempt, on raw paths too, with what is known of its size.
        Sets ``exchange.reservation`` before it waits for anything, so that the exchange's end gives back what was set
        aside. Raises BudgetExceeded, RateLimited, BudgetUnavailable; Forbidden where the deployment would need the
        client's own key and the key is virtual."""

    async def extend(self, exchange: Exchange, spent: Settlement, further_tokens: int = 0) -> bool:
        """Set aside, beside what its calls have ``spent``, the most that a further call of the exchange can cost, whose
        prompt may have so many tokens more than the first one's. Whether the limits leave room for it."""

    async def take_turn(self, exchange: Exchange, deployment: Deployment) -> None:
        """Count a call that is about to go out to a deployment with limits of its own. Raises RateLimited."""
        ...

    async def weigh(self, exchange: Exchange) -> None:
        """Note in the reservation how many tokens the prompt has: the provider will not say it."""

    async def defer(self, exchange: Exchange) -> None:
        """Keep the reservation of an exchange that has ended: ``settle_later`` will say what the exchange cost. If
        nobody calls that, the reservation is the bill."""

    async def settle_later(self, exchange: Exchange) -> None:
        """Settle an exchange that was deferred, perhaps by another worker. The exchange was made anew."""

    async def settle(self, exchange: Exchange) -> None:
        """Replace the exchange's reservation by what the exchange cost, or give the reservation back where no attempt
        was made. Called once, after ``Meter.price``. It never raises: when it returns, the ledger entry is durable, or
        the failure is counted."""


@dataclass(frozen=True, slots=True)
class ComposeRequest:
    """A request whose prompts are to be composed. ``parsed`` is None where its body cannot be taken apart; ``prompts``
    and ``window`` are what its section says of either, as JSON; ``persona`` and ``profile`` are what its headers ask
    for. Nothing is learnt of it unless it ``keeps_state``."""

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
        """Whether the client says anything of its prompts or its context window."""
        return self.prompts is not None or self.window is not None or bool(self.persona or self.profile)


@dataclass(frozen=True, slots=True)
class ComposedRequest:
    """What the operator's prompts make of a request: ``body`` has their system text in it, and is None where that
    changes nothing. ``inset`` are the texts around its newest user message; they are not in the body. ``version`` is
    that of the set of prompts, "" where none is composed. ``profile`` is the budget of its context window, and
    ``parts`` are what its section names for it; None: it has none."""

    body: bytes | None = None
    inset: Inset = Inset()
    version: str = ""
    profile: CapabilityProfile | None = None
    parts: WindowParts | None = None
    is_required: bool = False
    """The request must not go without its texts."""


class Composer(Protocol):
    """Composes the operator's prompts."""

    async def compose(self, request: ComposeRequest) -> ComposedRequest:
        """What is added to the request. Raises InvalidRequest and Forbidden where the client asks for what is not
        understood or not allowed, and PromptInvalid where the operator's prompts cannot be composed and the
        configuration says that the request is then refused."""

    def requires(self, model: str, principal: Principal) -> bool:
        """Whether a request of that model must not go without the operator's prompts."""

    def window(self, model: str, principal: Principal, wished: str) -> CapabilityProfile | None:
        """The capability profile of a request of that model on another path than that of chats; ``wished`` is the name
        that its header says, or "". Raises as ``compose`` does."""


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
        profile, which also has room for the operator's texts that are put around the newest user message later.
        ``scale`` makes the budget smaller, for a request that an upstream has refused; ``scope`` is the principal's.
        Raises ContextTooLong and InvalidRequest; nothing is changed by then."""

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
        Raises as ``fitted`` does."""

    def settled(self, deployment: Deployment, fitted: Fitted, usage: Usage | None, *, scope: str = "") -> None:
        """An exchange whose request was ``fitted`` has ended well: learn from what the provider has counted."""

    def refused(self, deployment: Deployment, fitted: Fitted, tokens: int | None, *, scope: str = "") -> None:
        """The upstream has refused a request that was ``fitted`` as too large, and names its ``tokens``, or does not:
        learn from that."""


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
    """None: nothing is composed, and a request that asks for it is refused."""
    windows: Windows | None = None
    """Needed where the composer gives a request a capability profile."""
    usage_reports: UsageReports | None = None
    """None: no answer says what its request used."""
    inquiries: Inquiries | None = None
    """None: no provider is asked why a cache missed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of a request body: the most that one may have that asks a model, the most that is read on other paths to
    find the model's name (a larger one goes to the fallback deployment, unread), and the most that is streamed through.

    ``receive_s``: the time that a body may take beyond what its size explains.
    """

    body_bytes: int = 64 << 20
    peek_bytes: int = 8 << 20
    upload_bytes: int = 1 << 30
    receive_s: float = 60.0


class ClientDisconnected(Exception):
    """The client left before its request was complete."""


class Client(Protocol):
    """The client's side of one exchange. Header names are lower case; ``path`` starts behind ``/v1``.

    Sending waits while the client does not read. From the end of the request on, the client's leaving cancels the
    task that serves it.
    """

    method: str
    path: str
    query: str
    headers: Headers
    is_started: bool
    failure: Exception | None
    """What broke the request's body off."""
    is_awaited: bool
    """Set while the answer must be heard to its end, also when the client has left: then nothing is cancelled."""
    has_left: bool
    """The client left while its answer was awaited."""

    async def read(self, limit: int) -> bytes:
        """The whole request body. Raises PayloadTooLarge, HungUp."""

    async def peek(self, limit: int) -> bytes | None:
        """The whole request body, or None where it is longer than that; ``stream`` has all of it in either case."""

    def stream(self, limit: int) -> AsyncIterator[bytes]:
        """The request body as it arrives. Raises PayloadTooLarge, HungUp."""

    async def start(self, status: int, headers: Headers) -> None:
        """Send status and headers."""

    async def send(self, chunk: bytes) -> None:
        """Send a part of the answer's body."""

    async def end(self, last: bytes = b"") -> None:
        """The answer's body is complete with its ``last`` part. An answer that is not ended is cut off, so that the
        client can tell."""

    async def refuse(self, error: ProxyError, headers: Headers) -> None:
        """Send a complete error answer."""

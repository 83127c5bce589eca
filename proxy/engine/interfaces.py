"""The interfaces between the engine and the outside world: protocols, and the values that cross them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from proxy.context.session import AssembledChat
from proxy.kit.modes import Mode
from proxy.kit.value import dataclass, field
from proxy.models import Deployment, Headers, RateLimit
from proxy.planner.plan import Plan as Plan
from proxy.planner.plan import PlanResult as PlanResult
from proxy.protocol.request import Inset, ParsedBody
from proxy.protocol.response.usage import Usage


@dataclass(frozen=True, slots=True)
class Call:
    """One request to an upstream. ``path`` starts with the slash behind ``/v1`` ("/chat/completions")."""

    deployment: Deployment
    method: str
    path: str
    headers: Headers = field(repr=False)
    body: bytes | AsyncIterator[bytes] = field(repr=False)
    stream: bool
    now: float
    query: str = ""
    forwards_key: bool = False
    """The client's own key must be used, and no other."""


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
class Principal:
    """The sender of a request. ``scope`` isolates state (team and key, hashed); ``team`` is a metric label.

    ``mode`` is the highest mode that the operator allows this key. ``virtual`` says that the key is the proxy's own
    (the master key, or a team's): it must never be sent upstream. ``forwards_key`` says the opposite: the client sends
    the provider's key, and the deployment's own key must not be used for the request.

    ``key_id`` is the public id of a virtual key. ``user`` is the user that the key is for, or else the user that the
    request names. Both are written into the ledger. ``models`` are allow-lists: a model must be in each of them
    (``proxy.protocol.access``).
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
    """The request may reach only the team's own objects of the operator's account."""
    paths: Sequence[str] = ()
    """Paths that the team may use although they reach the whole account."""


@dataclass(slots=True)
class Reservation:
    """The amounts that were set aside for one exchange. The part that sets them aside keeps more data in a subclass.
    ``is_limited``: a budget or a rate limit holds for the exchange, so its size and model must be known."""

    exchange_id: str
    team: str
    is_limited: bool = False
    is_hard: bool = False
    """The usage of the exchange counts against a hard limit, so it must be known to the end."""
    notice: str = ""
    """A message to the client that a budget's soft limit is exceeded."""
    rates: Headers = ()
    """The remaining amounts of rate limits, as headers."""
    prompt_tokens: int = 0
    """The most tokens that the prompt has; 0 if the number was not needed."""
    passes_limits: bool = False
    """The deployment that was called last has written answers that were longer than their requests allowed."""


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
        *,
        keeps_state: bool = True,
        own_count: int | None = None,
    ) -> AssembledChat:
        """The request with its structured context as messages; ``now`` is when it arrived, in unix seconds. With
        ``keeps_state``, the session keeps what it remembers of the request (its review, when panels have changed).
        ``own_count`` is how many of its messages are the client's; they follow the operator's messages. None: all.
        Raises InvalidRequest if the section that describes the context is not understood, PayloadTooLarge if it stands
        for too much text, and MissingContent if it only names texts and they are not known."""

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

"""What the engine asks of the world: protocols and the values that cross them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

from proxy.core.modes import Mode
from proxy.core.planner.in_flight import PlanResult as PlanResult
from proxy.core.planner.plan import Plan as Plan
from proxy.core.prompts.composition import Inset
from proxy.core.providers import CacheProfile
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.response.usage import Usage
from proxy.core.structured.chat import AssembledChat
from proxy.core.value import dataclass, field

Headers = Sequence[tuple[str, str]]


class Transport(StrEnum):
    """Which upstream adapter serves a deployment."""

    HTTP = "http"
    LITELLM = "litellm"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What ``holder`` (a key's id, a deployment, or empty for a team) may do in a minute; None: no limit."""

    holder: str
    requests: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTerms:
    """What a line of the model list says about its deployments.

    ``base_url`` has no trailing slash. ``params`` are further litellm_params, passed to the litellm transport as they
    are. ``api_key`` is None where the client's own Authorization header is forwarded.
    """

    base_url: str = ""
    api_key: str | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    params: Mapping[str, object] = field(default_factory=dict, repr=False)
    price_key: str = ""
    mode: Mode = Mode.TIER
    reminder: str = ""
    timeout_s: float = 600.0
    weight: float = 1.0
    """A deployment's share of the sessions among equal deployments of one name."""
    max_input_tokens: int | None = None
    """The most tokens that the model reads, where the configuration says so."""
    session_header: str = ""
    """The header by which a router in front of the model's engines tells conversations apart."""
    salts_cache: bool = False
    """Requests of different teams never share an entry of the model's cache."""
    groups: tuple[str, ...] = ()
    """Names under which lists of keys and teams allow the model among others."""
    rates: RateLimit | None = None
    """What the deployment may be asked for by all clients together."""


@dataclass(frozen=True, slots=True)
class Deployment(ModelTerms):
    """One entry of the model list: where requests for a model name go.

    ``model`` is the name the upstream knows (the provider prefix stripped on the http transport; kept on litellm).
    """

    name: str
    model: str
    transport: Transport
    profile: CacheProfile
    server: str = ""
    """The provider that is called (``proxy.core.providers.hosts``); empty where that is not known for sure."""
    entry: str = ""
    """The name of its line in the model list, a wildcard as it stands there; ``name`` where it is empty."""
    id: str = ""
    """What it is known by among the deployments of all names, the same on every worker."""


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
        """The body as it arrives. Raises UpstreamUnavailable or UpstreamTimeout where the line breaks."""

    async def aclose(self) -> None:
        """Give the call up, or release its connection. May be called more than once."""


@runtime_checkable
class TellsUsage(Protocol):
    """An answer that knows more of its usage than its chunks have shown."""

    def usage_so_far(self) -> Mapping[str, object]:
        """What the provider has told by now, as a usage object; empty where it has told nothing."""
        ...


class Upstream(Protocol):
    """A transport. ``open`` raises ProxyError subclasses only; an upstream's own error is an Answer with its status."""

    async def open(self, call: Call) -> Answer:
        """Send the request and wait for status and headers."""

    async def aclose(self) -> None:
        """Release every connection."""


class Clock(Protocol):
    """Unix seconds."""

    def now(self) -> float:
        """The time."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request comes from. ``scope`` isolates state (team and key, hashed); ``team`` is a metric label.

    ``mode`` is the highest mode that the operator allows this key. ``virtual`` says that the key is the proxy's own
    (the master key, or a team's): it must never be sent upstream. ``forwards_key`` says the opposite: the client brings
    the provider's key, and the deployment's own must not be used for it.

    ``key_id`` is the public id of a virtual key, ``user`` whom the key is for, or else whom the request names; both
    stand in the ledger. ``models`` are allow-lists: a model must be in each of them (``proxy.core.model_patterns``).
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
    """Of the objects of the operator's account, only those of the team may be reached."""
    paths: Sequence[str] = ()
    """Paths that the team may use although they reach the whole account."""


@dataclass(slots=True)
class Reservation:
    """What was set aside for one exchange. Whoever sets it aside keeps more of it in a class of their own.
    ``is_limited``: a budget or a rate limit holds for the exchange, so that its size and model must be known."""

    exchange_id: str
    team: str
    is_limited: bool = False
    is_hard: bool = False
    """What the exchange takes is held against a hard limit, so that it must be known to its end."""
    notice: str = ""
    """A budget's soft limit that is passed, for the client to read."""
    rates: Headers = ()
    """What is left of rate limits, as headers."""
    prompt_tokens: int = 0
    """The most tokens that the prompt has; 0 where nobody had to know."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A part that does not work as it should, and what is wrong with it. ``refuses``: requests are refused for it."""

    part: str
    message: str
    refuses: bool = False


class StoreError(Exception):
    """The store could not be read or written. No request fails for it, unless a budget says so."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A chat request to be planned: its body, who sends it, and the deployment that it goes to. ``assembled`` is set
    where the body was assembled from structured context. ``inset`` are the operator's texts around the newest user
    message; ``repeats_texts``: those of earlier turns may be sent with them again."""

    parsed: ParsedBody
    deployment: Deployment
    principal: Principal
    mode: Mode
    now: float
    assembled: AssembledChat | None = None
    inset: Inset = Inset()
    repeats_texts: bool = True


class Planner(Protocol):
    """Plans requests, and learns from the exchanges that follow."""

    def parse(self, body: bytes) -> ParsedBody:
        """The body, parsed with the help of earlier requests. Another thread may call this. Raises InvalidRequest for
        what is no JSON object, and Unreadable where only the proxy cannot read it."""

    async def assemble(
        self,
        sent: ParsedBody,
        principal: Principal,
        now: float,
        *,
        keeps_state: bool = True,
        own_count: int | None = None,
    ) -> AssembledChat:
        """The request with its structured context as messages; ``now`` is when it arrived, in unix seconds. What the
        session remembers of it (its review, when panels have changed) is kept, if it ``keeps_state``. ``own_count`` of
        its messages are the client's, behind those of the operator's; None: all. Raises InvalidRequest where the
        section that describes the context is not understood, PayloadTooLarge where it stands for too much text, and
        MissingContent where texts are not known that it only names."""

    async def breakdown(self, assembled: AssembledChat, deployment: Deployment, mode: Mode) -> Mapping[str, object]:
        """What an assembled request would consist of at this deployment, and in which tiers, as a value for JSON.
        Nothing is sent or counted."""

    async def tokens(self, parsed: ParsedBody) -> int | None:
        """About how many tokens the messages and tools of a chat request have; None where they cannot be read."""

    async def plan(self, request: PlanRequest) -> Plan:
        """The plan for one chat request. Work that takes long is done without holding up the event loop.

        Raises InvalidRequest where the body is no chat request. Any other error is contained: the plan is then the
        original with the reason ``internal-error``.
        """

    def on_accepted(self, plan: Plan, now: float) -> None:
        """The upstream accepted the request and its first byte arrived: commit the shadow cache."""

    def refused(self, plan: Plan) -> None:
        """The upstream refused the rewritten body: the original is sent in its place. Nothing is learnt yet, for the
        upstream may refuse that, too."""

    def barred(self, plan: Plan) -> None:
        """The upstream took the original of what it had refused: bar this kind of plan for the session."""

    def on_completed(self, plan: Plan, usage: Usage | None, now: float) -> PlanResult:
        """The exchange ended well (2xx): count stability once and learn from the reported usage. Not called after an
        error, or after a cancel before the first byte."""

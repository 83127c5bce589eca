"""One request and what became of it: the only mutable object that travels through the proxy.

An exchange is opened when a request arrives, filled in by the engine, and ends exactly once: ``ExchangeOutcome`` says
how, and the ``Meter`` is told then. Durations are measured by a monotonic clock; ``now`` is unix seconds and may be
virtual.
"""

import os
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter
from typing import Protocol

from proxy.core.account.objects import Act, Operation
from proxy.core.account.paths import Path, read_path
from proxy.core.account.said import Said
from proxy.core.modes import Mode
from proxy.core.reasons import Reason
from proxy.core.request.demand import Demand
from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.response.reported import NOTHING_REPORTED, Reported
from proxy.core.response.usage import Usage
from proxy.ports import Call, Deployment, Headers, Plan, Principal, Reservation


class ExchangeOutcome(StrEnum):
    """How an exchange ended."""

    COMPLETED = "completed"
    """A 2xx, passed on to its end."""
    REJECTED = "rejected"
    """The upstream answered with an error of its own, which was passed on."""
    BROKEN = "broken"
    """The upstream could not be reached, did not answer in time, or broke off."""
    HUNG_UP = "hung-up"
    """The client left."""
    REFUSED = "refused"
    """We said no: key, budget, model, or a request that cannot be read."""
    FAILED = "failed"
    """A surprise of our own."""


def new_id() -> str:
    """An exchange id, unique across workers."""
    return "sx-" + os.urandom(8).hex()


@dataclass(slots=True)
class Exchange:
    """One request on its way. ``path`` starts behind ``/v1``; ``model`` is the name that the client asked for."""

    method: str
    path: str
    now: float
    id: str = field(default_factory=new_id)
    opened: float = field(default_factory=perf_counter)
    is_chat: bool = False
    stream: bool = False
    wants_usage: bool = False
    demand: Demand = field(default_factory=Demand)
    model: str = ""
    principal: Principal | None = None
    deployment: Deployment | None = None
    mode: Mode = Mode.PASSTHROUGH
    reason: str = Reason.NOT_CHAT
    plan: Plan | None = None
    reservation: Reservation | None = None
    was_retried: bool = False
    attempts: int = 0
    status: int = 0
    error_code: str = ""
    ending: ExchangeOutcome | None = None
    finish_reason: str = ""
    usage: Usage | None = None
    reported: Reported = NOTHING_REPORTED
    cache_cause: str = UNTOLD
    events: int = 0
    received_tokens: int = 0
    """Of an answer that reported no usage, by our own count."""
    lost: Usage | None = None
    """What answers used, as far as is known, that broke off before any of it reached the client: they are billed, also
    where another answer took their place."""
    first_text_s: float | None = None
    is_sent: bool = False
    """A call is on its way to the upstream, or was answered."""
    request_bytes: int = 0
    answer_bytes: int = 0
    overhead_s: float = 0.0
    first_byte_s: float | None = None
    total_s: float = 0.0
    cost_usd: float = 0.0
    saved_usd: float = 0.0
    notice: str = ""
    """A budget's soft limit that is passed, for the client to read."""
    rates: Headers = ()
    """What is left of rate limits, as headers."""
    is_priced: bool = False
    is_booked: bool = False
    """It is, or is about to be, in the ledger."""
    is_learnt: bool = False
    """The planner has counted it."""
    call: Call | None = field(default=None, repr=False)
    keys: tuple[str, ...] = field(default=(), repr=False)
    """The credentials that the client sent: whatever is logged or kept of the exchange is searched for them."""
    operation: Operation = Operation(Act.ASK)
    """What it does to the objects of the provider's account."""
    pin: Deployment | None = None
    """Where the objects live that the request names."""
    said: Said | None = None
    """What the answer says of objects."""
    is_stored: bool = True
    """The provider keeps what the request makes."""
    is_filtered: bool = False
    """Of the list that it asks for, only the team's own objects go out."""
    made_family: str = ""
    """The family of what it makes, where that is not its operation's."""
    addressed: str = ""
    """The model that the request's address names beside the path; it counts for more than what the body says."""
    decided_by: str = ""
    """What has decided who serves a request that names no model; empty for all others."""
    _parsed: Path | None = field(default=None, repr=False)

    @property
    def parsed(self) -> Path:
        """The path's reading, which every check shares. Raises NotFound where the path has not just one."""
        if self._parsed is None:
            self._parsed = read_path(self.path)
        return self._parsed

    @property
    def asks_model(self) -> bool:
        """Whether the request asks a model: it changes nothing, so it may be sent again, and is billed by tokens."""
        return asks_model(self.method, self.parsed)

    @property
    def is_accepted(self) -> bool:
        """The upstream took the request (2xx) and began to answer."""
        return self.first_byte_s is not None and 200 <= self.status < 300

    @property
    def is_billed(self) -> bool:
        """The provider bills the request: it took it, or had it when the client left."""
        return self.is_accepted or (self.is_sent and self.ending is ExchangeOutcome.HUNG_UP and self.status < 300)

    @property
    def billed_usage(self) -> Usage | None:
        """The usage that is this exchange's own. What an object cost was billed when it was made, however often it is
        read."""
        return self.usage if self.operation.bills else None

    def arrived(self, size: int) -> None:
        """The request is complete. The client's own slowness up to here is not counted as ours."""
        self.request_bytes = size
        self.opened = perf_counter()

    def elapsed_s(self) -> float:
        """Seconds since the request was complete."""
        return perf_counter() - self.opened

    def time(self) -> float:
        """Unix seconds now, in the exchange's own time."""
        return self.now + self.elapsed_s()


_GENERATING = (
    "/completions", "/responses", "/responses/compact", "/messages", "/embeddings", ":generatecontent",
    ":streamgeneratecontent", ":embedcontent",
)  # fmt: skip


def asks_model(method: str, path: Path) -> bool:
    """Whether a request asks a model (``Exchange.asks_model``), however its path is written."""
    if method != "POST":
        return False
    plain = path.text
    # A thread's messages are not asked but stored.
    return plain.endswith(_GENERATING) and "/threads/" not in plain


class Meter(Protocol):
    """Prices and counts exchanges. Never suspends and never blocks: durable writes are queued."""

    def began(self, exchange: Exchange) -> None:
        """Called when an exchange is opened; ``settle`` always follows, exactly once."""
        ...

    def failed(self, exchange: Exchange, kind: str) -> None:
        """An attempt failed, and another one follows; ``kind`` as in ``upstream_errors_total``."""
        ...

    def lose(self, exchange: Exchange) -> None:
        """The answer broke off and nothing of it has reached the client: adds what it used to ``lost``, and what it
        cost to ``cost_usd``."""
        ...

    def price(self, exchange: Exchange) -> None:
        """The exchange is about to end: adds to ``cost_usd``, sets ``saved_usd``, and ``usage`` (``estimated``) where
        the provider accepted the request and reported none. Once; ``settle`` sees to it where nobody did."""
        ...

    def settle(self, exchange: Exchange) -> None:
        """The exchange has ended: ``ending`` says how. Counts everything."""
        ...


class PrefixRefresher(Protocol):
    """Keeps prefixes alive while their clients pause. Never suspends and never blocks."""

    def returned(self, session: str) -> None:
        """The session (``Plan.session``) has another request."""
        ...

    def ended(self, exchange: Exchange) -> None:
        """A client's exchange was settled; ``call`` is what was sent last."""
        ...

    async def aclose(self) -> None:
        """Send nothing more."""
        ...


class Admission(Protocol):
    """Who may send a request, and what it may cost."""

    @property
    def is_immediate(self) -> bool:
        """Whether ``settle`` never waits for anything."""
        ...

    def admit(self, headers: Headers, now: float) -> Principal:
        """Who this is. Raises Unauthorized."""
        ...

    async def reserve(self, exchange: Exchange, deployment: Deployment, demand: Demand) -> Reservation:
        """Set aside the most that this request can cost at the deployment, or at those that may stand in for it
        (``Deployment.others``). Called once for every exchange before its first attempt, on raw paths too, with what
        is known of its size. ``demand`` is what it asks for that costs money. Raises BudgetExceeded, RateLimited,
        BudgetUnavailable; Forbidden where the deployment would need the client's own key and the key is virtual."""
        ...

    async def defer(self, exchange: Exchange) -> None:
        """Keep the exchange's reservation although it has ended: ``settle_later`` will say what it cost. Where nobody
        does, the reservation is the bill."""
        ...

    async def settle_later(self, exchange: Exchange) -> None:
        """``settle`` for an exchange that was deferred, perhaps by another worker: it was made anew."""
        ...

    async def settle(self, exchange: Exchange) -> None:
        """Replace the exchange's reservation by what it cost, or give it back where no attempt was made. Once, after
        ``Meter.price``; never raises: when it returns, the ledger entry is durable, or the failure is counted."""
        ...

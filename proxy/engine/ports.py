"""What the engine asks of the parts that know about exchanges: admission, the meter, and what follows an exchange."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.core.response.stream import Outcome
from proxy.engine.exchange import Exchange, Settlement
from proxy.ports import Clock, Deployment, Headers, Models, Planner, Principal, Transport, Upstream


class Meter(Protocol):
    """Prices and counts exchanges. It never suspends and never blocks: durable writes are queued."""

    def began(self, exchange: Exchange) -> None:
        """An exchange is opened; ``settle`` always follows, exactly once."""
        ...

    def failed(self, exchange: Exchange, kind: str) -> None:
        """An attempt failed, and another one follows; ``kind`` as in ``upstream_errors_total``."""
        ...

    def lose(self, exchange: Exchange) -> Settlement:
        """The answer broke off before any of it reached the client: ``exchange.lost`` with what the answer used and
        cost."""
        ...

    def price(self, exchange: Exchange) -> Settlement:
        """The exchange is about to end: what it used and cost, ``exchange.lost`` included. Called once."""
        ...

    def cost(self, exchange: Exchange, outcome: Outcome) -> float:
        """USD that one answer of the exchange costs by what it reports; 0 where nobody knows. Nothing is counted."""
        ...

    def settle(self, exchange: Exchange) -> None:
        """The exchange has ended; ``ending`` says how. Counts everything."""
        ...


class Follower(Protocol):
    """Does what follows behind the exchanges of clients: keeps prefixes alive, and compacts conversations. It never
    suspends and never blocks."""

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

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        """Set aside the most that this request can cost at its deployment, or at the ``others`` that may stand in for
        it. Called once for every exchange before its first attempt, on raw paths too, with what is known of its size.
        Sets ``exchange.reservation`` before it waits for anything, so that the exchange's end gives back what was set
        aside. Raises BudgetExceeded, RateLimited, BudgetUnavailable; Forbidden where the deployment would need the
        client's own key and the key is virtual."""
        ...

    async def defer(self, exchange: Exchange) -> None:
        """Keep the reservation of an exchange that has ended: ``settle_later`` will say what the exchange cost. If
        nobody calls that, the reservation is the bill."""
        ...

    async def settle_later(self, exchange: Exchange) -> None:
        """Settle an exchange that was deferred, perhaps by another worker. The exchange was made anew."""
        ...

    async def settle(self, exchange: Exchange) -> None:
        """Replace the exchange's reservation by what the exchange cost, or give the reservation back where no attempt
        was made. Called once, after ``Meter.price``. It never raises: when it returns, the ledger entry is durable, or
        the failure is counted."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """The parts of the outside world that every exchange needs."""

    models: Models
    upstreams: Mapping[Transport, Upstream]
    planner: Planner
    admission: Admission
    meter: Meter
    clock: Clock

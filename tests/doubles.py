"""Small, real parts for tests, and a server on a free port to run an app in.

Nothing here pretends: the planner makes the edits that every mode allows and no other, the meter records what it is
told, and ``serving`` runs uvicorn on a real socket.
"""

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from proxy.core.modes import Mode
from proxy.core.providers import NONE
from proxy.core.reasons import Reason
from proxy.core.request.parsed_body import ParsedBody, parse_body, parse_chat
from proxy.core.response.outcome import Outcome
from proxy.core.response.usage import Usage, summed
from proxy.core.structured.chat import AssembledChat
from proxy.core.wire.edits import original_body
from proxy.core.wire.json_body import Unreadable, splice
from proxy.engine.exchange import Exchange, Settlement
from proxy.errors import InvalidRequest, UnknownModel
from proxy.ports import Deployment, Headers, Plan, PlanRequest, PlanResult, Principal, Reservation, Transport


class PassthroughPlanner:
    """Plans nothing: the client's bytes with the model's alias, the usage asked for, and ``stratiform`` removed.

    ``events`` lists what it was told, in order.
    """

    def __init__(self) -> None:
        self.events: list[str] = []

    def parse(self, body: bytes) -> ParsedBody:
        """Parse each body anew."""
        return parse_body(body)

    async def assemble(
        self,
        sent: ParsedBody,
        principal: Principal,
        now: float,
        *,
        keeps_state: bool = True,
        own_count: int | None = None,
    ) -> AssembledChat:
        """Structured context is not assembled. Raises InvalidRequest."""
        raise InvalidRequest("not assembled here", param="stratiform", code="structured_form_unavailable")

    async def breakdown(self, assembled: AssembledChat, deployment: Deployment, mode: Mode) -> Mapping[str, object]:
        """There is never anything to break down."""
        raise InvalidRequest("not assembled here", param="stratiform", code="structured_form_unavailable")

    async def tokens(self, parsed: ParsedBody) -> int | None:
        """A token for four bytes of the body."""
        return len(parsed.body) // 4

    async def plan(self, request: PlanRequest) -> Plan:
        """The client's request, edited as every mode allows."""
        try:
            chat = request.parsed.chat()
        except Unreadable:
            return Plan(request.parsed.body, request.parsed.body, Mode.PASSTHROUGH, Reason.UNREADABLE)
        sent = original_body(chat, request.deployment.model)
        return Plan(sent, sent, Mode.PASSTHROUGH, Reason.PASSTHROUGH_MODE)

    def on_accepted(self, plan: Plan, now: float) -> None:
        """Note the event."""
        self.events.append("accepted")

    def refused(self, plan: Plan) -> None:
        """Note the event."""
        self.events.append("refused")

    def barred(self, plan: Plan) -> None:
        """Note the event."""
        self.events.append("barred")

    def on_completed(self, plan: Plan, usage: Usage | None, now: float) -> PlanResult:
        """Note the event."""
        self.events.append("completed")
        return PlanResult()


class RewritingPlanner(PassthroughPlanner):
    """Adds a member that no client sent, so that a provider that refuses it can be seen to get the original next."""

    async def plan(self, request: PlanRequest) -> Plan:
        """The request with the member ``rewritten`` added, where the mode lets it."""
        plan = await super().plan(request)
        if request.mode < Mode.MARK:
            return plan
        changed = splice(plan.original, parse_chat(plan.original).members, {"rewritten": b"true"})
        return Plan(changed, plan.original, request.mode, Reason.ORDERED)


class OpenDoor:
    """Admits everybody, and keeps what was reserved and settled."""

    is_immediate = False

    def __init__(self) -> None:
        self.is_limited = False
        self.reserved: list[Reservation] = []
        self.settled: list[tuple[str, float]] = []

    def admit(self, headers: Headers, now: float) -> Principal:
        """One principal for everybody."""
        return Principal(scope="everybody")

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        """Reserve nothing, and keep the reservation."""
        assert exchange.principal is not None
        exchange.reservation = Reservation(exchange.arrival.id, exchange.principal.team, self.is_limited)
        self.reserved.append(exchange.reservation)

    async def extend(self, exchange: Exchange, spent: Settlement, further_tokens: int = 0) -> bool:
        """There is no limit."""
        return True

    async def take_turn(self, exchange: Exchange, deployment: Deployment) -> None:
        """There is no limit."""

    async def weigh(self, exchange: Exchange) -> None:
        """Nothing is known of prompts."""

    async def defer(self, exchange: Exchange) -> None:
        """Nothing is reserved."""

    async def settle_later(self, exchange: Exchange) -> None:
        """Keep what the exchange cost."""
        await self.settle(exchange)

    async def settle(self, exchange: Exchange) -> None:
        """Keep what the exchange cost."""
        cost_usd = exchange.settlement.cost_usd if exchange.settlement is not None else 0.0
        self.settled.append((exchange.arrival.id, cost_usd))


class Ledger:
    """A meter that keeps every exchange that ended, and lets a test wait for them."""

    def __init__(self) -> None:
        self.ended: list[Exchange] = []
        self.failures: list[str] = []
        self.open = 0
        self._changed = threading.Condition()

    def began(self, exchange: Exchange) -> None:
        """Count one more open exchange."""
        with self._changed:
            self.open += 1

    def failed(self, exchange: Exchange, kind: str) -> None:
        """Keep the kind of failure."""
        with self._changed:
            self.failures.append(kind)

    def lose(self, exchange: Exchange) -> Settlement:
        """What all such calls used, as far as they say."""
        outcome = exchange.answer.outcome
        return Settlement(summed(exchange.lost.usage, outcome.usage or Usage(0, outcome.tokens, estimated=True)))

    def price(self, exchange: Exchange) -> Settlement:
        """Free of charge."""
        usage = exchange.answer.outcome.usage
        for further in exchange.answer.further:
            usage = summed(usage, further.usage)
        return Settlement(usage)

    def spent(self, exchange: Exchange, outcomes: Sequence[Outcome]) -> Settlement:
        """As many dollars as the prompts have tokens."""
        usage = exchange.lost.usage
        for outcome in outcomes:
            usage = summed(usage, outcome.usage)
        return Settlement(usage, float(usage.prompt) if usage is not None else 0.0)

    def booked(self, exchange: Exchange, outcome: Outcome, further_tokens: int, silent_s: float) -> Outcome:
        """What was added, and the text that came."""
        missing = Usage(further_tokens, outcome.tokens, estimated=True)
        return outcome if outcome.usage is not None else replace(outcome, usage=missing)

    def settle(self, exchange: Exchange) -> None:
        """Keep the exchange."""
        with self._changed:
            self.open -= 1
            self.ended.append(exchange)
            self._changed.notify_all()

    def wait(self, count: int = 1, timeout_s: float = 60.0) -> list[Exchange]:
        """The exchanges, as soon as that many have ended."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.ended) >= count, timeout_s):
                raise TimeoutError(f"{len(self.ended)} of {count} exchanges ended")
            return list(self.ended)


class ManualClock:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Unix seconds."""
        return self._now

    def set(self, now: float) -> None:
        """Set the time."""
        self._now = now


@dataclass(slots=True)
class ModelList:
    """Names and their deployments; the entry ``*`` serves all others under their own name."""

    entries: Mapping[str, Deployment] = field(default_factory=dict)

    def resolve(self, name: str) -> Deployment:
        """The deployment of that name."""
        if name in self.entries:
            return self.entries[name]
        if "*" not in self.entries:
            raise UnknownModel(f"no model {name!r} here", param="model")
        return replace(self.entries["*"], name=name, model=name)

    def levels(self, name: str) -> Sequence[Sequence[Deployment]]:
        """The deployment of that name, and no other."""
        return ((self.resolve(name),),)

    def wider(self, name: str) -> Sequence[Sequence[Deployment]]:
        """No other."""
        return ()

    def names(self) -> Sequence[str]:
        """All but the wildcard."""
        return [name for name in self.entries if name != "*"]

    def patterns(self) -> Sequence[str]:
        """The wildcard."""
        return [name for name in self.entries if name == "*"]

    def sole(self) -> Deployment | None:
        """The wildcard, where there is nothing else."""
        return self.entries.get("*") if len(self.entries) == 1 else None

    def known(self, deployment_id: str) -> Deployment | None:
        """The deployment of that id."""
        return next((one for one in self.entries.values() if deployment_id in (one.id, one.name)), None)

    def unnamed(self) -> Sequence[Deployment]:
        """The wildcard, or all."""
        if not self.entries:
            raise UnknownModel("no models here")
        return (self.entries["*"],) if "*" in self.entries else tuple(self.entries.values())


def make_deployment(name: str = "*", **given: Any) -> Deployment:
    """A deployment with values for all fields that a test does not care about. ``given`` are fields of it."""
    usual = {"model": name, "transport": Transport.HTTP, "profile": NONE, "base_url": "", "api_key": None}
    return Deployment(name=name, **{**usual, "mode": Mode.TIER, "timeout_s": 10.0, **given})


class NoMetrics:
    """Nothing to scrape."""

    async def rendered(self) -> bytes:
        """No text."""
        return b""


_KEEPALIVE_S = 3600


@contextmanager
def serving(app: ASGIApp, http: Any = "auto", drain_s: int = 5) -> Iterator[str]:
    """Run an app on a free port in a thread; gives its base URL, and stops it in an orderly way: what has not ended
    after ``drain_s`` is cut off. ``http`` is uvicorn's protocol (``proxy.web.guard``)."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=http,
        log_config=None,
        access_log=False,
        # Nobody sends a request on a connection that the server closes in the same moment.
        timeout_keep_alive=_KEEPALIVE_S,
        timeout_graceful_shutdown=drain_s,
    )
    server = uvicorn.Server(config)
    # The listening socket accepts connections before the server runs: nobody has to wait for it.
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()

"""Small, real parts for tests, and a server on a free port to run an app in.

These parts work for real: the planner makes only the edits that every mode allows, the meter records the exchanges, and
``serving`` runs uvicorn on a real socket.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from proxy.context.session import AssembledChat
from proxy.engine.exchange import Exchange, Principal, Reservation, Settlement
from proxy.engine.ports import PlanRequest
from proxy.kit.errors import InvalidRequest, UnknownModel
from proxy.kit.modes import Mode, Reason
from proxy.models import Deployment, Headers, Transport
from proxy.planner.plan import Plan, PlanResult
from proxy.protocol.providers import NONE
from proxy.protocol.request import ParsedBody, parse_body
from proxy.protocol.response.outcome import Outcome
from proxy.protocol.response.usage import Usage, summed
from proxy.protocol.wire.json_body import Unreadable, splice


class PassthroughPlanner:
    """Plans nothing. It sends the client's bytes with the model's alias, asks for the usage, and removes
    ``stratiform``.

    ``events`` lists the calls that it got, in order.
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
        own: ParsedBody | None = None,
    ) -> AssembledChat:
        """Structured context is not assembled. Raises InvalidRequest."""
        raise InvalidRequest("not assembled here", param="stratiform", code="structured_form_unavailable")

    async def breakdown(self, assembled: AssembledChat, deployment: Deployment, mode: Mode) -> Mapping[str, object]:
        """There is never a breakdown."""
        raise InvalidRequest("not assembled here", param="stratiform", code="structured_form_unavailable")

    async def tokens(self, parsed: ParsedBody) -> int | None:
        """One token for four bytes of the body."""
        return len(parsed.body) // 4

    async def plan(self, request: PlanRequest) -> Plan:
        """The client's request, with the edits that every mode allows."""
        try:
            chat = request.parsed.chat()
        except Unreadable:
            return Plan(request.parsed.body, request.parsed.body, Mode.PASSTHROUGH, Reason.UNREADABLE)
        sent = chat.edited(chat.edits(request.deployment.model))
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
    """Adds a member that no client sent. So a test can see that a provider which refuses it gets the original request
    next."""

    async def plan(self, request: PlanRequest) -> Plan:
        """The request with the member ``rewritten`` added, if the mode allows it."""
        plan = await super().plan(request)
        if request.mode < Mode.MARK:
            return plan
        changed = splice(plan.original, parse_body(plan.original).members, {"rewritten": b"true"})
        return Plan(changed, plan.original, request.mode, Reason.ORDERED)


class OpenDoor:
    """Admits every client, and keeps the reservations and settlements."""

    def __init__(self) -> None:
        self.is_limited = False
        self.reserved: list[Reservation] = []
        self.settled: list[tuple[str, float]] = []

    def admit(self, headers: Headers, now: float) -> Principal:
        """The same principal for every client."""
        return Principal(scope="everybody")

    def limits(self, principal: Principal) -> bool:
        """Whether the tests want a limit."""
        return self.is_limited

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
        """Nothing is known about prompts."""

    async def defer(self, exchange: Exchange) -> None:
        """Nothing is reserved."""

    async def settle_later(self, exchange: Exchange) -> None:
        """Keep the cost of the exchange."""
        await self.settle(exchange)

    async def settle(self, exchange: Exchange) -> None:
        """Keep the cost of the exchange."""
        cost_usd = exchange.settlement.cost_usd if exchange.settlement is not None else 0.0
        self.settled.append((exchange.arrival.id, cost_usd))


class Ledger:
    """A meter that keeps every exchange that ended, and lets a test wait for them."""

    def __init__(self) -> None:
        self.ended: list[Exchange] = []
        self.failures: list[str] = []
        self.open = 0
        self._changed = threading.Condition()

    def began(self) -> None:
        """Count one more open exchange."""
        with self._changed:
            self.open += 1

    def failed(self, exchange: Exchange, kind: str) -> None:
        """Keep the kind of failure."""
        with self._changed:
            self.failures.append(kind)

    def lose(self, exchange: Exchange) -> Settlement:
        """The usage of all lost calls, as far as they report it."""
        outcome = exchange.answer.outcome
        return Settlement(summed(exchange.lost.usage, outcome.usage or Usage(0, outcome.tokens, estimated=True)))

    def price(self, exchange: Exchange) -> Settlement:
        """Free of charge."""
        usage = exchange.answer.outcome.usage
        for further in exchange.answer.further:
            usage = summed(usage, further.usage)
        return Settlement(usage)

    def spent(self, exchange: Exchange, outcomes: Sequence[Outcome]) -> Settlement:
        """One dollar for each token of the prompts."""
        usage = exchange.lost.usage
        for outcome in outcomes:
            usage = summed(usage, outcome.usage)
        return Settlement(usage, float(usage.prompt) if usage is not None else 0.0)

    def booked(self, exchange: Exchange, outcome: Outcome, further_tokens: int, silent_s: float) -> Outcome:
        """The outcome. Without a reported usage, it gets the further tokens and the tokens of the text that came."""
        missing = Usage(further_tokens, outcome.tokens, estimated=True)
        return outcome if outcome.usage is not None else replace(outcome, usage=missing)

    def settle(self, exchange: Exchange) -> None:
        """Keep the exchange."""
        with self._changed:
            self.open -= 1
            self.ended.append(exchange)
            self._changed.notify_all()

    def wait(self, count: int = 1, timeout_s: float = 60.0) -> list[Exchange]:
        """The exchanges, as soon as ``count`` of them have ended."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.ended) >= count, timeout_s):
                raise TimeoutError(f"{len(self.ended)} of {count} exchanges ended")
            return list(self.ended)


class ManualClock:
    """A clock whose time changes only when it is set."""

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
    """Names and their deployments. The entry ``*`` serves all other names under their own name."""

    entries: Mapping[str, Deployment] = field(default_factory=dict)

    def resolve(self, name: str) -> Deployment:
        """The deployment with this name."""
        if name in self.entries:
            return self.entries[name]
        if "*" not in self.entries:
            raise UnknownModel(f"no model {name!r} here", param="model")
        return replace(self.entries["*"], name=name, model=name)

    def levels(self, name: str) -> Sequence[Sequence[Deployment]]:
        """The deployment with this name, and no other."""
        return ((self.resolve(name),),)

    def wider(self, name: str) -> Sequence[Sequence[Deployment]]:
        """No other."""
        return ()

    def names(self) -> Sequence[str]:
        """All names except the wildcard."""
        return [name for name in self.entries if name != "*"]

    def patterns(self) -> Sequence[str]:
        """The wildcard."""
        return [name for name in self.entries if name == "*"]

    def sole(self) -> Deployment | None:
        """The wildcard, if it is the only entry."""
        return self.entries.get("*") if len(self.entries) == 1 else None

    def known(self, deployment_id: str) -> Deployment | None:
        """The deployment with this id."""
        return next((one for one in self.entries.values() if deployment_id in (one.id, one.name)), None)

    def unnamed(self) -> Sequence[Deployment]:
        """The wildcard, or all."""
        if not self.entries:
            raise UnknownModel("no models here")
        return (self.entries["*"],) if "*" in self.entries else tuple(self.entries.values())


def make_deployment(name: str = "*", **given: Any) -> Deployment:
    """A deployment with the ``given`` fields, and default values for all others."""
    usual = {"model": name, "transport": Transport.HTTP, "profile": NONE, "base_url": "", "api_key": None}
    return Deployment(name=name, **{**usual, "mode": Mode.TIER, "timeout_s": 10.0, **given})


class NoMetrics:
    """Nothing to scrape."""

    async def rendered(self) -> bytes:
        """No text."""
        return b""


@asynccontextmanager
async def serving_here(app: ASGIApp, **config: Any) -> AsyncIterator[str]:
    """Run an app on a free port in this event loop. Gives its base URL."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, **config))
    serving = asyncio.ensure_future(server._serve())  # ``serve`` would take the signals of the tests
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


_KEEPALIVE_S = 3600


@contextmanager
def serving(app: ASGIApp, http: Any = "auto", drain_s: int = 5) -> Iterator[str]:
    """Run an app on a free port in a thread. Gives its base URL, and stops it in an orderly way: requests that have not
    ended after ``drain_s`` are cut off. ``http`` is uvicorn's protocol (``proxy.app.web.connection``)."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=http,
        log_config=None,
        access_log=False,
        # So no client sends a request on a connection that the server closes in the same moment.
        timeout_keep_alive=_KEEPALIVE_S,
        timeout_graceful_shutdown=drain_s,
    )
    server = uvicorn.Server(config)
    # The listening socket accepts connections before the server runs, so a client need not wait for the server.
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()

"""A client and an upstream in memory, for the engine's tests. Both keep what happened to them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import orjson
import pytest

from proxy.engine import BodyLimits, Breakers, Custody, Engine, Ports, RequestRules
from proxy.engine.attempts import ONE_TRY, Inquiries
from proxy.engine.exchange import Call, Exchange, Principal
from proxy.engine.ports import Answer, ComposedRequest, ComposeRequest, Planner, PlanRequest, Upstream, UsageReports
from proxy.kit.errors import ContextTooLong, PayloadTooLarge, ProxyError, error_body
from proxy.kit.resilience import RetryPolicy
from proxy.models import Deployment, Headers, Transport
from proxy.planner.plan import Plan
from proxy.prompts.window import CapabilityProfile
from proxy.prompts.window.fitting import Fitted
from proxy.protocol.request import ParsedBody
from proxy.protocol.response.usage import Usage
from tests.doubles import Ledger, ManualClock, ModelList, OpenDoor, PassthroughPlanner, make_deployment

JSON: Headers = [("content-type", "application/json")]
SSE: Headers = [("content-type", "text/event-stream")]
DONE = b"data: [DONE]\n\n"
BODY = orjson.dumps({"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 4, "completion_tokens": 1}})


def event(payload: object) -> bytes:
    """A server-sent event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


WORD = event({"choices": [{"index": 0, "delta": {"content": "word"}}]})
ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}})


def chat_body(**more: object) -> bytes:
    """A chat request."""
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **more})


class MemoryClient:
    """The client's side: a body, and the answer as it was received."""

    def __init__(
        self,
        body: bytes = b"",
        *,
        headers: Headers = JSON,
        method: str = "POST",
        path: str = "/chat/completions",
        query: str = "",
    ) -> None:
        self.method, self.path, self.query, self.headers = method, path, query, headers
        self.is_started = False
        self.failure: Exception | None = None
        self.is_awaited = self.has_left = False
        self.status = 0
        self.answer_headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.has_ended = False
        self.on_send: Callable[[bytes], None] = lambda chunk: None
        self._body = body

    @property
    def answer(self) -> bytes:
        """All that was received."""
        return b"".join(self.chunks)

    async def read(self, limit: int) -> bytes:
        if len(self._body) > limit:
            raise PayloadTooLarge("too large")
        return self._body

    async def peek(self, limit: int) -> bytes | None:
        return self._body if len(self._body) <= limit else None

    async def stream(self, limit: int) -> AsyncIterator[bytes]:
        for i in range(0, len(self._body), 7):
            yield self._body[i : i + 7]

    async def start(self, status: int, headers: Headers) -> None:
        assert not self.is_started
        self.is_started = True
        self.status = status
        self.answer_headers = dict(headers)

    async def send(self, chunk: bytes) -> None:
        assert self.is_started
        assert not self.has_ended
        assert chunk
        self.chunks.append(chunk)
        self.on_send(chunk)
        await asyncio.sleep(0)

    async def end(self, last: bytes = b"") -> None:
        assert self.is_started
        assert not self.has_ended
        if last:
            await self.send(last)
        self.has_ended = True

    async def refuse(self, error: ProxyError, headers: Headers) -> None:
        await self.start(error.status, [*headers, *error.headers.items()])
        await self.send(error_body(error))
        await self.end()


class Script:
    """One answer of the upstream: bytes and errors, in order; ``None`` waits until the answer is closed."""

    def __init__(self, status: int, headers: Headers, *steps: bytes | Exception | None) -> None:
        self.status, self.headers, self.steps = status, headers, steps
        self.closed = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            if step is None:
                await asyncio.Event().wait()
                continue
            yield step

    async def aclose(self) -> None:
        self.closed += 1


class ScriptedUpstream:
    """Answers calls from a list of scripts, and keeps the calls and the bodies that they had."""

    def __init__(self, *scripts: Script | ProxyError) -> None:
        self.scripts = list(scripts)
        self.calls: list[Call] = []
        self.bodies: list[bytes] = []
        self.is_closed = False

    async def open(self, call: Call) -> Answer:
        body = call.body if isinstance(call.body, bytes) else b"".join([chunk async for chunk in call.body])
        self.calls.append(call)
        self.bodies.append(body)
        script = self.scripts[len(self.calls) - 1]
        if isinstance(script, ProxyError):
            raise script
        return script

    async def aclose(self) -> None:
        self.is_closed = True


class Profiled:
    """Composes nothing, and gives every request a capability profile."""

    has_rules = True

    def __init__(self, window: CapabilityProfile) -> None:
        self.window_profile = window

    async def compose(self, request: ComposeRequest) -> ComposedRequest:
        return ComposedRequest(profile=self.window_profile)

    def requires(self, model: str, principal: Principal) -> bool:
        """No prompt is configured."""
        return False

    def window(self, model: str, principal: Principal, wished: str) -> CapabilityProfile | None:
        """The one profile."""
        return self.window_profile


class Shrinking:
    """Fits a request by sending others, in order, wherever less than the whole budget is allowed: None for the same
    again. ``scales`` are the budgets that were asked for; ``learnt`` is what fits the whole budget once a refusal has
    taught how the model counts."""

    def __init__(self, *bodies: bytes | ContextTooLong | None, learnt: bytes | None = None) -> None:
        self.bodies = list(bodies)
        self.learnt = learnt
        self.scales: list[float] = []
        self.named: list[int | None] = []

    async def fitted(
        self,
        parsed: ParsedBody,
        composed: ComposedRequest,
        deployment: Deployment,
        *,
        scale: float = 1.0,
        scope: str = "",
    ) -> Fitted:
        if scale == 1.0 and self.named and self.learnt is not None:
            return Fitted(self.learnt)
        if scale == 1.0:
            return Fitted(parsed.body, sizes={"conversation": len(parsed.body)})
        self.scales.append(scale)
        body = self.bodies.pop(0) if self.bodies else None
        if isinstance(body, ContextTooLong):
            raise body
        return Fitted(parsed.body if body is None else body)

    async def fitted_completion(
        self,
        parsed: ParsedBody,
        profile: CapabilityProfile,
        deployment: Deployment,
        *,
        scale: float = 1.0,
        scope: str = "",
    ) -> Fitted:
        """As a chat request is."""
        return await self.fitted(parsed, ComposedRequest(profile=profile), deployment, scale=scale, scope=scope)

    def settled(self, deployment: Deployment, fitted: Fitted, usage: Usage | None, *, scope: str = "") -> None:
        """Nothing is learnt."""

    def refused(self, deployment: Deployment, fitted: Fitted, tokens: int | None, *, scope: str = "") -> None:
        """Keep what the refusal says."""
        self.named.append(tokens)


class Bench:
    """An engine over a scripted upstream, and everything it talks to."""

    def __init__(
        self,
        *scripts: Script | ProxyError,
        planner: Planner | None = None,
        models: ModelList | None = None,
        limits: BodyLimits | None = None,
        trust_time_header: bool = False,
        retries: RetryPolicy = ONE_TRY,
        breakers: Breakers | None = None,
        window: CapabilityProfile | None = None,
        smaller: Sequence[bytes | ContextTooLong | None] = (),
        learnt: bytes | None = None,
        usage_reports: UsageReports | None = None,
        inquiries: Inquiries | None = None,
        custody: Custody | None = None,
    ) -> None:
        self.upstream = ScriptedUpstream(*scripts)
        self.planner = planner or PassthroughPlanner()
        self.door = OpenDoor()
        self.ledger = Ledger()
        self.windows = Shrinking(*smaller, learnt=learnt)
        upstream: Upstream = self.upstream
        self.engine = Engine(
            Ports(
                models=models or ModelList({"*": make_deployment(base_url="http://upstream")}),
                upstreams={Transport.HTTP: upstream},
                planner=self.planner,
                admission=self.door,
                meter=self.ledger,
                clock=ManualClock(1000.0),
                composer=Profiled(window) if window is not None else None,
                windows=self.windows,
                usage_reports=usage_reports,
                inquiries=inquiries,
            ),
            RequestRules(limits=limits or BodyLimits(), retries=retries, trust_time_header=trust_time_header),
            breakers=breakers,
            custody=custody,
        )

    def chat(self, client: MemoryClient) -> MemoryClient:
        """Run one chat exchange to its end."""
        asyncio.run(self.engine.chat(client))
        return client

    def relay(self, client: MemoryClient) -> MemoryClient:
        """Run one exchange on another path to its end."""
        asyncio.run(self.engine.relay(client))
        return client


async def left(bench: Bench, client: MemoryClient, when: asyncio.Event) -> None:
    """Run a chat exchange whose client leaves at this event, and close the engine."""
    task = asyncio.ensure_future(bench.engine.chat(client))
    await asyncio.wait_for(when.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await bench.engine.aclose()


def awaited_under(bench: Bench, client: MemoryClient, *, is_hard: bool) -> list[bool]:
    """For each call of a bench whose limits are hard or not: whether it is heard to its end."""
    reserve, sent, awaited = bench.door.reserve, bench.upstream.open, list[bool]()

    async def reserve_hard(exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        await reserve(exchange, others)
        assert exchange.reservation is not None
        exchange.reservation.is_hard = is_hard

    async def opened(call: Call) -> Answer:
        awaited.append(client.is_awaited)
        return await sent(call)

    bench.door.reserve = reserve_hard  # type: ignore[method-assign]
    bench.upstream.open = opened  # type: ignore[method-assign]
    return awaited


class Telling(Script):
    """A stream whose upstream knows more of the usage than its chunks say."""

    def usage_so_far(self) -> dict[str, object]:
        return {"prompt_tokens": 4321, "completion_tokens": 1}


def answers(*steps: bytes | Exception | None, status: int = 200, headers: Sequence[tuple[str, str]] = SSE) -> Script:
    """A script."""
    return Script(status, headers, *steps)


def ended(bench: Bench) -> Exchange:
    """The one exchange, which was settled once, and its reservation with it."""
    (exchange,) = bench.ledger.ended
    assert bench.ledger.open == 0
    assert [r.exchange_id for r in bench.door.reserved] == [i for i, _ in bench.door.settled]
    return exchange


def code(client: MemoryClient) -> object:
    """The code of the error that the client was answered with."""
    return orjson.loads(client.answer)["error"]["code"]


class BrokenPlanner(PassthroughPlanner):
    """Cannot plan anything."""

    async def plan(self, request: PlanRequest) -> Plan:
        raise ZeroDivisionError("plan")

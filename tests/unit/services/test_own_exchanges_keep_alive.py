"""Keep-alive in virtual time: a real engine, planner and provider; only the clock is set by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.engine import Conclusion, Engine, Ports
from proxy.engine.exchange import Call, Exchange, ExchangeOutcome
from proxy.engine.ports import Answer
from proxy.engine.telemetry import MetricsMeter
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import BudgetExceeded, UpstreamUnavailable
from proxy.kit.modes import Mode, Reason
from proxy.models import Deployment, Transport
from proxy.models.deployments import price_for
from proxy.planner import TierPlanner
from proxy.protocol.prices import PriceMap
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services.own_exchanges import KeepAlive, OwnExchanges, RefreshTerms
from proxy.services.planner_port import Planning
from proxy.upstream.embedded import EmbeddedUpstream
from tests.doubles import ModelList, OpenDoor, make_deployment
from tests.exchanges import settled
from tests.fake_time import FakeTime, settle
from tests.talk import RECOGNISERS, TINY, lines
from tests.unit.engine.parts import MemoryClient
from tests.unit.engine.telemetry.test_metrics import value

USD = 1e-6
PRICES = {
    "m": {
        "input_cost_per_token": USD,
        "output_cost_per_token": 5 * USD,
        "cache_read_input_token_cost": 0.1 * USD,
        "cache_creation_input_token_cost": 1.25 * USD,
    }
}
PAUSE_S = 480.0
START_S = 1_000_000.0


class Upstream:
    """The embedded provider, and every call that reached it; ``on_call`` may fail one."""

    def __init__(self) -> None:
        self.provider = EmbeddedUpstream(bytes_over_four)
        self.calls: list[Call] = []
        self.on_call: Callable[[Call], Awaitable[None]] | None = None

    async def open(self, call: Call) -> Answer:
        self.calls.append(call)
        if self.on_call is not None:
            await self.on_call(call)
        return await self.provider.open(call)

    async def aclose(self) -> None:
        await self.provider.aclose()


class Door(OpenDoor):
    """Lets everybody in but, if told so, refreshes."""

    def __init__(self) -> None:
        super().__init__()
        self.denies = False

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        if self.denies and exchange.planned.reason == Reason.KEEP_ALIVE:
            raise BudgetExceeded("spent")
        await super().reserve(exchange, others)


class ListeningMeter(MetricsMeter):
    """A meter that keeps every exchange that has ended."""

    def __init__(self, metrics: Metrics, prices: PriceMap, heard: list[Exchange]) -> None:
        super().__init__(metrics, lambda of: price_for(prices, of))
        self._heard = heard

    def settle(self, exchange: Exchange) -> None:
        super().settle(exchange)
        self._heard.append(exchange)


class Scene:
    """A proxy with keep-alive, and a client that pauses."""

    def __init__(self, terms: RefreshTerms | None = None, *, is_on: bool = True, **deployment: Any) -> None:
        # One life, so that nothing else bridges the pauses.
        profile = replace(TINY, long_life_s=0.0)
        fields = {"transport": Transport.EMBEDDED, "profile": profile, "api_key": "sk-operator", **deployment}
        self.clock, self.upstream, self.door = FakeTime(START_S), Upstream(), Door()
        self.metrics = Metrics()
        self.settled: list[Exchange] = []
        prices = PriceMap({}, PRICES)

        def price_of(of: Deployment) -> Any:
            return price_for(prices, of)

        pure = TierPlanner(bytes_over_four, RECOGNISERS)
        planner = Planning(pure)
        models = ModelList({"m": make_deployment(name="m", **fields)})
        upstream: Upstream = self.upstream
        meter = ListeningMeter(self.metrics, prices, self.settled)
        ports = Ports(models, {Transport.EMBEDDED: upstream}, planner, self.door, meter, self.clock)
        conclusion, given = Conclusion(ports), terms or RefreshTerms(usd_per_day=1.0)
        own = OwnExchanges(ports, conclusion, price_of, given)
        self.refresher = KeepAlive(given, own, pure, self.clock, self.metrics.refreshed, self.clock.wait)
        follower, on_return = (self.refresher, self.refresher.returned) if is_on else (None, None)
        self.engine = Engine(ports, conclusion=conclusion, follower=follower, on_return=on_return)
        self.turns: list[dict[str, str]] = [{"role": "system", "content": lines(200, "rule")}]

    async def __aenter__(self) -> "Scene":
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.engine.aclose()

    async def ask(self, gap_s: float, **more: Any) -> MemoryClient:
        """The next request, so long after the one before it."""
        await self.clock.advance(gap_s)
        self.turns.append({"role": "user", "content": lines(6, f"question {len(self.turns)}")})
        client = MemoryClient(orjson.dumps({"model": "m", "messages": self.turns, **more}))
        await self.engine.chat(client)
        assert client.status == 200
        self.turns.append({"role": "assistant", "content": lines(3, f"answer {len(self.turns)}")})
        await settle()
        return client

    async def talk(self, pairs: int = 6, **more: Any) -> None:
        """Two requests, and a pause, again and again."""
        for _ in range(pairs):
            await self.ask(10.0, **more)
            await self.ask(PAUSE_S, **more)

    @property
    def refreshes(self) -> list[Exchange]:
        return [e for e in self.settled if e.planned.reason == Reason.KEEP_ALIVE]

    @property
    def cost_usd(self) -> float:
        return sum(settled(exchange).cost_usd for exchange in self.settled)


async def test_keep_alive_saves_what_pauses_of_eight_minutes_cost() -> None:
    async def spent(*, is_on: bool) -> Scene:
        async with Scene(is_on=is_on) as scene:
            await scene.talk(12)
            await scene.clock.advance(20_000.0)
            return scene

    off, on = await spent(is_on=False), await spent(is_on=True)
    assert off.refreshes == []
    assert len(on.refreshes) > 8
    assert on.cost_usd < 0.75 * off.cost_usd


async def test_a_refresh_is_an_exchange_of_its_own() -> None:
    async with Scene() as scene:
        await scene.talk()
        await scene.clock.advance(300.0)
        refresh = scene.refreshes[-1]
        usage = settled(refresh).usage
        assert (refresh.ending, refresh.answer.status, refresh.planned.mode) == (
            ExchangeOutcome.COMPLETED,
            200,
            Mode.TIER,
        )
        assert usage.output == 1
        assert usage.read > 0.9 * usage.prompt
        assert 0 < settled(refresh).cost_usd < 0.15 * USD * usage.prompt
        assert settled(refresh).saved_usd < 0
        assert (refresh.arrival.id, settled(refresh).cost_usd) in scene.door.settled
        team = refresh.principal.team
        spent = value(scene.metrics, "keep_alive_cost_usd_total", model="m", team=team)
        assert spent == pytest.approx(sum(settled(each).cost_usd for each in scene.refreshes))
        assert value(scene.metrics, "keep_alive_total", team=team, outcome="read") == len(scene.refreshes)
        uncached = sum(
            e.answer.outcome.usage.prompt * USD
            for e in scene.settled
            if e.answer.outcome.usage and e not in scene.refreshes
        )
        counted = value(scene.metrics, "uncached_input_cost_usd_total", model="m", team=team)
        assert counted == pytest.approx(uncached)


async def test_the_body_is_the_clients_prefix_and_one_token() -> None:
    async with Scene() as scene:
        await scene.talk(stream=True, temperature=0.5)
        asked = scene.upstream.calls[-1]
        await scene.clock.advance(300.0)
        sent = scene.upstream.calls[-1]
        assert isinstance(asked.body, bytes)
        assert isinstance(sent.body, bytes)
        before, after = orjson.loads(asked.body), orjson.loads(sent.body)
        assert after["messages"] == before["messages"][: len(after["messages"])]
        assert (after["max_tokens"], after["temperature"], "stream" in after, sent.stream) == (1, 0.5, False, False)
        assert sent.headers == asked.headers


async def test_nothing_is_sent_once_the_client_is_back() -> None:
    async with Scene() as scene:
        await scene.talk()
        assert len(scene.refresher) == 1
        before = len(scene.refreshes)
        for _ in range(20):
            await scene.ask(100.0)
        assert len(scene.refreshes) == before


async def test_keep_alive_gives_up_on_a_client_that_is_gone() -> None:
    async with Scene() as scene:
        await scene.talk()
        before = len(scene.refreshes)
        await scene.clock.advance(50_000.0)
        assert 1 <= len(scene.refreshes) - before <= 11
        assert (len(scene.refresher), scene.refresher.held_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("terms", "deployment"),
    [
        (RefreshTerms(usd_per_day=0.0), {}),
        (RefreshTerms(teams={"default": 0.0}), {}),
        (RefreshTerms(), {"api_key": None}),
    ],
    ids=["no money", "not this team", "the client's own key"],
)
async def test_keep_alive_is_for_those_who_are_allowed(terms: RefreshTerms, deployment: dict[str, Any]) -> None:
    async with Scene(terms, **deployment) as scene:
        await scene.talk()
        await scene.clock.advance(1000.0)
        assert scene.refreshes == []


async def test_clients_own_keys_where_the_operator_says_so() -> None:
    async with Scene(RefreshTerms(own_keys=True), api_key=None) as scene:
        await scene.talk()
        assert scene.refreshes


async def test_the_cap_of_the_day_is_never_passed() -> None:
    cap = 0.012
    async with Scene(RefreshTerms(usd_per_day=cap)) as scene:
        while not value(scene.metrics, "keep_alive_total", team="default", outcome="capped"):
            await scene.talk(2)
        spent = sum(settled(refresh).cost_usd for refresh in scene.refreshes)
        assert 0 < spent <= cap


async def test_a_refresh_that_finds_nothing_is_the_last() -> None:
    async with Scene() as scene:
        await scene.talk()
        before = len(scene.refreshes)
        scene.upstream.provider = EmbeddedUpstream(bytes_over_four)
        await scene.clock.advance(50_000.0)
        assert len(scene.refreshes) == before + 1
        assert value(scene.metrics, "keep_alive_total", team="default", outcome="missed") == 1


@pytest.mark.parametrize(("what", "outcome"), [("line", "refused"), ("upstream", "refused"), ("budget", "denied")])
async def test_a_refresh_that_fails_is_the_last_and_is_settled(what: str, outcome: str) -> None:
    async with Scene() as scene:
        await scene.talk()
        before = len(scene.refreshes)

        async def fail(call: Call) -> None:
            error = UpstreamUnavailable("away")
            raise error if what == "line" else error.unreached()

        scene.upstream.on_call = fail if what != "budget" else None
        scene.door.denies = what == "budget"
        await scene.clock.advance(50_000.0)
        assert len(scene.refreshes) == before + 1
        # What the upstream may have got is billed.
        assert (settled(scene.refreshes[-1]).cost_usd > 0) is (what == "line")
        assert value(scene.metrics, "keep_alive_total", team="default", outcome=outcome) == 1
        assert value(scene.metrics, "in_flight") == 0


async def test_what_is_under_way_is_settled_when_the_client_returns() -> None:
    async with Scene() as scene:
        await scene.talk()
        before, held, sending = len(scene.refreshes), asyncio.Event(), asyncio.Event()

        async def hold(call: Call) -> None:
            if b'"max_tokens":1' in bytes(call.body):  # type: ignore[arg-type]
                sending.set()
                await held.wait()

        scene.upstream.on_call = hold
        await scene.clock.advance(280.0, held=sending)
        assert sending.is_set()
        await scene.ask(5.0)
        held.set()
        await settle()
        assert len(scene.refreshes) == before + 1
        assert scene.refreshes[-1].ending is ExchangeOutcome.COMPLETED


async def test_memory_is_bounded_by_sessions_and_bytes() -> None:
    async with Scene(RefreshTerms(max_sessions=2)) as scene:
        await scene.talk()
        for number in range(4):
            scene.turns = [scene.turns[0], {"role": "user", "content": f"another {number}"}]
            await scene.ask(1.0)
        assert len(scene.refresher) == 2
        size = scene.refresher.held_bytes
        assert size > 0
    async with Scene(RefreshTerms(max_bytes=100)) as small:
        await small.talk()
        assert (len(small.refresher), small.refreshes) == (0, [])


async def test_nothing_is_sent_after_the_end() -> None:
    async with Scene() as scene:
        await scene.talk()
    before = len(scene.upstream.calls)
    await scene.clock.advance(50_000.0)
    assert len(scene.upstream.calls) == before
    assert len(scene.refresher) == 0

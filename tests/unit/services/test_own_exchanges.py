"""Calls that the proxy makes itself are exchanges like any other, within a cap of each team for the day."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.engine.exchange import Arrival, Call, Exchange, ExchangeOutcome, Planned, Principal, Requested
from proxy.kit.errors import RateLimited, UpstreamTimeout, UpstreamUnavailable
from proxy.kit.modes import Mode, Reason
from proxy.models import Deployment, Transport
from proxy.planner.plan import Plan
from proxy.protocol.request.demand import Demand, Tool, Wants
from proxy.protocol.response import MAX_BODY_BYTES
from proxy.services.own_exchanges import Caps, DailyTerms, OwnEnding, RefreshTerms
from tests.unit.engine.telemetry.test_metrics import value
from tests.unit.services.test_own_exchanges_compactor import Said, Scene


def test_a_cap_begins_anew_each_day() -> None:
    caps = Caps(RefreshTerms(usd_per_day=1e-6, teams={"rich": 1.0}))
    assert caps.take("poor", 900, 10.0)
    assert not caps.take("poor", 200, 20.0)
    caps.settle("poor", 900, 100)
    assert caps.take("poor", 200, 30.0)
    assert caps.take("rich", 10**6, 30.0)
    assert not caps.take("poor", 900, 40.0)
    assert caps.take("poor", 900, 86_401.0)


def call_of(scene: Scene) -> Call:
    return Call(scene.deployment, "POST", "/chat/completions", [], b"{}", stream=False, now=1e9)


def exchange_of(scene: Scene) -> Exchange:
    return Exchange(
        Arrival("POST", "/chat/completions", 1e9, size=100, is_chat=True),
        Principal(scope="key", team="red", virtual=True),
        Requested("m", demand=Demand(max_output_tokens=10)),
        deployment=scene.deployment,
        planned=Planned(Mode.TIER, Reason.COMPACTION, Plan(b"{}", b"{}", Mode.TIER, Reason.COMPACTION)),
    )


@pytest.mark.parametrize(
    ("principal", "deployment", "is_allowed"),
    [
        ({"virtual": True}, {}, True),
        ({"virtual": True, "forwards_key": True}, {}, False),
        ({}, {}, True),
        ({}, {"api_key": None}, False),
        ({}, {"api_key": None, "transport": Transport.LITELLM}, True),
    ],
)
def test_who_pays_the_provider_decides_whether_a_call_is_made(
    principal: dict[str, Any], deployment: dict[str, Any], *, is_allowed: bool
) -> None:
    whom = Principal(scope="key", team="red", **principal)
    for own_keys in (False, True):
        scene = Scene(DailyTerms(own_keys=own_keys), **deployment)
        assert scene.own.is_allowed(call_of(scene), whom) is (is_allowed or own_keys)


async def test_of_a_very_long_answer_the_beginning_is_kept() -> None:
    class Endless(Said):
        async def chunks(self):  # type: ignore[no-untyped-def]
            for _ in range(40):
                yield b"x" * 100_000

    scene = Scene()

    async def answer() -> Said:
        return Endless("")

    scene.upstream.answer = answer
    ending, body = await scene.own.run(exchange_of(scene), call_of(scene), prompt_tokens=10, output_tokens=10)
    assert (ending, len(body)) == (OwnEnding.ANSWERED, MAX_BODY_BYTES)


async def test_a_deployment_that_has_as_many_calls_as_it_may_is_not_called() -> None:
    scene = Scene()

    async def take_turn(exchange: Exchange, deployment: Deployment) -> None:
        assert deployment is scene.deployment
        raise RateLimited("", kind="requests", retry_after_s=1)

    scene.door.take_turn = take_turn  # type: ignore[method-assign]
    exchange = exchange_of(scene)
    ending, _ = await scene.own.run(exchange, call_of(scene), prompt_tokens=10, output_tokens=10)
    assert (ending, exchange.attempts) == (OwnEnding.DENIED, 0)
    assert scene.settled == [exchange]


async def test_a_call_that_is_cut_off_is_settled() -> None:
    scene, begun = Scene(DailyTerms(usd_per_day=1.0)), asyncio.Event()

    async def hangs() -> Said:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    scene.upstream.answer = hangs
    exchange = exchange_of(scene)
    task = asyncio.create_task(scene.own.run(exchange, call_of(scene), prompt_tokens=10, output_tokens=10))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert exchange.ending is ExchangeOutcome.HUNG_UP
    assert scene.settled == [exchange]
    assert value(scene.metrics, "in_flight") == 0


def test_a_call_is_set_aside_with_the_tier_and_the_tools_of_its_client() -> None:
    scene, exchange = Scene(), exchange_of(Scene())
    wants = Wants(tier="priority", calls=((Tool.SEARCH, 2),))
    exchange.requested = Requested("m", demand=Demand(wants=wants))
    exchange.call, exchange.ending = call_of(scene), ExchangeOutcome.COMPLETED
    exchange.answer.status, exchange.answer.first_byte_s = 200, 0.1
    behind = scene.own.behind(exchange)
    begun, _ = behind.begun(Plan(b"{}", b"{}", Mode.TIER, Reason.COMPACTION), 1e9, 7)
    assert begun.requested.demand == Demand(max_output_tokens=7, wants=wants)


@pytest.mark.parametrize(("is_reached", "is_billed"), [(True, True), (False, False)])
async def test_a_call_that_is_not_answered_in_time_is_billed_to_its_limit(*, is_reached: bool, is_billed: bool) -> None:
    scene = Scene(DailyTerms(usd_per_day=1.0))

    async def late() -> Said:
        error = UpstreamTimeout("late")
        raise error if is_reached else error.unreached()

    scene.upstream.answer = late
    exchange = exchange_of(scene)
    ending, _ = await scene.own.run(exchange, call_of(scene), prompt_tokens=10, output_tokens=10)
    assert ending is OwnEnding.REFUSED
    usage = exchange.settlement.usage
    assert (usage is not None and usage.output == 10) is is_billed


@pytest.mark.parametrize(("status", "is_billed"), [(200, True), (400, False), (503, False)])
async def test_an_answer_that_breaks_off_is_billed_unless_it_refuses(status: int, *, is_billed: bool) -> None:
    class Broken(Said):
        async def chunks(self) -> AsyncIterator[bytes]:
            raise UpstreamUnavailable("cut")
            yield b""

    scene = Scene(DailyTerms(usd_per_day=1.0))

    async def answer() -> Said:
        return Broken("", status)

    scene.upstream.answer = answer
    exchange = exchange_of(scene)
    await scene.own.run(exchange, call_of(scene), prompt_tokens=10, output_tokens=10)
    assert (exchange.settlement.usage is not None) is is_billed

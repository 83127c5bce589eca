"""Rate limits, and keys that must not go upstream."""

import asyncio
from dataclasses import replace
from types import NoneType

import pytest

from proxy.engine.exchange import Exchange
from proxy.engine.ports import Admission
from proxy.kit.errors import Forbidden, RateLimited
from proxy.models import Deployment, RateLimit, Transport
from proxy.models.charges import Rule
from proxy.protocol.providers import NONE
from proxy.protocol.response.usage import Usage
from proxy.teams.bookings import account_of, deployment_rules
from tests.exchanges import make_exchange
from tests.money import MODEL, NOW, SIZE, TOTAL, Budgeting, admission_control, budgeting, exchange, reserved, spent


async def test_a_rate_limit_says_when_to_come_back() -> None:
    rule = Rule("rate", "the requests per minute of key 'k'", unit="requests", hard=2, window="minute", is_rate=True)
    async with budgeting(rule) as one:
        for _ in range(2):
            await one.settle(await reserved(one, exchange(SIZE)), Usage(1, 1))
        with pytest.raises(RateLimited) as caught:
            await one.reserve(exchange(SIZE))
        wait_s = 60 - int(NOW % 60)
        assert caught.value.headers == {
            "retry-after": str(wait_s),
            "x-ratelimit-limit-requests": "2",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": f"{wait_s}s",
        }
        assert (caught.value.kind, caught.value.code) == ("requests", "rate_limit_exceeded")
        assert one.sample("rate_limited_total", team="red", unit="requests") == 1
        await one.reserve(exchange(SIZE, at=NOW + 60))


LIMITED = replace(MODEL, id="m#1", rates=RateLimit("", requests=3, tokens=100))


MINUTE = NOW // 60 * 60


async def counted(one: Budgeting, deployment: Deployment, minute: float = MINUTE) -> list[tuple[int, int]]:
    """The calls and the tokens of a deployment in a minute, spent and reserved."""
    accounts = [account_of(rule, f"minute:{minute / 60:.0f}") for rule in deployment_rules(deployment)]
    return [await spent(one, account) for account in accounts]


def called(asked: Exchange, deployment: Deployment) -> None:
    """The exchange goes to that deployment."""
    asked.deployment, asked.attempts = deployment, asked.attempts + 1


async def test_the_calls_and_tokens_of_a_deployment_count_in_their_minute() -> None:
    other = replace(LIMITED, id="m#2", rates=RateLimit("", tokens=50))
    async with budgeting(TOTAL) as one:
        asked = await reserved(one, exchange(SIZE, at=MINUTE))
        for deployment in (LIMITED, LIMITED, other):  # a retry, then another deployment
            await one.reservations.take_turn(asked, deployment)
            called(asked, deployment)
        assert await counted(one, LIMITED) == [(0, 2), (0, 2)]
        await one.settle(asked, Usage(40, 9))
        assert await counted(one, LIMITED) == [(2, 0), (0, 0)], "its calls gave no answer"
        assert await counted(one, other) == [(49, 0)]
        assert (await spent(one))[1] == 0

        # One token is left: a call may go out however many it takes, as in LiteLLM.
        for is_last in (False, True):
            asked = await reserved(one, exchange(SIZE, at=MINUTE + 30))
            if is_last:
                with pytest.raises(RateLimited) as caught:
                    await one.reservations.take_turn(asked, other)
                assert caught.value.kind == "tokens"
                assert 0 < int(caught.value.headers["retry-after"]) <= 30
                await one.reservations.settle(asked)
                break
            await one.reservations.take_turn(asked, other)
            called(asked, other)
            await one.settle(asked, Usage(500, 0))
        assert await counted(one, other) == [(549, 0)]
        asked = await reserved(one, exchange(SIZE, at=MINUTE + 60))
        await one.reservations.take_turn(asked, other)


async def test_of_calls_at_once_no_more_go_to_a_deployment_than_its_limit() -> None:
    async with budgeting() as one:
        asks = [await reserved(one, exchange(SIZE, at=MINUTE)) for _ in range(5)]
        turns = (one.reservations.take_turn(asked, LIMITED) for asked in asks)
        results = await asyncio.gather(*turns, return_exceptions=True)
        assert [type(result) for result in results] == [NoneType] * 3 + [RateLimited] * 2
        for asked, result in zip(asks, results, strict=True):
            if result is None:
                called(asked, LIMITED)
                await one.settle(asked)
            else:
                await one.reservations.settle(asked)
        assert await counted(one, LIMITED) == [(3, 0), (0, 0)]
        assert len(await one.store.entries(0, NOW + 1)) == 3


async def test_while_the_store_is_away_a_deployment_has_no_limit() -> None:
    async with budgeting() as one:
        one.store.is_out = True
        for _ in range(5):
            asked = await reserved(one, exchange(SIZE, at=MINUTE))
            await one.reservations.take_turn(asked, LIMITED)


async def test_what_exceeds_a_rate_by_itself_is_not_to_be_tried_again() -> None:
    rule = Rule("rate", "the tokens per minute", unit="tokens", hard=10, window="minute", is_rate=True)
    async with budgeting(rule) as one:
        with pytest.raises(RateLimited) as caught:
            await one.reserve(exchange(SIZE))
        assert caught.value.headers["x-should-retry"] == "false"


HEADERS = [("authorization", "Bearer sk-1")]


def reserve(admission: Admission, deployment: Deployment, *others: Deployment) -> None:
    exchange = make_exchange(deployment=deployment)
    exchange.principal = admission.admit(HEADERS, 0.0)
    asyncio.run(admission.reserve(exchange, others))


def test_a_virtual_key_is_refused_where_the_upstream_would_need_the_clients() -> None:
    deployment = Deployment("m", "m", Transport.HTTP, NONE)
    with pytest.raises(Forbidden, match="Model 'm' has no api_key") as caught:
        reserve(admission_control("sk-1"), deployment)
    assert (caught.value.status, caught.value.code) == (403, "upstream_key_missing")
    reserve(admission_control(), deployment)


def test_the_key_of_a_deployment_that_may_stand_in_is_looked_at_too() -> None:
    other = Deployment("n", "n", Transport.HTTP, NONE)
    with pytest.raises(Forbidden, match="Model 'n' has no api_key"):
        reserve(admission_control("sk-1"), Deployment("m", "m", Transport.HTTP, NONE, api_key="k"), other)


@pytest.mark.parametrize(
    "deployment",
    [
        Deployment("m", "m", Transport.HTTP, NONE, api_key="k"),
        Deployment("m", "m", Transport.HTTP, NONE, headers=[("x-api-key", "k")]),
        Deployment("m", "m", Transport.LITELLM, NONE),
        Deployment("m", "m", Transport.EMBEDDED, NONE),
    ],
    ids=["key", "header", "litellm", "embedded"],
)
def test_a_request_is_accepted_where_the_upstream_has_a_key_or_needs_none(deployment: Deployment) -> None:
    reserve(admission_control("sk-1"), deployment)

"""What the engine relies on in a transport (``proxy.engine.ports.Upstream``), of the embedded one."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from proxy.engine.ports import Answer
from proxy.kit.errors import ProxyError
from proxy.protocol.providers import PROFILES
from tests.unit.upstream.embedded_client import Provider

ASKED = {"messages": [{"role": "user", "content": "What is a stratum?"}]}
STREAMED = {**ASKED, "stream": True}


async def reading(provider: Provider) -> tuple[Answer, asyncio.Future[bytes]]:
    """An answer that has begun, and who waits for more of it."""
    answer = await provider.upstream.open(provider.call(STREAMED))
    chunks = answer.chunks()
    await anext(chunks)
    waiting = asyncio.ensure_future(anext(chunks))
    await asyncio.sleep(0)
    return answer, waiting


async def test_a_body_that_arrives_in_pieces_is_answered() -> None:
    provider = Provider()
    call = provider.call(ASKED)

    async def pieces() -> AsyncIterator[bytes]:
        assert isinstance(call.body, bytes)
        for at in range(0, len(call.body), 7):
            yield call.body[at : at + 7]

    assert (await provider.upstream.open(replace(call, body=pieces()))).status == 200


async def test_an_answer_may_be_closed_unread_and_twice() -> None:
    provider = Provider()
    unread = await provider.upstream.open(provider.call(STREAMED))
    await unread.aclose()
    await unread.aclose()
    assert (await provider.ask(ASKED)).json["choices"]


async def test_giving_an_answer_up_wakes_its_reader() -> None:
    answer, waiting = await reading(Provider(pace_s=30))
    await answer.aclose()
    with pytest.raises(ProxyError):
        await waiting


async def test_a_reader_can_be_cancelled() -> None:
    answer, waiting = await reading(Provider(pace_s=30))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await answer.aclose()


async def test_calls_side_by_side_have_answers_of_their_own() -> None:
    provider = Provider()
    replies = await asyncio.gather(*(provider.ask(STREAMED) for _ in range(8)))
    assert len({reply.events[0]["id"] for reply in replies}) == 8


async def test_a_closed_upstream_says_so() -> None:
    provider = Provider()
    await provider.upstream.aclose()
    await provider.upstream.aclose()
    with pytest.raises(ProxyError):
        await provider.ask(ASKED)


@pytest.mark.parametrize("profile", sorted(PROFILES))
async def test_the_ledger_is_the_sum_of_the_reported_usage(profile: str) -> None:
    provider = Provider(PROFILES[profile])
    usages = [(await provider.ask({**ASKED, "user": str(number)})).usage for number in range(3)]
    ledger = provider.ledger
    assert (ledger.requests, ledger.answered, ledger.cancelled) == (3, 3, 0)
    assert ledger.prompt == sum(usage["prompt_tokens"] for usage in usages)
    assert ledger.output == sum(usage["completion_tokens"] for usage in usages)

"""Nobody waits in vain for Redis, and nothing is sent for whoever has left."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from proxy.kit.errors import StoreError
from proxy.storage import redis_link
from proxy.storage.redis_link import RedisLink


class Slow(Redis):
    """Answers when it is let."""

    def __init__(self, fault: Exception | None = None) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.asked: list[object] = []
        self._fault = fault

    async def execute_command(self, *words: Any, **_: Any) -> Any:
        self.asked.append(words[-1])
        await self.may_answer.wait()
        if self._fault is not None:
            raise self._fault
        return b"1"


def link_to(client: Redis, monkeypatch: pytest.MonkeyPatch) -> RedisLink:
    async def connected(*_: object) -> Redis:
        return client

    monkeypatch.setattr(redis_link, "connected", connected)
    return RedisLink("redis://127.0.0.1:1", 5.0)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_nobody_waits_for_any_more_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Slow()
    link = link_to(client, monkeypatch)
    calls = []
    for name in range(9):  # as many as there are connections are under way, and the last one waits
        calls.append(asyncio.ensure_future(link.command("GET", f"{name}")))
        await turns()
    calls[8].cancel()
    await turns()
    client.may_answer.set()
    assert await asyncio.gather(*calls[:8]) == [b"1"] * 8
    await link.aclose()
    assert client.asked == [f"{name}".encode() for name in range(8)]


async def test_an_error_that_nobody_expects_reaches_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Slow(RuntimeError("read() called while another coroutine is already waiting for incoming data"))
    client.may_answer.set()
    link = link_to(client, monkeypatch)
    async with asyncio.timeout(60):
        with pytest.raises(StoreError):
            await link.command("GET", "x")
    await link.aclose()

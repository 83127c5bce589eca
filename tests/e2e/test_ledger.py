"""One worker over SQLite and four over Redis, as processes: budgets to the last nano-dollar.

The environment variable STRATIFORM_LOAD has the size of the load (clients x calls); `make load` sets a large one. What
killed workers and stores that fail leave in the ledger is compared by the drills (tests/drill).
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import orjson
import pytest
from starlette.types import Receive, Send

from proxy.engine.exchange import Call
from proxy.models import Deployment, Transport
from proxy.models.bound import InputBound
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.tokens import bytes_over_four
from proxy.storage import Charge, LedgerEntry, SpendQuery
from proxy.storage.redis import RedisStore
from proxy.storage.sqlite import SqliteStore
from proxy.upstream.embedded import ANONYMOUS, EmbeddedUpstream
from tests.doubles import serving
from tests.e2e.fleet import INPUT, KEY, MODEL, OUTPUT, TEAM, Crowd, Provider, configuration, fleet, metric
from tests.receiver import Received, Receiver, head, part
from tests.redis_server import redis_server
from tests.waiting import until

pytestmark = pytest.mark.slow

CLIENTS, CALLS = (int(part) for part in os.environ.get("STRATIFORM_LOAD", "50x10").split("x"))
ACCOUNT = "b:total:-:total"
# The most that is reserved for one call of the crowd, whose bodies are shorter than this.
RESERVATION = InputBound(text=950).tokens(None) * INPUT + 20 * OUTPUT


@contextmanager
def sqlite_file(folder: Path) -> Iterator[tuple[str, int]]:
    yield f"sqlite:{folder / 'spend.sqlite'}", 1


@contextmanager
def redis(folder: Path) -> Iterator[tuple[str, int]]:
    with redis_server(folder / "redis", "--appendfsync", "everysec") as server:
        yield server.url, 4


def read(url: str, *, at: float) -> tuple[list[LedgerEntry], int, int]:
    """The ledger; and of the team's budget what is spent and reserved, after reservations that expire by ``at``."""

    async def main() -> tuple[list[LedgerEntry], int, int]:
        path = url.removeprefix("sqlite:")
        store = RedisStore(url, timeout_s=10.0) if path == url else await SqliteStore.open(Path(path))
        try:
            await store.expire(at)
            entries: list[LedgerEntry] = []
            while page := await store.entries(
                entries[-1].at if entries else 0.0, 1e12, entries[-1].exchange_id if entries else ""
            ):
                entries += page
            found = await store.balance(TEAM, Charge(ACCOUNT, 0), at)
            assert sum(row.cost for row in await store.spend(SpendQuery(0.0, 1e12))) == sum(e.cost for e in entries)
            return entries, found.spent, found.reserved
        finally:
            await store.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize("store", [sqlite_file, redis])
def test_a_hard_budget_holds_under_load_to_the_last_nano_dollar(
    tmp_path: Path, store: Callable[[Path], AbstractContextManager[tuple[str, int]]]
) -> None:
    average = (50 + 49) * 5 // 4 * INPUT + 20 * OUTPUT
    limit = CLIENTS * CALLS // 2 * average
    provider = Provider()
    with serving(provider) as upstream, store(tmp_path) as (url, workers):
        config = configuration(upstream, url, budgets=[{"usd": limit / 1e9}])
        with fleet(tmp_path / "proxy", config, workers) as proxy:
            crowd = Crowd()
            asyncio.run(crowd.send(proxy.url, CLIENTS, CALLS))
            # While some ran, others were refused for what those had reserved: demand lasts until nobody runs.
            alone = Crowd()
            asyncio.run(alone.send(proxy.url, 1, CLIENTS * CALLS, stop=lambda: alone.refused > 0))
            until(lambda: metric(proxy.url, "spool_pending") == 0)
        entries, spent, reserved = read(url, at=time.time())
    assert set(crowd.statuses) == {200, 429}, crowd.texts
    assert (crowd.broken, alone.refused) == (0, 1)
    assert sum(entry.cost for entry in entries) == spent == provider.nanos
    assert reserved == 0
    assert limit - RESERVATION < spent <= limit
    assert sorted(entry.exchange_id for entry in entries if entry.cost) == sorted(crowd.complete + alone.complete)
    assert not any(entry.estimated for entry in entries)


class Caching(Receiver):
    """The embedded provider behind a socket: it really caches prompts, and bills by what was read and written."""

    def __init__(self) -> None:
        self.upstream = EmbeddedUpstream(bytes_over_four)
        profile = replace(ANTHROPIC, min_tokens=64)
        self.deployment = Deployment(MODEL, MODEL, Transport.EMBEDDED, profile, api_key="account")

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        path = request.path.removeprefix("/v1")
        answer = await self.upstream.open(Call(self.deployment, "POST", path, [], request.body, False, time.time()))
        await send(head(answer.status, answer.headers))
        async for chunk in answer.chunks():
            await send(part(chunk))
        await answer.aclose()
        await send(part(more=False))


def test_the_ledger_is_the_bill_of_a_provider_that_caches(tmp_path: Path) -> None:
    rates = {"input": 2_000, "output": 10_000, "read": 200, "write": 2_500, "long": 4_000}
    names = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost",
             "cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr")  # fmt: skip
    prices = {MODEL: {name: rate / 1e9 for name, rate in zip(names, rates.values(), strict=True)}}
    provider, path = Caching(), tmp_path / "spend.sqlite"
    with serving(provider) as upstream:
        config = configuration(upstream, f"sqlite:{path}", budgets=[{"usd": 1000}], prices=prices)
        config["model_list"][0]["model_info"] = {"transport": "http", "cache_profile": "anthropic"}  # type: ignore[index]
        with fleet(tmp_path / "proxy", config) as proxy:
            asyncio.run(conversations(proxy.url))
    entries, spent, reserved = read(f"sqlite:{path}", at=time.time())
    ledgers = provider.upstream.ledgers
    (bill,) = [ledger for name, ledger in ledgers.items() if name != ANONYMOUS]
    assert bill.read > 0
    assert sum(e.read_tokens for e in entries) == bill.read
    assert sum(e.write_5m_tokens for e in entries) == bill.write_5m
    assert sum(e.plain_tokens for e in entries) == bill.plain
    assert sum(e.output_tokens for e in entries) == bill.output
    cost = (
        bill.read * rates["read"] + bill.write_5m * rates["write"] + bill.write_1h * rates["long"]
        + bill.plain * rates["input"] + bill.output * rates["output"]
    )  # fmt: skip
    assert (spent, reserved) == (cost, 0)
    assert sum(e.cost for e in entries) == cost


async def conversations(url: str) -> None:
    """Eight that grow at once, of six turns each."""
    async with aiohttp.ClientSession() as session:

        async def talk(number: int) -> None:
            messages = [{"role": "system", "content": f"You are number {number}. " + "Be helpful. " * 600}]
            for turn in range(6):
                messages.append({"role": "user", "content": f"Question {turn}: " + "why? " * 40})
                body = {"model": MODEL, "max_tokens": 30, "messages": messages, "stream": turn % 2 == 0}
                headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
                async with session.post(
                    f"{url}/v1/chat/completions", data=orjson.dumps(body), headers=headers
                ) as answer:
                    text = await answer.read()
                    assert answer.status == 200, text
                messages.append({"role": "assistant", "content": f"Because {turn}. " * 20})

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(talk(number))


def test_a_locked_store_fails_no_request_and_all_spend_is_there_afterwards(tmp_path: Path) -> None:
    provider, path = Provider(), tmp_path / "spend.sqlite"
    with serving(provider) as upstream:
        config = configuration(upstream, f"sqlite:{path}", budgets=[{"usd": 1000}])
        with fleet(tmp_path / "proxy", config) as proxy:
            crowd = Crowd()
            asyncio.run(crowd.send(proxy.url, 10, 2))
            with sqlite3.connect(path, isolation_level=None) as other:
                other.execute("BEGIN IMMEDIATE")
                asyncio.run(crowd.send(proxy.url, 10, 5))
                other.execute("ROLLBACK")
            other.close()
            spool = path.with_name("spend.sqlite.spool")
            until(lambda: "the store answers again" in proxy.log.read_text())
            asyncio.run(crowd.send(proxy.url, 10, 2))
        assert list(spool.glob("*.spool")) == []
    entries, spent, reserved = read(f"sqlite:{path}", at=time.time())
    assert set(crowd.statuses) == {200}, crowd.texts
    assert sorted(entry.exchange_id for entry in entries) == sorted(crowd.complete)
    assert sum(entry.cost for entry in entries) == spent == provider.nanos
    assert (reserved, any(entry.estimated for entry in entries)) == (0, False)

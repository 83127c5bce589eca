"""One worker over SQLite, as a process of its own: budgets to the last nano-dollar, and kills at any moment.

The sizes are those of the environment variables STRATIFORM_LOAD (clients x calls) and STRATIFORM_KILLS; `make load` has
them as large as they are meant to be.
"""

import asyncio
import os
import random
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import aiohttp
import orjson
import pytest
from starlette.types import Receive, Send

from proxy.core.providers import ANTHROPIC
from proxy.core.request.tokens import bytes_over_four
from proxy.ports import Call, Deployment, Transport
from proxy.storage.port import Charge, LedgerEntry, SpendQuery
from proxy.storage.sqlite import SqliteStore
from proxy.upstream.embedded import ANONYMOUS, EmbeddedUpstream
from tests.doubles import serving
from tests.e2e.fleet import INPUT, KEY, MODEL, OUTPUT, TEAM, Crowd, Provider, configuration, fleet, until
from tests.receiver import Received, Receiver, head, part

pytestmark = pytest.mark.slow

CLIENTS, CALLS = (int(part) for part in os.environ.get("STRATIFORM_LOAD", "50x10").split("x"))
KILLS = int(os.environ.get("STRATIFORM_KILLS", "5"))
ACCOUNT = "b:total:-:total"
# The most that one call of the crowd is reserved at: half its bytes as tokens, the template, and its output.
RESERVATION = (1000 // 2 + 30) * INPUT + 20 * OUTPUT


def read(path: Path, *, at: float) -> tuple[list[LedgerEntry], int, int]:
    """The ledger; and of the team's budget what is spent and reserved, after reservations that expire by ``at``."""

    async def main() -> tuple[list[LedgerEntry], int, int]:
        store = await SqliteStore.open(path)
        try:
            await store.expire(at)
            entries: list[LedgerEntry] = []
            while page := await store.entries(
                entries[-1].at if entries else 0.0, 1e12, entries[-1].exchange_id if entries else ""
            ):
                entries += page
            found = await store.balance(TEAM, Charge(ACCOUNT, 0), at)
            (row,) = await store.spend(SpendQuery(0.0, 1e12))
            assert row.cost == sum(entry.cost for entry in entries)
            return entries, found.spent, found.reserved
        finally:
            await store.aclose()

    return asyncio.run(main())


def test_a_hard_budget_holds_under_load_to_the_last_nano_dollar(tmp_path: Path) -> None:
    average = (50 + 49) * 5 // 4 * INPUT + 20 * OUTPUT
    limit = CLIENTS * CALLS // 2 * average
    provider, path = Provider(), tmp_path / "spend.sqlite"
    with serving(provider) as upstream:
        config = configuration(upstream, f"sqlite:{path}", budgets=[{"usd": limit / 1e9}])
        with fleet(tmp_path / "proxy", config) as proxy:
            crowd = Crowd()
            asyncio.run(crowd.send(proxy.url, CLIENTS, CALLS))
            # While some ran, others were refused for what those had reserved: demand lasts until nobody runs.
            alone = Crowd()
            asyncio.run(alone.send(proxy.url, 1, CLIENTS * CALLS, stop=lambda: alone.refused > 0))
    entries, spent, reserved = read(path, at=time.time())
    assert set(crowd.statuses) == {200, 429}, crowd.texts
    assert (crowd.broken, alone.refused) == (0, 1)
    assert sum(entry.cost for entry in entries) == spent == provider.nanos
    assert reserved == 0
    assert limit - RESERVATION < spent <= limit
    assert sorted(entry.exchange_id for entry in entries) == sorted(crowd.complete + alone.complete)
    assert not any(entry.estimated for entry in entries)


def test_no_kill_loses_a_settlement_counts_one_twice_or_leaves_a_budget_stuck(tmp_path: Path) -> None:
    provider, path, chance = Provider(delay_s=0.01), tmp_path / "spend.sqlite", random.Random(4)
    crowd = Crowd()
    with serving(provider) as upstream:
        config = configuration(upstream, f"sqlite:{path}", budgets=[{"usd": 1000}])
        for _ in range(KILLS):
            with fleet(tmp_path / "proxy", config) as proxy:
                killed, enough = threading.Event(), len(crowd.complete) + chance.randrange(1, 40)

                def kill(process=proxy.process, killed=killed, enough=enough) -> None:
                    until(lambda: len(crowd.complete) >= enough)
                    time.sleep(chance.uniform(0.0, 0.05))
                    process.kill()
                    process.wait()
                    killed.set()

                killer = threading.Thread(target=kill)
                killer.start()
                asyncio.run(crowd.send(proxy.url, 20, 100_000, stop=killed.is_set))
                killer.join()
    entries, spent, reserved = read(path, at=time.time() + 3600)
    names = [entry.exchange_id for entry in entries]
    settled = {entry.exchange_id for entry in entries if not entry.estimated}
    assert set(crowd.statuses) == {200}, crowd.texts
    assert len(names) == len(set(names))
    assert not set(crowd.complete) - settled, "an answer that a client has is in the ledger, with what it cost"
    assert len(crowd.complete) >= KILLS
    assert crowd.broken > 0, "kills were felt"
    assert reserved == 0, "no budget is stuck"
    assert spent == sum(entry.cost for entry in entries) >= provider.nanos


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
    entries, spent, reserved = read(path, at=time.time())
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
    entries, spent, reserved = read(path, at=time.time())
    assert set(crowd.statuses) == {200}, crowd.texts
    assert sorted(entry.exchange_id for entry in entries) == sorted(crowd.complete)
    assert sum(entry.cost for entry in entries) == spent == provider.nanos
    assert (reserved, any(entry.estimated for entry in entries)) == (0, False)

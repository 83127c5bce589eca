"""A short outage of a Redis ends under load: reservations are made again, what was put off is written, limits hold."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import aiohttp
import pytest

from proxy.core.money.bound import InputBound
from proxy.storage.port import LedgerEntry
from proxy.storage.redis import RedisStore
from tests.doubles import serving
from tests.e2e.fleet import INPUT, KEY, MODEL, OUTPUT, WAIT_S, Fleet, Provider, configuration, fleet, metric, until
from tests.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.slow

FREE_KEY = "sk-fleet-blue"
# The most that is reserved for one call, whose bodies are shorter than this.
RESERVATION = InputBound(text=400).tokens(None) * INPUT + 20 * OUTPUT


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as server:
        yield server


BODY = {"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": "word " * 40}]}


class Crowd:
    """Clients of two teams, one with a limit and one without, that ask until they are told to stop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.statuses: dict[str, Counter[int]] = {KEY: Counter(), FREE_KEY: Counter()}
        self.complete: list[str] = []

    def __enter__(self) -> "Crowd":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=WAIT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(self._client(session, KEY if number % 2 else FREE_KEY))

    async def _client(self, session: aiohttp.ClientSession, key: str) -> None:
        headers = {"authorization": f"Bearer {key}"}
        while not self._stop.is_set():
            async with session.post(
                f"{self._url}/v1/chat/completions", data=json.dumps(BODY), headers=headers
            ) as answer:
                await answer.read()
                self.statuses[key][answer.status] += 1
                if answer.status == 200:
                    self.complete.append(answer.headers["x-stratiform-id"])
            await asyncio.sleep(0.01)


def alone(url: str, crowd: Crowd) -> int:
    """The status of one more call of the team with the limit."""
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(BODY).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            answer.read()
            crowd.complete.append(answer.headers["x-stratiform-id"])
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def ledger(url: str) -> list[LedgerEntry]:
    """The entries, those of reservations among them that nobody settled."""

    async def main() -> list[LedgerEntry]:
        store = RedisStore(url, timeout_s=10.0)
        try:
            await store.expire(time.time() + 3600)
            entries: list[LedgerEntry] = []
            while page := await store.entries(
                entries[-1].at if entries else 0.0, 1e12, entries[-1].exchange_id if entries else ""
            ):
                entries += page
            return entries
        finally:
            await store.aclose()

    return asyncio.run(main())


def config(provider: str, store: str, usd: float, policy: str) -> dict[str, object]:
    made = configuration(provider, store, budgets=[{"usd": usd}])
    ours = made["stratiform"]
    assert isinstance(ours, dict)
    ours["budgets"] = {"on_store_error": policy}
    ours["teams"].append({"name": "blue", "keys": [FREE_KEY]})
    return made


def outage(redis: RedisServer, proxy: Fleet) -> None:
    """Redis is killed for a second. Returns when every worker has caught up, while the load goes on."""
    redis.kill()
    time.sleep(1.0)
    redis.start()
    until(lambda: metric(proxy.url, "store_away") == 0)
    until(lambda: metric(proxy.url, "spool_pending") == 0)


@pytest.mark.parametrize("policy", ["allow", "deny"])
def test_a_short_outage_ends_under_load(tmp_path: Path, redis: RedisServer, policy: Literal["allow", "deny"]) -> None:
    limit = 30 * RESERVATION if policy == "allow" else 1000 * 10**9
    provider = Provider(delay_s=0.02)
    with serving(provider) as upstream:
        made = config(upstream, redis.url, limit / 1e9, policy)
        with fleet(tmp_path / "proxy", made, workers=2) as proxy:
            with Crowd(proxy.url) as crowd:
                limited = crowd.statuses[KEY]
                until(lambda: limited[429 if policy == "allow" else 200] > 10)
                outage(redis, proxy)
                # With "allow" the limit was passed while the store was away, and holds from here on; with "deny" the
                # team was refused while the store was away, and is served from here on.
                seen = limited[429 if policy == "allow" else 200]
                until(lambda: limited[429 if policy == "allow" else 200] > seen + 30)
            if policy == "allow":
                # Nobody else runs: who is refused once is refused for what was spent, and for nothing that is reserved.
                until(lambda: alone(proxy.url, crowd) == 429)
                assert {alone(proxy.url, crowd) for _ in range(10)} == {429}
    entries = ledger(redis.url)
    assert set(crowd.statuses[FREE_KEY]) == {200}, "a team without a limit is served throughout"
    assert set(limited) <= ({200, 429} if policy == "allow" else {200, 503})
    assert sorted(entry.exchange_id for entry in entries) == sorted(crowd.complete)
    assert not any(entry.estimated for entry in entries)
    assert sum(entry.cost for entry in entries) == provider.nanos

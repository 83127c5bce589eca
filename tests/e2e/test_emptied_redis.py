"""Redis is emptied under load, with two workers: what was spent is not free again, and an operator can mend it."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.cli import main
from proxy.core.money.bound import InputBound
from proxy.storage.port import LedgerEntry, SpendQuery
from proxy.storage.redis import RedisStore
from tests.doubles import serving
from tests.e2e.fleet import INPUT, OUTPUT, WAIT_S, Crowd, Fleet, Provider, configuration, fleet, metric, until
from tests.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.slow

CLIENTS = 10
# The most that is reserved for one call of the crowd, whose bodies are shorter than this.
RESERVATION = InputBound(text=950).tokens(None) * INPUT + 20 * OUTPUT
LIMIT = 40 * RESERVATION


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis", "--appendfsync", "everysec") as server:
        yield server


@contextmanager
def crowd(proxy: Fleet) -> Iterator[Crowd]:
    """Clients that ask one behind the other, until the end of the block; behind it no call is under way."""
    one, stop = Crowd(), threading.Event()
    work = one.send(proxy.url, CLIENTS, 100_000, stop=stop.is_set)
    thread = threading.Thread(target=lambda: asyncio.run(work))
    thread.start()
    try:
        yield one
    finally:
        stop.set()
        thread.join()


def ready(proxy: Fleet) -> tuple[int, str]:
    """What a probe is told."""
    try:
        with urllib.request.urlopen(f"{proxy.url}/readyz", timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def lost(proxy: Fleet) -> int:
    """How many workers have noticed the loss: each writes one line, and refuses from then on what it must refuse."""
    return proxy.log.read_text().count("the store was emptied or exchanged")


def booked(url: str) -> tuple[int, list[LedgerEntry]]:
    """What the report says, of all teams, and the entries of the ledger."""

    async def work() -> tuple[int, list[LedgerEntry]]:
        store = RedisStore(url, timeout_s=10.0)
        try:
            entries = await store.entries(0.0, 1e12, limit=100_000)
            return sum(row.cost for row in await store.spend(SpendQuery(0.0, 1e12))), list(entries)
        finally:
            await store.aclose()

    return asyncio.run(work())


def test_a_budget_that_denies_grants_nothing_anew(
    tmp_path: Path, redis: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = Provider()
    with serving(provider) as upstream:
        config = configuration(upstream, redis.url, budgets=[{"usd": LIMIT / 1e9}])
        config["stratiform"]["budgets"] = {"on_store_error": "deny"}  # type: ignore[index]
        with fleet(tmp_path / "proxy", config, workers=2) as proxy:
            with crowd(proxy) as clients:
                until(lambda: clients.refused > 20)
                assert redis.call("FLUSHALL") == "+OK"
                until(lambda: clients.statuses[503] > 20)
            before = provider.nanos
            assert before <= LIMIT, "what was spent is spent"
            assert "emptied or exchanged" in clients.texts[503]
            # A worker that no client asks notices it, too: whichever answers from here on knows.
            until(lambda: lost(proxy) == 2)
            assert metric(proxy.url, "store_exchanged") == 1
            status, text = ready(proxy)
            assert (status, "emptied or exchanged" in text) == (503, True), text
            where = ["--config", str(tmp_path / "proxy" / "config.yaml"), "--json"]
            assert main(["budgets", "set-spent", "red/total", str((LIMIT - 5 * RESERVATION) / 1e9), *where]) == 0
            assert json.loads(capsys.readouterr().out)["spent_before"] < LIMIT / 2e9
            with crowd(proxy) as clients:
                until(lambda: clients.refused > 20)
            assert 0 < provider.nanos - before <= 5 * RESERVATION, "the restored counter holds"
            assert clients.statuses[503] == 0
            assert main(["budgets", "accept-store", *where]) == 0
            assert len(json.loads(capsys.readouterr().out)["accepted"]) == 1
            # The largest of the workers' values: each of them has heard that the store was accepted.
            until(lambda: metric(proxy.url, "store_exchanged") == 0)
            until(lambda: ready(proxy)[0] == 200)
            assert lost(proxy) == 2, "each worker says it once"


def test_a_budget_that_allows_goes_on_and_says_so(tmp_path: Path, redis: RedisServer) -> None:
    provider = Provider()
    with serving(provider) as upstream:
        config = configuration(upstream, redis.url, budgets=[{"usd": LIMIT / 1e9}])
        with fleet(tmp_path / "proxy", config, workers=2) as proxy:
            with crowd(proxy) as clients:
                until(lambda: clients.refused > 20)
                before = provider.nanos
                assert redis.call("FLUSHALL") == "+OK"
                with crowd(proxy) as later:
                    until(lambda: later.refused > 20)
            # What was under way when Redis was emptied is booked in front of that, behind it, or on both sides.
            assert 0 < provider.nanos - before <= LIMIT + CLIENTS * RESERVATION
            until(lambda: metric(proxy.url, "spool_pending") == 0)
            reported, entries = booked(redis.url)
            names = [entry.exchange_id for entry in entries]
            assert len(names) == len(set(names))
            assert later.complete
            assert not set(later.complete) - set(names), "what began behind it is booked"
            assert not set(names) - set(clients.complete + later.complete)
            assert reported == sum(entry.cost for entry in entries) <= provider.nanos
            assert set(clients.statuses + later.statuses) == {200, 429}
            until(lambda: lost(proxy) == 2)
            assert metric(proxy.url, "store_exchanged") == 1
            status, text = ready(proxy)
            assert (status, "emptied or exchanged" in text) == (200, True), text

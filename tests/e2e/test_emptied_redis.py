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
from proxy.core.money.budget import most_prompt_tokens
from proxy.storage.port import SpendQuery
from proxy.storage.redis import RedisStore
from proxy.testing import serving
from tests.e2e.fleet import INPUT, OUTPUT, Crowd, Fleet, Provider, configuration, fleet, metric, until
from tests.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.slow

# The most that is reserved for one call of the crowd, whose bodies are shorter than this.
# Each answer comes from one of two workers: so many of them come from both.
_ASKED = 12
RESERVATION = most_prompt_tokens(950, None, 1.0) * INPUT + 20 * OUTPUT
LIMIT = 40 * RESERVATION


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis", "--appendfsync", "everysec") as server:
        yield server


@contextmanager
def crowd(proxy: Fleet) -> Iterator[Crowd]:
    """Ten clients that ask one behind the other, until the end of the block."""
    one, stop = Crowd(), threading.Event()
    work = one.send(proxy.url, 10, 100_000, stop=stop.is_set)
    thread = threading.Thread(target=lambda: asyncio.run(work))
    thread.start()
    try:
        yield one
    finally:
        stop.set()
        thread.join(60)


def ready(proxy: Fleet) -> tuple[int, str]:
    """What a probe is told."""
    try:
        with urllib.request.urlopen(f"{proxy.url}/readyz", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def spend(url: str) -> int:
    """What the report says, of all teams."""

    async def work() -> int:
        store = RedisStore(url, timeout_s=10.0)
        try:
            return sum(row.cost for row in await store.spend(SpendQuery(0.0, 1e12)))
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
            until(lambda: metric(proxy.url, "store_exchanged") == 1)
            until(lambda: all("emptied or exchanged" in ready(proxy)[1] for _ in range(_ASKED)))
            assert ready(proxy)[0] == 503
            assert proxy.log.read_text().count("the store was emptied or exchanged") == 2, "a line for each worker"
            where = ["--config", str(tmp_path / "proxy" / "config.yaml"), "--json"]
            assert main(["budgets", "set-spent", "red/total", str((LIMIT - 5 * RESERVATION) / 1e9), *where]) == 0
            assert json.loads(capsys.readouterr().out)["spent_before"] < LIMIT / 2e9
            with crowd(proxy) as clients:
                until(lambda: clients.refused > 20)
            assert 0 < provider.nanos - before <= 5 * RESERVATION, "the restored counter holds"
            assert clients.statuses[503] == 0
            assert main(["budgets", "accept-store", *where]) == 0
            assert len(json.loads(capsys.readouterr().out)["accepted"]) == 1
            until(lambda: metric(proxy.url, "store_exchanged") == 0)
            until(lambda: all(ready(proxy)[0] == 200 for _ in range(_ASKED)))


def test_a_budget_that_allows_goes_on_and_says_so(tmp_path: Path, redis: RedisServer) -> None:
    provider = Provider()
    with serving(provider) as upstream:
        config = configuration(upstream, redis.url, budgets=[{"usd": LIMIT / 1e9}])
        with fleet(tmp_path / "proxy", config, workers=2) as proxy:
            with crowd(proxy) as clients:
                until(lambda: clients.refused > 20)
                before = provider.nanos
                assert redis.call("FLUSHALL") == "+OK"
                # An answer that a client reads now may have been booked before Redis was emptied.
                until(lambda: spend(redis.url) > 0)
                refused = clients.refused
                until(lambda: clients.refused > refused + 20)
            assert provider.nanos - before <= LIMIT
            until(lambda: spend(redis.url) == provider.nanos - before)
            assert set(clients.statuses) == {200, 429}
            until(lambda: metric(proxy.url, "store_exchanged") == 1)
            until(lambda: all("emptied or exchanged" in ready(proxy)[1] for _ in range(_ASKED)))
            assert ready(proxy)[0] == 200
            assert "the store was emptied or exchanged" in proxy.log.read_text()

"""Workers are killed while the store is away, and proxies are ended while nothing can be written: every call that the
provider saw is in the ledger afterwards, once.

STRATIFORM_KILLS is how many kills there are; `make load` has as many as there are meant to be.
"""

import asyncio
import json
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson
import pytest
from starlette.types import Receive, Send

from proxy.storage.port import Charge, LedgerEntry, Store
from proxy.storage.sqlite import SqliteStore
from tests.contract.stores import redis_store
from tests.damage import fill, small_disk
from tests.doubles import serving
from tests.e2e.fleet import KEY, MODEL, TEAM, WAIT_S, Fleet, Provider, configuration, fleet, metric, until
from tests.receiver import Received
from tests.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("STRATIFORM_KILLS", "5"))
ACCOUNT = "b:total:-:total"


class Witness(Provider):
    """A provider that knows which calls it saw: each names its user."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(delay_s)
        self.seen: Counter[str] = Counter()

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        self.seen[orjson.loads(request.body)["user"]] += 1
        await super().answer(request, send, receive)


@dataclass
class Clients:
    """What clients were told: the users whose answer was complete, and how others ended."""

    complete: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    async def send(self, url: str, clients: int, calls: int = 100_000, name: str = "u") -> None:
        """So many at once, until it is over."""
        timeout = aiohttp.ClientTimeout(total=WAIT_S)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:

            async def client(number: int) -> None:
                for call in range(calls):
                    if self.is_over.is_set():
                        return
                    await self._call(session, url, f"{name}{number}-{call}", is_stream=call % 2 == 0)

            async with asyncio.TaskGroup() as group:
                for number in range(clients):
                    group.create_task(client(number))

    async def _call(self, session: aiohttp.ClientSession, url: str, user: str, *, is_stream: bool) -> None:
        body = {"model": MODEL, "user": user, "max_tokens": 20, "messages": [{"role": "user", "content": "word " * 60}]}
        if is_stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"authorization": f"Bearer {KEY}"}
        try:
            async with session.post(f"{url}/v1/chat/completions", data=json.dumps(body), headers=headers) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            self.broken += 1
            await asyncio.sleep(0.01)
            return
        self.statuses[answer.status] += 1
        if answer.status == 200 and (not is_stream or text.endswith(b"data: [DONE]\n\n")):
            self.complete.append(user)


async def ledger_of(store: Store) -> tuple[list[LedgerEntry], int, int]:
    """All entries, and what is spent and reserved, after all reservations have expired."""
    at = time.time() + 3600
    await store.expire(at)
    entries: list[LedgerEntry] = []
    while page := await store.entries(
        entries[-1].at if entries else 0.0, 1e12, entries[-1].exchange_id if entries else ""
    ):
        entries += page
    balance = await store.balance(TEAM, Charge(ACCOUNT, 0), at)
    return entries, balance.spent, balance.reserved


def ledger_in_redis(url: str) -> tuple[list[LedgerEntry], int, int]:
    async def main() -> tuple[list[LedgerEntry], int, int]:
        async with redis_store(url) as store:
            return await ledger_of(store)

    return asyncio.run(main())


def ledger_in_file(path: Path) -> tuple[list[LedgerEntry], int, int]:
    async def main() -> tuple[list[LedgerEntry], int, int]:
        store = await SqliteStore.open(path)
        try:
            return await ledger_of(store)
        finally:
            await store.aclose()

    return asyncio.run(main())


def check(provider: Witness, clients: Clients, entries: list[LedgerEntry], spent: int, reserved: int) -> None:
    """Every call that the provider saw is booked, once; and one whose client has its answer, as what it did cost."""
    booked = Counter(entry.user for entry in entries)
    settled = {entry.user for entry in entries if not entry.estimated}
    assert not [user for user, count in provider.seen.items() if count > booked[user]], "the provider saw it"
    assert set(booked.values()) <= {1}
    assert not set(clients.complete) - settled, "an answer that a client has is booked with what it did cost"
    assert {entry.ending for entry in entries if entry.estimated} <= {"lost"}
    assert (spent, reserved) == (sum(entry.cost for entry in entries), 0)
    assert spent >= provider.nanos


def both_workers(proxy: Fleet) -> list[int]:
    """The two processes that serve, once there are two again."""
    found: list[int] = []

    def are_there() -> bool:
        found[:] = proxy.workers()
        return len(found) == 2

    until(are_there)
    return found


def kill(process: int) -> None:
    """As a crash does. It may have ended by itself."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def test_workers_that_are_killed_while_the_store_is_away_leave_nothing_unbooked(tmp_path: Path) -> None:
    provider, clients, chance = Witness(delay_s=0.02), Clients(), random.Random(7)

    def disturb(proxy: Fleet, redis: RedisServer) -> None:
        try:
            until(lambda: len(clients.complete) > 50)
            redis.kill()
            for _ in range(KILLS):
                before = len(clients.complete)
                until(lambda before=before: len(clients.complete) > before + chance.randrange(5))
                time.sleep(chance.uniform(0.0, 0.05))
                kill(chance.choice(both_workers(proxy)))
            # The whole proxy dies; what its workers leave is for the next one.
            for process in [proxy.process.pid, *both_workers(proxy)]:
                kill(process)
        finally:
            clients.is_over.set()

    with redis_server(tmp_path / "redis") as redis, serving(provider) as upstream:
        config = configuration(upstream, redis.url, budgets=[{"usd": 1000}], spool=str(tmp_path / "spool"))
        with fleet(tmp_path / "proxy", config, workers=2) as proxy:
            disturber = threading.Thread(target=disturb, args=(proxy, redis))
            disturber.start()
            asyncio.run(clients.send(proxy.url, 20))
            disturber.join()
        redis.start()
        with fleet(tmp_path / "again", config, workers=2) as proxy:
            until(lambda: metric(proxy.url, "spool_pending") == 0)
        entries, spent, reserved = ledger_in_redis(redis.url)
    check(provider, clients, entries, spent, reserved)
    assert clients.broken > 0, "kills were felt"
    assert set(clients.statuses) == {200}
    assert any(entry.estimated for entry in entries), "some were in flight"
    print(f"{KILLS + 1} kills: {len(provider.seen)} seen, {len(entries)} booked, "
          f"{sum(entry.estimated for entry in entries)} of them from their intent")  # fmt: skip


@pytest.mark.parametrize("takes_it", [True, False], ids=["a second folder", "nothing"])
def test_what_a_full_disk_does_not_take_is_written_elsewhere_at_the_end_or_named(
    tmp_path: Path, takes_it: bool
) -> None:
    provider, clients = Witness(delay_s=0.0), Clients()
    with small_disk(tmp_path / "disk", 8192) as disk, serving(provider) as upstream:
        path, second = disk / "spend.sqlite", (tmp_path if takes_it else disk) / "second"
        config = configuration(upstream, f"sqlite:{path}", budgets=[{"usd": 1000}], spool_fallback=str(second))
        with fleet(tmp_path / "proxy", config) as proxy:
            ballast = fill(disk)
            asyncio.run(clients.send(proxy.url, 10, calls=40))
        assert set(clients.statuses) == {200}
        assert len(clients.complete) == 400
        ballast.unlink()
        log = proxy.log.read_text()
        files = list(second.glob("*.spool")) if second.is_dir() else []
        if takes_it:
            assert [file.stat().st_mode & 0o777 for file in files] == [0o600]
            assert f"waits in {files[0]}" in log
            assert "lost" not in log
        else:
            assert not files
        with fleet(tmp_path / "again", config) as proxy:
            until(lambda: metric(proxy.url, "spool_pending") == 0)
        entries, spent, reserved = ledger_in_file(path)
        lost = set(re.findall(r"(sx-[0-9a-f]+) of red \$0\.\d+", log))
        if takes_it:
            assert not list(second.iterdir())
            check(provider, clients, entries, spent, reserved)
            assert spent == provider.nanos
        else:
            settled = {entry.exchange_id for entry in entries if not entry.estimated}
            assert len(settled) + len(lost) == 400, "each is in the ledger or named"
            assert len(lost) > 100

"""Workers that are killed while prompts are read anew and answers are streamed: no exchange is lost, and no request
goes without its prompts."""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from starlette.types import Receive, Send

from tests.doubles import serving
from tests.e2e.fleet import Crowd, Provider, configuration, fleet, metric, until
from tests.e2e.test_ledger import read as ledger
from tests.e2e.test_workers import meanwhile, read
from tests.prompt_files import prompt, write_prompts
from tests.receiver import Received
from tests.redis_server import redis_server

pytestmark = pytest.mark.slow

KILLS = 6
PROMPTS = {"folders": ["./texts"], "shipped": False, "use": ["rules", "reminder"], "look_s": 0.1}
WINDOW = {
    "profile": "mine",
    "profiles": {"mine": {"capability": "chat", "window_tokens": 4_000, "output_tokens": 100, "margin_tokens": 0}},
}


class Prompted(Provider):
    """The provider that keeps its own bill, and which prompts it has seen."""

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__(delay_s)
        self.systems: set[str] = set()
        self.odd: list[object] = []

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        first, last = (orjson.loads(request.body)["messages"][place] for place in (0, -1))
        if first["role"] != "system" or not last["content"].endswith("\n\nBe brief."):
            self.odd.append((first["role"], last["content"][-20:]))
        self.systems.add(first["content"])
        await super().answer(request, send, receive)


def write(folder: Path, number: int) -> None:
    """The prompts of the number."""
    write_prompts(folder, {"rules": prompt(f"Rules {number}.", id="rules", position="system")})


def rewriting(folder: Path) -> Callable[[threading.Event], None]:
    """Changes the prompts until it is told to stop."""

    def work(stop: threading.Event) -> None:
        number = 0
        while not stop.wait(0.3):
            number += 1
            write(folder, number)
        write(folder, 0)

    return work


def prepared(folder: Path) -> Path:
    texts = folder / "texts"
    write(texts, 0)
    write_prompts(texts, {"reminder": prompt("Be brief.", id="reminder", position="user_suffix")})
    return texts


def test_workers_that_are_killed_lose_no_ledger_entry_and_no_prompt(tmp_path: Path) -> None:
    provider, chance, texts = Prompted(delay_s=0.01), random.Random(4), prepared(tmp_path / "proxy")
    with serving(provider) as upstream, redis_server(tmp_path / "redis", "--appendfsync", "everysec") as redis:
        config = configuration(upstream, redis.url, budgets=[{"usd": 1000}], prompts=PROMPTS, window=WINDOW)
        with fleet(tmp_path / "proxy", config, workers=2) as proxy:
            crowd, over = Crowd(), threading.Event()

            def kill(_: threading.Event) -> None:
                try:
                    # All connections may lead to one worker, and the other one's kills are felt by nobody.
                    for number in range(1, 50 * KILLS):
                        time.sleep(chance.uniform(0.1, 0.5))
                        until(lambda: len(proxy.workers()) == 2)
                        proxy.kill_worker(chance.randrange(2))
                        if number >= KILLS and crowd.broken and len(provider.systems) > 2:
                            return
                finally:
                    over.set()

            with meanwhile(rewriting(texts)), meanwhile(kill):
                asyncio.run(crowd.send(proxy.url, 8, 1_000_000, stop=over.is_set))
            until(lambda: metric(proxy.url, "in_flight") == 0)
        entries, spent, reserved = read(redis.url, at=time.time() + 3600)
    names = [entry.exchange_id for entry in entries]
    settled = {entry.exchange_id for entry in entries if not entry.estimated}
    assert set(crowd.statuses) == {200}, crowd.texts
    assert provider.odd == []
    assert len(provider.systems) > 2, "prompts were read anew"
    assert crowd.broken > 0, "kills were felt"
    assert len(names) == len(set(names))
    assert not set(crowd.complete) - settled, "an answer that a client has is in the ledger, with what it cost"
    assert reserved == 0
    assert spent == sum(entry.cost for entry in entries) >= provider.nanos


def test_a_process_that_is_killed_and_starts_again_has_the_same_prompts_and_its_whole_ledger(tmp_path: Path) -> None:
    provider, path = Prompted(delay_s=0.01), tmp_path / "spend.sqlite"
    prepared(tmp_path / "proxy")
    crowd = Crowd()
    with serving(provider) as upstream:
        config = configuration(upstream, f"sqlite:{path}", budgets=[{"usd": 1000}], prompts=PROMPTS, window=WINDOW)
        for _ in range(1):
            with fleet(tmp_path / "proxy", config) as proxy:
                killed, enough = threading.Event(), len(crowd.complete) + 20

                def kill(proxy=proxy, killed=killed, enough=enough) -> None:  # type: ignore[no-untyped-def]
                    until(lambda: len(crowd.complete) >= enough)
                    proxy.process.kill()
                    proxy.process.wait()
                    killed.set()

                killer = threading.Thread(target=kill)
                killer.start()
                asyncio.run(crowd.send(proxy.url, 8, 100_000, stop=killed.is_set))
                killer.join()
        with fleet(tmp_path / "proxy", config) as proxy:
            asyncio.run(crowd.send(proxy.url, 1, 1))
    entries, _, reserved = ledger(path, at=time.time() + 3600)
    settled = {entry.exchange_id for entry in entries if not entry.estimated}
    assert reserved == 0
    assert not set(crowd.complete) - settled
    assert (provider.odd, provider.systems) == ([], {"Rules 0."})
    assert set(crowd.statuses) == {200}

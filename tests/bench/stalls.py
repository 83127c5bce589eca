"""How long one request holds up the others: hard bodies go to the proxy while a process of its own probes it.

Three figures: the most CPU that a hard body of one megabyte costs, the longest that ``/healthz`` takes meanwhile, and
the 99th percentile of small requests while the worst bodies of twenty megabytes are planned.
"""

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp

from tests.bench.load import HEADERS
from tests.bench.probe import Probes
from tests.bench.provider import MODEL
from tests.bench.servers import ROOT, Server
from tests.security.bodies import CHATS, WIRE, Make

SMALL_BYTES, VAST_BYTES = 1_000_000, 20_000_000
_REST_S = 1.0
# Of those that are hard to read, what is still the hardest at twenty megabytes.
_VAST_WIRE = ("halves-in-capitals", "half-a-character-beside-quotes", "name-of-escaped-quotes", "prompts")
_QUICK_VAST = ("small-messages", "tools", "escapes", "documents")


@dataclass(frozen=True, slots=True)
class Cost:
    """One hard body. ``cpu_s`` is the proxy's CPU from sending it to its answer, that of probes not taken off;
    ``began`` and ``ended`` are seconds of ``time.monotonic``."""

    name: str
    size: int
    cpu_s: float
    began: float
    ended: float
    status: int


@dataclass(frozen=True, slots=True)
class Stalls:
    """All that was measured: hard bodies and probes of either size, and probes while nothing else was going on."""

    small: Sequence[Cost]
    vast: Sequence[Cost]
    probes: Probes
    rest: tuple[float, float]

    def worst(self) -> Cost:
        """The body of one megabyte that cost the most."""
        return max(self.small, key=lambda cost: cost.cpu_s)

    def idle(self) -> list[float]:
        """Small requests and health checks while nothing else was going on."""
        return self._within([self.rest], chats=True)

    def health(self) -> list[float]:
        """Health checks while bodies of one megabyte were served."""
        return self._within([(cost.began, cost.ended) for cost in self.small], chats=False)

    def requests(self) -> list[float]:
        """Small requests and health checks while bodies of twenty megabytes were served."""
        return self._within([(cost.began, cost.ended) for cost in self.vast], chats=True)

    def _within(self, spans: Sequence[tuple[float, float]], *, chats: bool) -> list[float]:
        probes = [*self.probes.health, *(self.probes.chats if chats else ())]
        # A probe that was sent before may have been held up, too.
        return sorted(ms for at, ms in probes if any(at <= end and at + ms / 1000 >= start for start, end in spans))


def quantile(values: Sequence[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def measure(server: Server, quick: bool, done: Callable[[str], None]) -> Stalls:
    """Send every hard body, one after another, while the proxy is probed."""
    small = {**WIRE, **CHATS}
    vast = {**{name: WIRE[name] for name in _VAST_WIRE}, **CHATS}
    if quick:
        small = dict(itertools.islice(small.items(), 0, None, 4))
        vast = {name: CHATS[name] for name in _QUICK_VAST}
    with _probing(server.url) as seen:
        time.sleep(_REST_S)
        began = time.monotonic()
        time.sleep(2 * _REST_S)
        rest = (began, time.monotonic())
        first = asyncio.run(_send(server, small, SMALL_BYTES, done))
        second = asyncio.run(_send(server, vast, VAST_BYTES, done))
    return Stalls(first, second, seen[0], rest)


async def _send(server: Server, makes: dict[str, Make], size: int, done: Callable[[str], None]) -> list[Cost]:
    found = []
    async with aiohttp.ClientSession() as client:
        for name, make in makes.items():
            body = make(size).replace(b'"model":"m"', b'"model":"%s"' % MODEL.encode(), 1)
            began, before = time.monotonic(), server.cpu_s()
            async with client.post(server.url + "/v1/chat/completions", data=body, headers=HEADERS) as answer:
                await answer.read()
            ended = time.monotonic()
            found.append(Cost(name, len(body), server.cpu_s() - before, began, ended, answer.status))
            done(f"{name}, {len(body) / 1e6:.1f} MB")
            await asyncio.sleep(0.1)
    return found


@contextmanager
def _probing(url: str) -> Iterator[list[Probes]]:
    """Probes from a process of their own; what they saw is there when the block ends."""
    command = [sys.executable, "-m", "tests.bench.probe", url]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    seen: list[Probes] = []
    try:
        yield seen
        out, _ = process.communicate(b"", timeout=30)
        seen.append(Probes.of(out))
    finally:
        process.kill()
        process.wait()

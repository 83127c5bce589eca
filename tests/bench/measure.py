"""What is measured: cases, and the interleaved rounds over the targets."""

import asyncio
import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.bench import bodies, load
from tests.bench.bodies import Session
from tests.bench.load import Timing
from tests.bench.servers import Server

DIRECT = "direct"
SETTLE_S = 0.05  # what a server still does after its last answer belongs to that answer


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the result: which sessions, which answer, how many sessions side by side."""

    workload: str
    size: int
    stream: bool
    at_once: int
    sessions: Callable[[int], list[Session]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One target in one round of one case. ``cpu_ms`` is a request's share; 0 for the direct way. ``reasons``: what
    the proxy's plans were for, warm-up included."""

    cpu_ms: float
    timings: Sequence[Timing]
    firsts: Sequence[Timing]
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Result:
    """All samples of a case, by target, one a round."""

    case: Case
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    body_bytes: int = 0


def cases(quick: bool, traces: Path | None) -> list[Case]:
    """The rows: agents at three sizes (JSON, SSE, under load), file chats, and recorded sessions if there are any."""
    rows: list[Case] = []
    for size, sessions, count in ((1_000, 4, 5), (50_000, 3, 8), (400_000, 2, 8)):
        rows.append(_made("agent", bodies.agent, size, sessions, count))
        rows.append(_made("agent", bodies.agent, size, 4, 2 if quick else 4, stream=True, at_once=4))
    for size in (50_000, 400_000):
        rows.append(_made("files", bodies.files, size, 2, 8))
    for size in (50_000, 400_000) if traces else ():
        assert traces is not None
        for workload, grows in (("recorded", True), ("re-laid", False)):
            found = bodies.recorded(traces, size, count=8, most=3, grows=grows)
            if found:
                rows.append(_recorded(workload, found, size))
    for size in (1_000, 50_000, 400_000):
        rows.append(_made("load", bodies.agent, size, 8, 3, at_once=8))
    return rows


def _made(
    workload: str,
    make: Callable[[int, int, int, bool], Session],
    size: int,
    sessions: int,
    count: int,
    stream: bool = False,
    at_once: int = 1,
) -> Case:
    # The answer's form is part of the seed, so that no two cases share a session.
    def build(turn: int) -> list[Session]:
        base = (turn * 100 + at_once * 10) * 2 + stream
        return [make(base * 10 + n, size, count, stream) for n in range(sessions)]

    return Case(workload, size, stream, at_once, build)


def _recorded(workload: str, found: Sequence[bodies.Recorded], size: int) -> Case:
    return Case(workload, size, False, 1, lambda turn: [stretch.session(turn) for stretch in found])


async def measure(
    rows: Sequence[Case],
    provider: Server,
    servers: dict[str, Server],
    rounds: int,
    budget_s: float,
    done: Callable[[int, int, Case], None],
) -> list[Result]:
    """Round after round over all cases and targets, each round starting with another target; no round is begun that
    the budget would not see the end of (but two always are)."""
    results = [Result(case) for case in rows]
    urls = {DIRECT: provider.url, **{name: server.url for name, server in servers.items()}}
    started = time.perf_counter()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:
        for turn in range(rounds):
            began = time.perf_counter()
            order = list(urls)
            order = order[turn % len(order) :] + order[: turn % len(order)]
            for result in results:
                sessions = result.case.sessions(turn)
                result.body_bytes = int(statistics.median(len(b) for s in sessions for b in s.bodies[s.warm :]))
                for name in order:
                    sample = await _sample(client, urls[name], servers.get(name), sessions, result.case)
                    result.samples.setdefault(name, []).append(sample)
                done(turn, rounds, result.case)
            took = time.perf_counter() - began
            if turn >= 1 and time.perf_counter() - started + took > budget_s:
                break
    return results


async def _sample(
    client: aiohttp.ClientSession, url: str, server: Server | None, sessions: Sequence[Session], case: Case
) -> Sample:
    reasons = await load.reasons(client, url) if server else Counter[str]()
    warm = await load.run(client, url, [s.bodies[: s.warm] for s in sessions], case.stream, case.at_once)
    await asyncio.sleep(SETTLE_S)
    gc.collect()
    gc.disable()
    before = server.cpu_s() if server else 0.0
    try:
        grown = await load.run(client, url, [s.bodies[s.warm :] for s in sessions], case.stream, case.at_once)
    finally:
        gc.enable()
    await asyncio.sleep(SETTLE_S)
    cpu_s = server.cpu_s() - before if server else 0.0
    timings = [timing for session in grown for timing in session]
    if server:
        reasons = await load.reasons(client, url) - reasons
    return Sample(cpu_s * 1000 / len(timings), timings, [session[0] for session in warm], reasons)

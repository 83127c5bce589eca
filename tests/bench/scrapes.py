"""What scraping ten thousand series costs the requests that come meanwhile: ``python -m tests.bench.scrapes``.

A proxy with that many series serves a steady stream of small requests, once with scrapes and once without, five times
in turn. The figure is the median of the differences of the 99th percentiles. On a machine that does much else,
percentiles say how busy that is; so the processor's time of a scrape is told, too, and that of its largest piece, which
is the longest that a request waits for it.
"""

import argparse
import asyncio
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp
import orjson

from proxy.core.money.prices import Cost
from proxy.telemetry.metrics import Metrics
from tests.bench.servers import Server, running
from tests.services import free_port

SERIES = 10_000
_MODELS, _TEAMS = 40, 40
_PAUSE_S = 0.02


def config(upstream: str) -> str:
    """Many models and many teams: a series for each pair of them, in each metric of money."""
    models = [
        {
            "model_name": f"model-{number}",
            "litellm_params": {"model": "openai/bench", "api_base": f"{upstream}/v1", "api_key": "sk-bench"},
            "model_info": {"transport": "http", "cache_profile": "anthropic"},
        }
        for number in range(_MODELS)
    ]
    prices = {"input_cost_per_token": 3e-6, "output_cost_per_token": 1.5e-5, "cache_read_input_token_cost": 3e-7}
    ours = {
        "store": "memory",
        "teams": [{"name": f"team-{number}", "keys": [f"sk-team-{number}"]} for number in range(_TEAMS)],
        "prices": {f"model-{number}": prices for number in range(_MODELS)},
    }
    return orjson.dumps({"model_list": models, "stratiform": ours}).decode()


async def ask(client: aiohttp.ClientSession, url: str, model: int, team: int) -> float:
    """One small request; how long it took, in seconds."""
    messages = [
        {"role": "system", "content": "Rule: answer in at most ten words. " * 200},
        {"role": "user", "content": f"Question {model} of {team}?"},
    ]
    body = orjson.dumps({"model": f"model-{model}", "messages": messages, "max_tokens": 50})
    headers = {"authorization": f"Bearer sk-team-{team}", "content-type": "application/json"}
    began = time.perf_counter()
    async with client.post(f"{url}/v1/chat/completions", data=body, headers=headers) as answer:
        await answer.read()
        assert answer.status == 200
    return time.perf_counter() - began


async def series(client: aiohttp.ClientSession, url: str) -> tuple[int, float]:
    """How many series a scrape brings, and how long it takes."""
    began = time.perf_counter()
    async with client.get(f"{url}/metrics") as answer:
        text = await answer.text()
    return sum(not line.startswith("#") for line in text.splitlines()), time.perf_counter() - began


def filled(least: int = SERIES) -> Metrics:
    """Metrics with so many series at least, as many models, teams and clients make them."""
    teams = [f"team-{number}" for number in range(least // 40)]
    metrics = Metrics(teams=teams)
    for model, team in itertools.product(range(20), teams):
        metrics.saved(f"model-{model}", team, "reported", 1.0)
        metrics.saved(f"model-{model}", team, "shadow", -1.0)
        for client in ("aider", "cline", "opencode", ""):
            metrics.cost(f"model-{model}", team, Cost(1.0, 0.5), 2.0, client)
    return metrics


def pieces_s(metrics: Metrics) -> tuple[float, float]:
    """The processor's time that writing all series takes, and that of the largest piece."""
    times, text = list[float](), metrics.pieces()
    while True:
        began = time.thread_time()
        if next(text, None) is None:
            return sum(times), max(times)
        times.append(time.thread_time() - began)


async def p99_s(client: aiohttp.ClientSession, url: str, seconds: float, every_s: float | None) -> float:
    """The 99th percentile of a steady stream of requests, with a scrape so often; None: without."""
    took: list[float] = []

    async def scrape(pause_s: float) -> None:
        while True:
            await series(client, url)
            await asyncio.sleep(pause_s)

    scraping = asyncio.ensure_future(scrape(every_s)) if every_s is not None else None
    ends, waiting = time.perf_counter() + seconds, set[asyncio.Future[float]]()
    number = 0
    while time.perf_counter() < ends:
        waiting.add(asyncio.ensure_future(ask(client, url, number % _MODELS, number % 7)))
        number += 1
        await asyncio.sleep(_PAUSE_S)
    took = list(await asyncio.gather(*waiting))
    if scraping is not None:
        scraping.cancel()
    return statistics.quantiles(took, n=100)[98]


async def measure(
    url: str, pairs: int, seconds: float, every_s: float
) -> tuple[int, float, Sequence[tuple[float, float]]]:
    """The number of series, how long a scrape takes, and the percentiles of each pair: without and with scrapes."""
    async with aiohttp.ClientSession() as client:
        for model in range(_MODELS):
            await asyncio.gather(*(ask(client, url, model, team) for team in range(_TEAMS)))
        count, scrape_s = await series(client, url)
        found = []
        for pair in range(pairs):
            turns = [bool(pair % 2), not pair % 2]
            by_turn = {turn: await p99_s(client, url, seconds, every_s if turn else None) for turn in turns}
            found.append((by_turn[False], by_turn[True]))
        return count, scrape_s, found


@contextlib.contextmanager
def _proxy() -> Iterator[Server]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stratiform-scrapes-")))
        port = free_port()
        provider = [sys.executable, "-m", "tests.bench.provider", "--port", str(port)]
        upstream = stack.enter_context(running("provider", provider, port, folder))
        (folder / "config.yaml").write_text(config(upstream.url))
        script, port = str(Path(sys.executable).with_name("stratiform")), free_port()
        command = [script, "serve", "--config", str(folder / "config.yaml"), "--port", str(port)]
        yield stack.enter_context(running("proxy", command, port, folder))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scrapes", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each of the two runs of a pair takes")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two scrapes")
    args = parser.parse_args()
    whole_s, largest_s = min(pieces_s(filled()) for _ in range(3))
    print(
        f"processor's time of {SERIES} series: {1000 * whole_s:.0f} ms, of the largest piece {1000 * largest_s:.1f} ms"
    )
    with _proxy() as proxy:
        count, scrape_s, found = asyncio.run(measure(proxy.url, args.pairs, args.seconds, args.every))
    print(f"{count} series, a scrape of them takes {1000 * scrape_s:.0f} ms")
    for without, scraped in found:
        print(f"p99 {1000 * without:.1f} ms without scrapes, {1000 * scraped:.1f} ms with them")
    print(f"median difference: {1000 * statistics.median(after - before for before, after in found):+.1f} ms")


if __name__ == "__main__":
    main()

"""What ten open pages cost the requests that come meanwhile: ``python -m tests.bench.open_pages``.

A proxy with ten thousand sessions serves small requests one after another, while ten pages are open, and while none is.
For each request the processor's time of the event loop's thread is counted from its arrival to its end: on a machine
that does nothing else, that is what the request waits for, whoever uses it; on a busy one it is the same. The figure is
the median of the differences of the 99th percentiles of five pairs of runs. Each request changes what the pages show.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
from starlette.types import ASGIApp, Message

from proxy.cli.serve import run_on_loop, settle_heap
from tests.browser.crowd import LONG, fill
from tests.pages import CONFIG, MASTER, Browser, visited

PAGES = ("", "sessions", "sessions?team=team-1", "sessions?q=aider", f"sessions/{LONG}")
_STREAMS = 10
_PAUSE_S = 0.02


async def ask(app: ASGIApp, number: int) -> float:
    """A small request of a new conversation; the processor's time until it has its answer, in seconds."""
    talk = [{"role": "system", "content": "Rule: be brief. " * 200}, {"role": "user", "content": f"Question {number}?"}]
    body = orjson.dumps({"model": "m", "messages": talk, "max_tokens": 20})
    headers = [(b"host", b"127.0.0.1:4000"), (b"authorization", f"Bearer {MASTER}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "raw_path": b"/v1/chat/completions",
             "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "scheme": "http"}  # fmt: skip
    sent: list[Message] = []

    async def receive() -> Message:
        if sent:
            await asyncio.Event().wait()  # the client stays
        sent.append({})
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        sent.append(message)

    began = time.thread_time()
    await app(scope, receive, send)
    took = time.thread_time() - began
    assert sent[1]["status"] == 200
    return took


async def run(browser: Browser, requests: int, *, has_pages: bool) -> list[float]:
    """The seconds that each request took, with ten open pages or with none."""
    ui, found = browser.assembly.ui, list[float]()
    assert ui is not None
    live = ui.live

    async def look(number: int) -> None:
        async for _ in live.follow(PAGES[number % len(PAGES)], ""):
            pass

    looking = [asyncio.ensure_future(look(number)) for number in range(_STREAMS if has_pages else 0)]
    await asyncio.sleep(0)
    assert live.streams == len(looking)
    for number in range(requests):
        found.append(await ask(browser.app, number))
        await asyncio.sleep(_PAUSE_S)
    for one in looking:
        one.cancel()
    await asyncio.gather(*looking, return_exceptions=True)
    assert not live.streams
    return found


async def measure(pairs: int, requests: int) -> Sequence[tuple[float, float]]:
    """The 99th percentiles of each pair: without and with open pages."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stratiform-pages-")))
        store = folder / "store.sqlite"
        text = f"{CONFIG}general_settings: {{master_key: {MASTER}}}\nstratiform: {{store: 'sqlite:{store}'}}\n"
        browser = await stack.enter_async_context(visited(folder, text))
        await fill(store, time.time())
        await run(browser, requests // 4, has_pages=True)
        settle_heap()
        found = []
        for pair in range(pairs):
            turns = [bool(pair % 2), not pair % 2]
            by_turn = {turn: await run(browser, requests, has_pages=turn) for turn in turns}
            before, after = (statistics.quantiles(by_turn[turn], n=100)[98] for turn in (False, True))
            found.append((before, after))
        return found


def paired(pairs: int, requests: int) -> Sequence[tuple[float, float]]:
    """The same, on the event loop that the proxy runs on."""
    found = list[tuple[float, float]]()

    async def work() -> None:
        found.extend(await measure(pairs, requests))

    run_on_loop(work())
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.open_pages", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=400, help="in each of the two runs of a pair")
    args = parser.parse_args()
    found = paired(args.pairs, args.requests)
    for before, after in found:
        print(f"p99 {1000 * before:.2f} ms without pages, {1000 * after:.2f} ms with {_STREAMS} of them open")
    print(f"median difference: {1000 * statistics.median(after - before for before, after in found):+.2f} ms")


if __name__ == "__main__":
    main()

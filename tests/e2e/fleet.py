"""``stratiform serve`` as a process with its workers; a provider that keeps its own bill; a crowd of clients.

Everything is real: processes, sockets, the store. What clients were told, what the ledger says and what the provider
billed are kept apart, so that they can be compared.
"""

import asyncio
import json
import os
import re
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path

import aiohttp
import orjson
import yaml
from starlette.types import Receive, Send

from tests.receiver import Received, Receiver, head, part
from tests.services import STRATIFORM
from tests.waiting import MOST_S, until

MODEL = "gpt-metered"
CLAUDE = "claude-sonnet-4-5"
KEY = "sk-fleet-red"
TEAM = "red"
# Nano-dollars a token, in and out; whole numbers, so that sums can be compared to the last of them.
INPUT, OUTPUT = 2_000, 10_000
_PRICES = {"input_cost_per_token": INPUT / 1e9, "output_cost_per_token": OUTPUT / 1e9}


class Provider(Receiver):
    """Answers at once, streamed or not, and bills by the bytes of the request. ``delay_s`` is spent before the answer's
    first byte, and again before its end."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.nanos = 0
        self.served = 0
        self.delay_s = delay_s
        self._lock = threading.Lock()

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        asked = orjson.loads(request.body)
        prompt, output = len(asked["messages"][-1]["content"]) // 4, asked["max_tokens"]
        await asyncio.sleep(self.delay_s)
        with self._lock:
            self.nanos += prompt * INPUT + output * OUTPUT
            self.served += 1
        usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        await self._reply(send, usage, is_stream=bool(asked.get("stream")))

    async def _reply(self, send: Send, usage: dict[str, int], *, is_stream: bool) -> None:
        start = head(200, [("content-type", "text/event-stream" if is_stream else "application/json")])
        common = {"id": "chatcmpl-1", "created": 1, "model": MODEL}
        if is_stream:
            events = [
                {**common, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Yes."}}]},
                {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
                {**common, "choices": [], "usage": usage},
            ]
            await send(start)
            for event in events:
                await send(part(b"data: %s\n\n" % orjson.dumps(event)))
            await asyncio.sleep(self.delay_s)
            await send(part(b"data: [DONE]\n\n", more=False))
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
        await send(start)
        body = {**common, "object": "chat.completion", "choices": [choice], "usage": usage}
        await send(part(orjson.dumps(body), more=False))


@dataclass
class Fleet:
    """A proxy that runs: the process above, and its workers."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children]


def configuration(provider: str, store: str, **ours: object) -> dict[str, object]:
    """A configuration: one metered model, one team with its key."""
    team = {"name": TEAM, "keys": [KEY], **({"budgets": ours.pop("budgets")} if "budgets" in ours else {})}
    return {
        "model_list": [
            {
                "model_name": MODEL,
                "litellm_params": {"model": f"openai/{MODEL}", "api_base": f"{provider}/v1", "api_key": "none"},
                "model_info": {"transport": "http", "mode": "passthrough"},
            }
        ],
        "stratiform": {
            "port": 0, "store": store, "prices": {MODEL: _PRICES}, "teams": [team], "log_level": "info", **ours,
        },
    }  # fmt: skip


def claude_configuration(provider: str, store: str, **ours: object) -> dict[str, object]:
    """The same with a model whose requests are planned."""
    found = configuration(provider, store, **ours)
    found["model_list"] = [
        {
            "model_name": CLAUDE,
            "litellm_params": {"model": f"openai/{CLAUDE}", "api_base": f"{provider}/v1", "api_key": "none"},
            "model_info": {"transport": "http", "cache_profile": "anthropic"},
        }
    ]
    return found


@contextmanager
def fleet(folder: Path, config: dict[str, object], workers: int = 1, *, wait_s: float = MOST_S) -> Iterator[Fleet]:
    """Serve a configuration with so many workers. ``wait_s``: how long it may take to end."""
    folder.mkdir(parents=True, exist_ok=True)
    file, log = folder / "config.yaml", folder / "log"
    file.write_text(yaml.safe_dump(config))
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*STRATIFORM, "serve", "--config", str(file), "--workers", str(workers)],
            stdout=sink,
            stderr=sink,
            env=environment,
            cwd=Path(__file__).parents[2],
        )
    try:
        until(lambda: log.read_text().count("/v1, mode") >= workers, lambda: _alive(process, log))
        url = log.read_text().partition("/v1, mode")[0].rpartition(" ")[2]
        yield Fleet(url, process, log)
    finally:
        process.terminate()
        try:
            process.wait(wait_s)
        finally:
            process.kill()
            process.wait()


def _alive(process: subprocess.Popen[bytes], log: Path) -> None:
    assert process.poll() is None, log.read_text()


@dataclass
class Crowd:
    """What clients were told: the exchanges whose answer was complete, and how the others ended."""

    complete: list[str] = field(default_factory=list)
    refused: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    texts: dict[int, str] = field(default_factory=dict)

    async def send(
        self, url: str, clients: int, calls: int, *, output: int = 20, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """So many clients at once, each with so many calls one behind the other."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=MOST_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

            async def client(number: int) -> None:
                for call in range(calls):
                    if stop():
                        return
                    await self._call(session, url, number, call, output)

            async with asyncio.TaskGroup() as group:
                for number in range(clients):
                    group.create_task(client(number))

    async def _call(self, session: aiohttp.ClientSession, url: str, number: int, call: int, output: int) -> None:
        is_stream = (number + call) % 2 == 0
        content = "word " * (50 + (number * 7 + call * 13) % 100)
        body = {"model": MODEL, "max_tokens": output, "messages": [{"role": "user", "content": content}]}
        if is_stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            async with session.post(
                f"{url}/v1/chat/completions", data=json.dumps(body), headers={"authorization": f"Bearer {KEY}"}
            ) as answer:
                text = await answer.read()
                status, name = answer.status, answer.headers.get("x-stratiform-id", "")
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            self.broken += 1
            return
        self.statuses[status] += 1
        self.texts.setdefault(status, text.decode(errors="replace")[:500])
        if status == 429:
            self.refused += 1
        elif status == 200 and (not is_stream or text.endswith(b"data: [DONE]\n\n")):
            self.complete.append(name)


def chat(url: str, body: Mapping[str, object], key: str = KEY) -> HTTPResponse:
    """The answer to a chat request, to be read in a ``with``. Raises HTTPError."""
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    found: HTTPResponse = urllib.request.urlopen(request, timeout=MOST_S)
    return found


def metric(url: str, name: str) -> float:
    """The sum of a metric's series, of all workers."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=MOST_S) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if re.match(rf"stratiform_{name}[{{ ]", line)]
    assert found, name
    return sum(float(line.rpartition(" ")[2]) for line in found)

"""The load client: sends sessions to one target and times every answer."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from tests.bench.provider import CHUNKS

_EVENT = re.compile(rb"^data: ", re.MULTILINE)
_REASON = re.compile(r'^stratiform_plan_reasons_total\{.*?reason="([^"]+)".*?\} (\S+)$', re.MULTILINE)
HEADERS = {"authorization": "Bearer sk-bench", "content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds from sending a request to the first byte of the answer's body, and to its last."""

    first_s: float
    total_s: float


async def post(client: aiohttp.ClientSession, url: str, body: bytes, stream: bool) -> Timing:
    """Send one request and read the answer. Raises RuntimeError where it is not the provider's answer."""
    began = time.perf_counter()
    async with client.post(url + "/v1/chat/completions", data=body, headers=HEADERS) as answer:
        first = await answer.content.readany()
        first_s = time.perf_counter() - began
        text = first + await answer.content.read()
        total_s = time.perf_counter() - began
    if answer.status != 200:
        raise RuntimeError(f"{url} answered {answer.status}: {text[:500]!r}")
    if stream and len(_EVENT.findall(text)) < CHUNKS + 1:
        raise RuntimeError(f"{url} lost chunks of the stream: {len(_EVENT.findall(text))} of {CHUNKS}")
    if not stream and len(text) < 2000:
        raise RuntimeError(f"{url} answered {len(text)} bytes")
    return Timing(first_s, total_s)


async def reasons(client: aiohttp.ClientSession, url: str) -> Counter[str]:
    """How many plans the proxy made so far for which reason; empty where the target is no Stratiform."""
    async with client.get(url + "/metrics") as answer:
        found = Counter[str]()
        for reason, count in _REASON.findall(await answer.text() if answer.status == 200 else ""):
            found[reason] += int(float(count))
        return found


async def run(
    client: aiohttp.ClientSession, url: str, sessions: Sequence[Sequence[bytes]], stream: bool, at_once: int
) -> list[list[Timing]]:
    """Send all sessions, ``at_once`` side by side, each one's requests in order. Returns the timings by session."""
    timings: list[list[Timing]] = [[] for _ in sessions]
    waiting = iter(zip(sessions, timings, strict=True))

    async def worker() -> None:
        for bodies, into in waiting:
            for body in bodies:
                into.append(await post(client, url, body, stream))

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(worker())
    return timings

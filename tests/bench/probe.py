"""A process of its own that asks the proxy small things all the time, and says how long each took.

``python -m tests.bench.probe URL``: probes until its standard input ends, then prints a line of JSON: milliseconds of
each ``GET /healthz`` and of each small chat, with the second in which it was sent.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import orjson

from tests.bench import bodies
from tests.bench.load import post

_PAUSE_S = 0.01
_CHATS = 20


@dataclass(frozen=True, slots=True)
class Probes:
    """What was seen: when each probe was sent (``time.monotonic``) and how many milliseconds it took."""

    health: Sequence[tuple[float, float]]
    chats: Sequence[tuple[float, float]]

    @staticmethod
    def of(line: bytes) -> "Probes":
        """What the process printed."""
        found = orjson.loads(line)
        return Probes([tuple(p) for p in found["health"]], [tuple(p) for p in found["chats"]])


async def probe(url: str) -> Probes:
    """Probe until standard input ends."""
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    health: list[tuple[float, float]] = []
    chats: list[tuple[float, float]] = []
    sessions = [bodies.agent(seed, 1_000, _CHATS, stream=False).bodies for seed in range(4)]
    number = 0
    async with aiohttp.ClientSession() as client:
        while not over.done():
            began = time.monotonic()
            async with client.get(url + "/healthz") as answer:
                await answer.read()
            health.append((began, (time.monotonic() - began) * 1000))
            session = sessions[number % len(sessions)]
            began = time.monotonic()
            await post(client, url, session[number // len(sessions) % len(session)], stream=False)
            chats.append((began, (time.monotonic() - began) * 1000))
            number += 1
            await asyncio.sleep(_PAUSE_S)
    return Probes(health, chats)


def main() -> None:
    """Probe and print."""
    found = asyncio.run(probe(sys.argv[1]))
    sys.stdout.buffer.write(orjson.dumps({"health": found.health, "chats": found.chats}) + b"\n")


if __name__ == "__main__":
    main()

"""What counting a full context window costs: ``python -m tests.bench.window_counts [--tokens 100000]``.

The conversation is somewhat longer than its window, so that its tokens are counted and its oldest turns go. Times are
those until the request is fitted, the least and the median of several: "new" where the proxy sees the conversation for
the first time, "grown" where one turn has come since. "read" is the planner's reading, which comes first in any case,
"hold-up" the longest time that the event loop had no turn meanwhile.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.app.fixed_texts import load_window_texts
from proxy.aside import Aside
from proxy.core.providers import OPENAI
from proxy.core.request.reader import RequestReader
from proxy.core.request.tokens import quick
from proxy.core.window.profile import Capability, CapabilityProfile
from proxy.engine.ports import ComposedRequest
from proxy.planning.model_facts import ModelFacts
from proxy.planning.reading_ahead import read_ahead
from proxy.planning.tokenizers import local_encode
from proxy.planning.windows import ContextWindows
from proxy.ports import Deployment, Transport

_REPEATS = 7
_GROWN = 20
_TURN_CHARS = 4_000
_CHARS_PER_TOKEN = 4.1
_DEPLOYMENT = Deployment("m", "m", Transport.EMBEDDED, OPENAI)
_TICK_S = 0.0005


@dataclass(frozen=True, slots=True)
class Fitting:
    """Times of one request, in ms."""

    read: float
    fitted: float
    held_up: float


def conversation(tokens: int, salt: str) -> list[dict[str, str]]:
    """Turns of source code, about so many tokens."""
    folder = Path(__file__).parents[2] / "proxy" / "core"
    code = "\n".join(path.read_text("utf-8") for path in sorted(folder.rglob("*.py")))
    messages = [{"role": "system", "content": f"You edit files. {salt}"}]
    for start in range(0, int(tokens * _CHARS_PER_TOKEN), _TURN_CHARS):
        role = "assistant" if len(messages) % 2 == 0 else "user"
        text = code[start % len(code) :][:_TURN_CHARS]
        messages.append({"role": role, "content": f"{salt} {start}\n{text}"})
    return [*messages, {"role": "user", "content": f"{salt} now?"}]


class Clients:
    """One proxy's memory, and the requests that come to it."""

    def __init__(self, window_tokens: int) -> None:
        encode = local_encode()
        self._aside = Aside()
        self._reader = RequestReader(quick(encode), (), 1 << 28)
        self._windows = ContextWindows(self._reader, encode, ModelFacts(), load_window_texts(), self._aside)
        self._profile = CapabilityProfile("chat", Capability.CHAT, window_tokens=window_tokens)

    async def fit(self, messages: Sequence[dict[str, str]]) -> Fitting:
        """Fit one request."""
        body = json.dumps({"model": "m", "messages": messages}).encode()
        parsed = self._reader.parse(body)
        began = time.perf_counter()
        await read_ahead(self._reader, self._aside, parsed)
        self._reader.read(parsed)
        read = time.perf_counter()
        watch = asyncio.create_task(_longest_hold_up())
        await asyncio.sleep(0)
        start = time.perf_counter()
        await self._windows.fitted(parsed, ComposedRequest(profile=self._profile), _DEPLOYMENT)
        end = time.perf_counter()
        await asyncio.sleep(0)
        watch.cancel()
        held_up = await asyncio.gather(watch)
        return Fitting((read - began) * 1e3, (end - start) * 1e3, held_up[0] * 1e3)


async def _longest_hold_up() -> float:
    """How long the event loop was late at most, until this is cancelled."""
    longest, before = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(_TICK_S)
            now = time.perf_counter()
            longest, before = max(longest, now - before - _TICK_S), now
    except asyncio.CancelledError:
        return max(longest, time.perf_counter() - before - _TICK_S)


async def _measured(tokens: int) -> dict[str, list[Fitting]]:
    found: dict[str, list[Fitting]] = {"new": [], "grown": []}
    clients = Clients(tokens)
    for number in range(_REPEATS):
        messages = conversation(int(tokens * 1.05), f"session {number}")
        found["new"].append(await clients.fit(messages))
    for number in range(_GROWN):
        answer = conversation(1_000, f"turn {number}")[1]["content"]
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"and {number}?"}]
        found["grown"].append(await clients.fit(messages))
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.window_counts")
    parser.add_argument("--tokens", type=int, default=100_000)
    args = parser.parse_args()
    for name, times in asyncio.run(_measured(args.tokens)).items():
        columns: dict[str, Callable[[Fitting], float]] = {
            "read": lambda each: each.read,
            "fitted": lambda each: each.fitted,
            "hold-up": lambda each: each.held_up,
        }
        cells = []
        for column, pick in columns.items():
            values = [pick(each) for each in times]
            cells.append(f"{column} {min(values):7.2f} / {statistics.median(values):7.2f} ms")
        print(f"{name:6} " + "   ".join(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What diagnosis adds to an appending request: ``python -m tests.bench.diagnosis``, by the processor's time.

Conversations that append go through the engine and the planner, in this process, to an upstream in memory: with
diagnosis, and with a planner that leaves it out. A server's own work (HTTP, TLS) comes on top of either.
"""

import asyncio
import statistics
import sys
import time

import orjson

from proxy.core.planner.planner import TierPlanner
from proxy.core.providers import ANTHROPIC
from proxy.core.request.tokens import bytes_over_four, quick
from proxy.planning.planner_port import Planning
from proxy.plugins import build_plugin_manager, recognisers
from tests.doubles import ModelList, make_deployment
from tests.unit.engine.parts import JSON, Bench, MemoryClient, answers

_ROUNDS, _TALKS, _TURNS = 9, 5, 40
_ANSWER = orjson.dumps(
    {
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
        "usage": {"prompt_tokens": 9000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8900}},
    }
)


def main() -> int:
    """Print the processor's time of a request with diagnosis and without it, and the share: the medians of requests,
    because each of them may be held up by what else the machine does."""
    found = [pair for _ in range(_ROUNDS) for pair in asyncio.run(_round())]
    share = statistics.median(with_us / without_us for with_us, without_us in found) - 1
    with_us, without_us = map(statistics.median, zip(*found, strict=True))
    print(f"a request takes {with_us:.0f} us with diagnosis, {without_us:.0f} us without: {share:+.1%}")
    return 0


async def _round() -> list[tuple[float, float]]:
    """The processor's time of each request in microseconds, with diagnosis and directly behind or before that without
    it."""
    benches, found = {True: _bench(diagnoses=True), False: _bench(diagnoses=False)}, list[tuple[float, float]]()
    bodies = [_body(talk, turn) for turn in range(_TURNS) for talk in range(_TALKS)]
    for number, body in enumerate(bodies):
        took_us = {}
        for diagnoses in (True, False) if number % 2 else (False, True):
            began = time.process_time()
            await benches[diagnoses].engine.chat(MemoryClient(body))
            took_us[diagnoses] = (time.process_time() - began) * 1e6
        found.append((took_us[True], took_us[False]))
    return found[_TALKS:]


def _bench(*, diagnoses: bool) -> Bench:
    planner = TierPlanner(quick(bytes_over_four), recognisers(build_plugin_manager()))
    if not diagnoses:
        planner._diagnosing.compare = lambda in_flight, *, is_own: None  # type: ignore[method-assign]
        planner._diagnosing.complete = lambda *told: None  # type: ignore[method-assign]
    models = ModelList({"m": make_deployment(name="m", model="m", profile=ANTHROPIC)})
    script = [answers(_ANSWER, headers=JSON) for _ in range(_TALKS * _TURNS)]
    return Bench(*script, models=models, planner=Planning(planner))


def _body(talk: int, turn: int) -> bytes:
    """The request of one turn of one conversation."""
    system = {"role": "system", "content": f"You are helper {talk}.\n" + "Keep the rules of the house.\n" * 300}
    tools = [{"type": "function", "function": {"name": f"tool_{n}", "parameters": {"n": n}}} for n in range(12)]
    messages: list[dict[str, str]] = [system]
    for number in range(turn + 1):
        messages.append({"role": "user", "content": f"question {number} of {talk}: " + "what is to be done? " * 20})
        messages.append({"role": "assistant", "content": f"answer {number} of {talk}: " + "this is to be done. " * 40})
    return orjson.dumps({"model": "m", "messages": messages[:-1], "tools": tools})


if __name__ == "__main__":
    sys.exit(main())

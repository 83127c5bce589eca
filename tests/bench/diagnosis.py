"""What diagnosis adds to an appending request: ``python -m tests.bench.diagnosis``, by the processor's time.

Conversations that append go through the engine and the planner, in this process, to an upstream in memory: with
diagnosis, and with a planner that leaves it out, in turn. A server's own work (HTTP, TLS) comes on top of either.
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

_ROUNDS, _TALKS, _TURNS = 9, 6, 40
_ANSWER = orjson.dumps(
    {
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
        "usage": {"prompt_tokens": 9000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8900}},
    }
)


def main() -> int:
    """Print the processor's time of a request with diagnosis and without it, and the share."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * _ROUNDS):
        diagnoses = bool((number + number // 2) % 2)
        found[diagnoses].append(_round(diagnoses=diagnoses))
    with_us, without_us = (statistics.median(found[one]) for one in (True, False))
    print(
        f"a request takes {with_us:.0f} us with diagnosis, {without_us:.0f} us without: {with_us / without_us - 1:+.1%}"
    )
    return 0


def _round(*, diagnoses: bool) -> float:
    """The processor's time of a request in microseconds."""
    planner = TierPlanner(quick(bytes_over_four), recognisers(build_plugin_manager()))
    if not diagnoses:
        planner._diagnosing.compare = lambda in_flight, *, is_own: None  # type: ignore[method-assign]
        planner._diagnosing.complete = lambda *told: None  # type: ignore[method-assign]
    models = ModelList({"m": make_deployment(name="m", model="m", profile=ANTHROPIC)})
    count = _TALKS * _TURNS
    bench = Bench(*[answers(_ANSWER, headers=JSON) for _ in range(count)], models=models, planner=Planning(planner))
    bodies = [_body(talk, turn) for turn in range(_TURNS) for talk in range(_TALKS)]

    async def work() -> float:
        for body in bodies[:_TALKS]:
            await bench.engine.chat(MemoryClient(body))
        began = time.process_time()
        for body in bodies[_TALKS:]:
            await bench.engine.chat(MemoryClient(body))
        return (time.process_time() - began) * 1e6 / (count - _TALKS)

    return asyncio.run(work())


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

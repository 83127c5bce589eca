"""``python -m tests.bench.panels``: what live panels cost in front of the upstream call, in processor time by step.

A long conversation with eight panels, of which two change with each request, goes through the assembler and the planner
as the proxy does it. Nothing is sent.
"""

import argparse
import statistics

import orjson

from proxy.app.fixed_texts import load_context_texts
from proxy.core.modes import Mode
from proxy.core.planner.planner import TierPlanner
from proxy.core.providers import ANTHROPIC
from proxy.core.request.parsed_body import parse_body
from proxy.core.request.route import Route
from proxy.core.request.tokens import quick
from proxy.planning.context_assembler import ContextAssembler
from proxy.planning.context_sessions import AssemblyOptions
from proxy.planning.tokenizers import local_encode
from proxy.plugins import build_plugin_manager, recognisers
from tests.bench.structured import Times

_PANELS = 8
_CHANGING = 2
_PANEL_LINES = 150
_WARM = 3
_ROUTE = Route("bench", "m", "m", ANTHROPIC, hint="s")


def request(turn: int) -> bytes:
    """The body of the request of a turn: all messages up to it, and the panels."""
    messages = [{"role": "system", "content": "You are a coding assistant. " * 200}]
    for past in range(turn):
        messages += [
            {"role": "user", "content": f"question {past} " * 40},
            {"role": "assistant", "content": f"answer {past} " * 120},
        ]
    messages.append({"role": "user", "content": f"question {turn} " * 40})
    panels = [_panel(number, turn if number < _CHANGING else 0) for number in range(_PANELS)]
    section = {"session": "s", "panels": panels, "detach": False}
    return orjson.dumps({"model": "m", "messages": messages, "stratiform": section})


def _panel(number: int, version: int) -> dict[str, str]:
    lines = [f"panel {number}, line {line}, version {version}" for line in range(_PANEL_LINES)]
    return {"id": f"p{number}", "kind": "file", "header": f"Panel {number}", "content": "\n".join(lines)}


def serve(body: bytes, turn: int, assembler: ContextAssembler, planner: TierPlanner, times: Times) -> int:
    """Serve one request; the number of bytes that are sent."""
    at = 1_800_000_000.0 + 30 * turn
    sent = times.take("parse", lambda: parse_body(body))
    read = times.take("read", lambda: assembler.read(sent))
    resolved = assembler.resolve(read, "bench", "")
    context = assembler.context(resolved, assembler.index(resolved))
    made = times.take("history, places, digests, tokens, assemble", lambda: assembler.assembled(resolved, context, at))
    assembler.remember(resolved, made)
    chat, arranger = made.chat, assembler.arranger
    placement = times.take("tiers", lambda: arranger.place(chat, ANTHROPIC))
    arranged = times.take("arrange", lambda: arranger.arrange(chat, placement, ANTHROPIC, Mode.TIER, None))
    plan = times.take("plan", lambda: planner.plan(arranged.body, _ROUTE, arranged.mode, at))
    plan = arranged.concluded(plan, Mode.TIER)
    planner.on_accepted(plan, at + 1)
    planner.on_completed(plan, None, at + 2)
    counted = plan.counted
    assert counted is not None
    times.take("count, behind the answer", lambda: counted(None))
    return len(plan.body)


def main() -> None:
    """Measure one session."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.panels", description="What live panels cost.")
    parser.add_argument("--turns", type=int, default=60, help="turns that the conversation has already (60)")
    parser.add_argument("--requests", type=int, default=20, help="requests that are measured (20)")
    arguments = parser.parse_args()
    encode, times = quick(local_encode()), Times()
    assembler = ContextAssembler(load_context_texts(), encode, None, AssemblyOptions())
    planner = TierPlanner(encode, recognisers(build_plugin_manager()), "economic")
    size = 0
    for number in range(_WARM + arguments.requests):
        turn = arguments.turns + number
        size = serve(request(turn), turn, assembler, planner, times)
    print(f"{_PANELS} panels, {2 * arguments.turns} messages and more, {size} bytes sent; ms of the processor, median")
    for step, taken in times.steps.items():
        print(f"{step:44}{statistics.median(taken[_WARM:]):8.2f}")


if __name__ == "__main__":
    main()

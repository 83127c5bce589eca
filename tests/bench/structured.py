"""What structured context costs: ``python -m tests.bench.structured [--files 2000] [--policy classic] [FOLDER]``.

A session over a repository of many files: the first request brings them all, each later one names them by digest, edits
one and selects six. Without a folder the files are the sources of the libraries that are installed. Times are those of
the processor, so that other work on the machine counts as little as possible.
"""

import argparse
import hashlib
import statistics
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson

from proxy.app.fixed_texts import load_context_texts
from proxy.core.modes import Mode
from proxy.core.money.prices import Price
from proxy.core.planner.planner import TierPlanner
from proxy.core.providers import ANTHROPIC
from proxy.core.request.parsed_body import parse_body
from proxy.core.request.route import Route
from proxy.core.request.tokens import quick
from proxy.planning.context_assembler import ContextAssembler
from proxy.planning.context_sessions import AssemblyOptions
from proxy.planning.tokenizers import local_encode
from proxy.plugins import build_plugin_manager, recognisers
from tests.bench.symbols import read
from tests.symbols import make_indexer

_TURNS = 30
_SELECTED = 6
_PRICE = Price.relative(ANTHROPIC.read, ANTHROPIC.write, ANTHROPIC.write_long)
_ROUTE = Route("bench", "m", "m", ANTHROPIC, hint="s")
T = TypeVar("T")


@dataclass(slots=True)
class Times:
    """Milliseconds of the processor by step, one for each request."""

    steps: dict[str, list[float]] = field(default_factory=dict)

    def take(self, step: str, work: Callable[[], T]) -> T:
        began_s = time.process_time()
        result = work()
        self.steps.setdefault(step, []).append((time.process_time() - began_s) * 1e3)
        return result


def request(texts: Mapping[str, str], turn: int, brought: set[str]) -> bytes:
    """The body of a request. What is not ``brought`` yet goes up in full."""
    paths = sorted(texts)
    selected = set(paths[turn : turn + _SELECTED])
    files: list[dict[str, Any]] = []
    for path in paths:
        digest = hashlib.sha256(texts[path].encode()).hexdigest()
        content = {"digest": digest} if digest in brought else {"content": texts[path]}
        brought.add(digest)
        files.append({"path": path, "selected": path in selected, **content})
    messages = [{"role": "system", "content": "You are a coding assistant. " * 200}]
    for past in range(turn):
        messages += [{"role": "user", "content": f"turn {past} " * 40}, {"role": "assistant", "content": "done"}]
    messages.append({"role": "user", "content": f"turn {turn} " * 40})
    section = {"session": "s", "files": files, "tree": True}
    return orjson.dumps({"model": "m", "messages": messages, "stratiform": section})


def measure(texts: dict[str, str], policy: str) -> None:
    """Runs the session and prints every figure."""
    encode, times = quick(local_encode()), Times()
    assembler = ContextAssembler(load_context_texts(), encode, make_indexer(), AssemblyOptions(policy))
    planner = TierPlanner(encode, recognisers(build_plugin_manager()), policy)
    brought, size = set[str](), 0
    for turn in range(_TURNS):
        edited = sorted(texts)[turn]
        texts[edited] += f"\n# turn {turn}\n"
        body = request(texts, turn, brought)
        began_s = time.process_time()
        size = one(assembler, planner, times, body, 60.0 * turn)
        if turn == 0:
            print(f"first request: {len(body) / 1e6:.1f} MB, {time.process_time() - began_s:.1f} s of processor time")
    print(f"{len(texts)} files; a later request has {len(body) / 1e3:.0f} kB, and {size / 1e3:.0f} kB are sent")
    medians = {step: statistics.median(taken[3:]) for step, taken in times.steps.items()}
    for step, median in medians.items():
        print(f"{step:>10}: {median:6.2f} ms")
    ahead = sum(median for step, median in medians.items() if step != "count")
    planned = medians["place"] + medians["plan"]
    print(f"in front of the upstream call: {ahead:.1f} ms, of which place and plan {planned:.1f} ms")


def one(assembler: ContextAssembler, planner: TierPlanner, times: Times, body: bytes, at: float) -> int:
    """Serve one request; the number of bytes that are sent."""
    sent = parse_body(body)
    request = times.take("read", lambda: assembler.read(sent))
    resolved = times.take("resolve", lambda: assembler.resolve(request, "bench", ""))
    assembler.give_aliases(resolved)
    symbols = times.take("index", lambda: assembler.index(resolved))
    context = assembler.context(resolved, symbols)
    made = times.take("assemble", lambda: assembler.assembled(resolved, context, at))
    assembler.remember(resolved, made)
    chat, arranger = made.chat, assembler.arranger
    placement = times.take("place", lambda: arranger.place(chat, ANTHROPIC))
    arranged = times.take("arrange", lambda: arranger.arrange(chat, placement, ANTHROPIC, Mode.TIER, _PRICE))
    plan = times.take("plan", lambda: planner.plan(arranged.body, _ROUTE, arranged.mode, at))
    plan = arranged.concluded(plan, Mode.TIER)
    planner.on_accepted(plan, at + 1)
    planner.on_completed(plan, None, at + 2)
    counted = plan.counted
    assert counted is not None
    times.take("count", lambda: counted(None))
    return len(plan.body)


def main() -> int:
    """Measure one folder."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.structured", description="What structured context costs."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path(sysconfig.get_paths()["purelib"]))
    parser.add_argument("--files", type=int, default=2_000, help="at most so many files")
    parser.add_argument("--policy", choices=("economic", "classic"), default="economic")
    args = parser.parse_args()
    texts = {file.path: file.text or "" for file in read(args.folder, args.files)}
    if not texts:
        print(f"no source files in {args.folder}", file=sys.stderr)
        return 1
    measure(texts, args.policy)
    return 0


if __name__ == "__main__":
    sys.exit(main())

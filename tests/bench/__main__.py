"""Run the benchmark: ``python -m tests.bench [--quick] [--json FILE] [--control] [--against REV]``."""

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
from rich.console import Console
from rich.progress import Progress, TaskID

from tests.bench import planning, report, servers, stalls
from tests.bench.measure import Case, cases, measure

MODES = ("passthrough", "tier")


def traces_folder() -> Path | None:
    """Where recorded sessions are, if anywhere."""
    named = os.environ.get("STRATIFORM_TRACES")
    folder = Path(named) if named else servers.ROOT.parent / "shared" / "traces"
    return folder if any(folder.glob("*.jsonl.xz")) else None


def _told(bar: Progress, task: TaskID) -> Callable[[str], None]:
    return lambda body: bar.update(task, description=f"hard bodies: {body}")


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="make bench", description="The cost of being in the path.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: 40 seconds instead of 3 minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE; '-' for standard output")
    parser.add_argument("--against", metavar="REV", help="this version beside that of a git revision, CPU alone")
    parser.add_argument("--control", action="store_true", help="two bare forwarders, no proxy: the noise")
    args = parser.parse_args()
    if not servers.IS_SUPPORTED:
        print("the benchmark reads CPU times from /proc and needs Linux", file=sys.stderr)
        return 1
    # Into a file or a log the tables go at full width.
    console = Console(stderr=args.json == Path("-"), width=None if sys.stdout.isatty() else 150)
    rows = cases(args.quick, traces_folder())
    cores, busy = os.cpu_count() or 1, os.getloadavg()[0]
    noisy = ": others are at work here, expect noise" if busy > cores / 2 else ""
    console.print(f"Python {platform.python_version()}, {cores} cores, load average {busy:.1f}{noisy}")
    rounds, budget_s = (3, 36.0) if args.quick else (9, 165.0)
    started = servers.control() if args.control else servers.proxies(MODES)
    if args.against:
        started = servers.versions(args.against)
    with started as (provider, targets), Progress(console=console, transient=True) as bar:
        task = bar.add_task("starting", total=rounds * len(rows))

        def done(turn: int, total: int, case: Case) -> None:
            text = f"round {turn + 1} of at most {total}: {case.workload} {case.size // 1000} kB"
            bar.update(task, advance=1, description=text)

        results = asyncio.run(measure(rows, provider, targets, rounds, budget_s, done))
        rss_mb = {name: target.rss_mb() for name, target in targets.items()}
        is_alone = args.control or args.against
        stalled = None if is_alone else stalls.measure(targets["tier"], args.quick, _told(bar, task))
    start_s = {name: target.start_s for name, target in targets.items()}
    found = report.rows(results)
    report.show(console, found, start_s, rss_mb)
    if args.against:
        report.show_versions(console, found)
    planned = {} if args.against else planning.measure(traces_folder())
    if planned:
        report.show_planning(console, planned)
    if stalled is not None:
        report.show_stalls(console, stalled)
    if args.json:
        figures = report.as_json(found, start_s, rss_mb) | {"planning": report.planning_json(planned)}
        if stalled is not None:
            figures["stalls"] = report.stalls_json(stalled)
        data = orjson.dumps(figures, option=orjson.OPT_INDENT_2)
        if args.json == Path("-"):
            sys.stdout.buffer.write(data + b"\n")
        else:
            args.json.write_bytes(data + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

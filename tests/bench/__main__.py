"""Run the benchmark: ``python -m tests.bench [--quick]``."""

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

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
    args = parser.parse_args()
    if not servers.IS_SUPPORTED:
        print("the benchmark reads CPU times from /proc and needs Linux", file=sys.stderr)
        return 1
    # Into a file or a log the tables go at full width.
    console = Console(width=None if sys.stdout.isatty() else 150)
    rows = cases(args.quick, traces_folder())
    cores, busy = os.cpu_count() or 1, os.getloadavg()[0]
    noisy = ": others are at work here, expect noise" if busy > cores / 2 else ""
    console.print(f"Python {platform.python_version()}, {cores} cores, load average {busy:.1f}{noisy}")
    rounds, budget_s = (3, 36.0) if args.quick else (9, 165.0)
    with servers.proxies(MODES) as (provider, targets), Progress(console=console, transient=True) as bar:
        task = bar.add_task("starting", total=rounds * len(rows))

        def done(turn: int, total: int, case: Case) -> None:
            text = f"round {turn + 1} of at most {total}: {case.workload} {case.size // 1000} kB"
            bar.update(task, advance=1, description=text)

        results = asyncio.run(measure(rows, provider, targets, rounds, budget_s, done))
        rss_mb = {name: target.rss_mb() for name, target in targets.items()}
        stalled = stalls.measure(targets["tier"], args.quick, _told(bar, task))
    start_s = {name: target.start_s for name, target in targets.items()}
    report.show(console, report.rows(results), start_s, rss_mb)
    report.show_planning(console, planning.measure(traces_folder()))
    report.show_stalls(console, stalled)
    return 0


if __name__ == "__main__":
    sys.exit(main())

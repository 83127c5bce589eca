"""``make fuzz``: 100,000 cases, whether memory stays where it is, and 40 budgets that are spent at random."""

import argparse
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from tests.fuzz.run import MOST_GROWTH, Report, run
from tests.fuzz.spending import overrun


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="how many cases (100000)")
    parser.add_argument("--budgets", type=int, default=40, help="how many budgets are spent, by 40 calls at once (40)")
    parser.add_argument("--seed", type=int, default=0, help="where they come from (0)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="run this case alone, to see it again")
    arguments = parser.parse_args()
    console = Console(stderr=True, highlight=False)
    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("cases", total=1 if arguments.only is not None else arguments.count)
        report = run(arguments.count, arguments.seed, arguments.only, lambda done: bar.update(task, completed=done))
    is_whole = arguments.only is None
    if is_whole:
        report.failures += overrun(arguments.seed, arguments.budgets)
    holds = not report.failures and (not is_whole or report.growth < MOST_GROWTH)
    _print(report, console, holds=holds)
    return 0 if holds else 1


def _print(report: Report, console: Console, *, holds: bool) -> None:
    for failure in report.failures[:20]:
        console.print(f"failed: {failure}", markup=False, soft_wrap=True)
    statuses = ", ".join(f"{status}: {n}" for status, n in sorted(report.statuses.items()))
    console.print(f"{report.count} cases in {report.seconds:.0f} s; answers {statuses}")
    console.print(
        f"memory {report.rss_warm / 2**20:.0f} MiB after a fifth, {report.rss_end / 2**20:.0f} MiB at the end "
        f"({report.growth:+.1%})"
    )
    console.print(f"{len(report.failures)} failures" if report.failures else "holds" if holds else "memory grew")


if __name__ == "__main__":
    sys.exit(main())

"""Run the failure drills: ``python -m tests.drill [--list] [--only NAME] [--short]``. 1: a goal was missed."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.drill.drill import Check, Drill
from tests.drill.drills import DRILLS
from tests.drill.run import Result, run_all
from tests.drill.world import FULL, SHORT

_WIDE = 190


def main() -> int:
    """Run them and print the table."""
    parser = argparse.ArgumentParser(prog="make drill", description="Break things, and count the money afterwards.")
    parser.add_argument("--list", action="store_true", help="list the drills")
    parser.add_argument("--only", metavar="NAME", action="append", help="only this drill; may be given several times")
    parser.add_argument("--short", action="store_true", help="scaled down; goals in seconds are only reported")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep logs, stores and records in this folder")
    given = parser.parse_args()
    if given.list:
        print("\n".join(f"{drill.name:28} {drill.done}" for drill in DRILLS))
        return 0
    unknown = set(given.only or ()) - {drill.name for drill in DRILLS}
    if unknown:
        parser.error(f"no drill is called {', '.join(sorted(unknown))}; --list lists them")
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    chosen = [drill for drill in DRILLS if _is_chosen(drill, given.only, is_short=given.short)]
    results = _run(chosen, given)
    Console(width=None if sys.stdout.isatty() else _WIDE).print(_table(results))
    return 1 if any(one.failures for one in results) else 0


def _is_chosen(drill: Drill, only: Sequence[str] | None, *, is_short: bool) -> bool:
    return drill.name in only if only else drill.is_short or not is_short


def _run(drills: Sequence[Drill], given: argparse.Namespace) -> list[Result]:
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("drills", total=len(drills))

        def begin(drill: Drill) -> None:
            bar.update(task, completed=drills.index(drill), description=drill.name)

        def end(one: Result) -> None:
            missed = "; ".join(f"{check.goal}: {check.figure}" for check in one.failures)
            bar.console.print(f"{one.drill.name:28} {one.seconds:5.1f} s  {one.verdict}  {missed or one.skipped}")

        size = SHORT if given.short else FULL
        return run_all(drills, size, by_the_clock=not given.short, keep=given.keep, begin=begin, end=end)


def _table(results: Sequence[Result]) -> Table:
    table = Table()
    for name in ("drill", "what was done", "served / ledger / budget, USD", "goal", "figure", ""):
        table.add_column(name, overflow="fold")
    for one in results:
        money, checks = one.findings.money, one.findings.checks
        first = (one.drill.name, one.drill.done, money.sums() if money else "-")
        rows = [(check.goal, check.figure, _verdict(one, check)) for check in checks]
        rows += [(check.goal, check.figure, "FAILED") for check in one.failures if check not in checks]
        if one.skipped:
            rows.append(("-", one.skipped, "skipped"))
        for number, row in enumerate(rows):
            table.add_row(*(first if number == 0 else ("", "", "")), *row)
        table.add_section()
    return table


def _verdict(one: Result, check: Check) -> str:
    if check.is_ok:
        return "ok"
    return "FAILED" if check in one.failures else "missed"


if __name__ == "__main__":
    sys.exit(main())

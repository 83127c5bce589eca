"""Compare what the planner costs with the committed table: ``python -m tests.economics [--write]``.

The status is 1 where it has become dearer.
"""

import argparse
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from proxy.cli import Output
from tests.economics import table
from tests.economics.measure import RULES, Job, measured
from tests.economics.sessions import sessions
from tests.economics.table import Finding


def main(given: Sequence[str] | None = None) -> int:
    """Measure, compare, report."""
    parser = argparse.ArgumentParser(prog="make economics", description="What the planner costs, beside the table.")
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help="these sessions only (all)")
    parser.add_argument("--write", action="store_true", help="write what was measured into the table")
    arguments = parser.parse_args(given)
    if unknown := sorted(set(arguments.sessions) - set(sessions())):
        parser.error(f"no such session here: {', '.join(unknown)}")
    jobs = [Job(name, rules) for name in arguments.sessions or sessions() for rules in RULES]
    found = [one.cost for one in measured(jobs)]
    committed = table.read()
    findings, new = table.compared(found, committed), table.missing(found, committed)
    show(findings, new, is_written=arguments.write)
    if arguments.write:
        table.write(found)
    return 1 if any(one.is_dearer for one in findings) and not arguments.write else 0


def show(findings: Sequence[Finding], new: Sequence[str], *, is_written: bool) -> None:
    """The classes as a table, and below it what left its tolerance."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("class")
    for rules in RULES:
        shown.add_column(rules, justify="right")
    classes = {(one.name, one.rules): one for one in findings if one.is_class}
    for kind in dict.fromkeys(name for name, _ in classes):
        shown.add_row(kind, *(_cell(classes.get((kind, rules))) for rules in RULES))
    output = Output()
    output.print(shown)
    output.print("input cost as a share of no caching, and the change against the committed table", style="dim")
    dearer, cheaper = [one for one in findings if one.is_dearer], [one for one in findings if one.is_cheaper]
    for one in dearer:
        output.print(f"DEARER: {one}", style="red", soft_wrap=True)
    for one in cheaper:
        output.print(f"cheaper: {one}", style="green", soft_wrap=True)
    if new:
        output.print(f"not in the table: {', '.join(new)}", soft_wrap=True)
    if is_written:
        output.print("The table holds the new figures.")
    elif dearer:
        output.print("The planner has become dearer.", style="red")
    elif cheaper or new:
        output.print("The table is out of date: run make economics ARGS=--write", soft_wrap=True)


def _cell(one: Finding | None) -> Text:
    if one is None:
        return Text("")
    style = "red" if one.is_dearer else "green" if one.is_cheaper else ""
    return Text(f"{one.share:.4f} {one.ratio - 1:+.2%}", style)


if __name__ == "__main__":
    raise SystemExit(main())

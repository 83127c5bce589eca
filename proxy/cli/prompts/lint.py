"""``stratiform prompts lint``: mistakes in prompts, and what would break caches."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from proxy.cli.output import Output, print_json
from proxy.cli.prompts.findings import Finding, findings
from proxy.cli.prompts.setup import add_contexts, add_setup, read_context, setup_of

_STYLES = {"error": "red", "warning": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--strict", action="store_true", help="end with status 1 for warnings, too")
    add_contexts(parser, "the prompts are tried with each")
    add_setup(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what is found; 1 where there are errors."""
    setup = setup_of(arguments)
    found = findings(setup, [read_context(file) for file in arguments.context])
    errors = sum(finding.severity == "error" for finding in found)
    is_ok = not errors and not (found and arguments.strict)
    if arguments.json:
        counts = {"errors": errors, "warnings": len(found) - errors}
        print_json({"ok": is_ok, **counts, "findings": [asdict(finding) for finding in found]})
    else:
        _print(found, errors)
    return 0 if is_ok else 1


def _print(found: Sequence[Finding], errors: int) -> None:
    output = Output()
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in found:
        place = ", ".join(part for part in (finding.place, finding.prompt and f"prompt {finding.prompt}") if part)
        severity = Text(finding.severity, _STYLES[finding.severity])
        table.add_row(severity, finding.code, f"{place}: {finding.message}" if place else finding.message)
    if found:
        output.print(table)
    output.print(f"errors: {errors}, warnings: {len(found) - errors}", style="dim")

"""``stratiform spend``: the spend, and the savings by caching, by team, key, user, model and day."""

import argparse
import csv
import sys
from functools import partial

import orjson

from proxy.admin.spend import cell, ledger_entries
from proxy.cli.admin_client import Ask, add_where, run_with, show
from proxy.cli.output import fail

_PARAMETERS = ("since", "until", "team", "key", "user", "model", "timezone")
_SUMS = {
    "requests": "requests", "read": "read_tokens", "written": "write_tokens", "uncached": "uncached_tokens",
    "output": "output_tokens", "cost usd": "cost_usd", "saved usd": "saved_usd", "estimated": "estimated_requests",
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", help="the groups: team, key, user, model, day, separated by commas (default: team)")
    parser.add_argument("--since", default="30d", help="the start: 30d, 12h, 2026-11-01 or unix seconds (default: 30d)")
    parser.add_argument("--until", help="the end, written in the same way (default: now)")
    for name in ("team", "key", "user", "model"):
        parser.add_argument(f"--{name}", help=f"only what this {name} spent")
    parser.add_argument("--timezone", help="the time zone in which days begin (default: UTC)")
    parser.add_argument("--csv", action="store_true", help="print CSV")
    parser.add_argument(
        "--entries", action="store_true", help="print the entries of the ledger: one JSON object a line, or CSV"
    )
    add_where(parser)


def run(arguments: argparse.Namespace) -> int:
    query = {name: value for name in _PARAMETERS if (value := getattr(arguments, name)) is not None}
    if arguments.csv and arguments.json:
        fail("print either --csv or --json")
    if arguments.entries and arguments.by is not None:
        fail("--by is for the sums: --entries prints each entry")
    if arguments.entries:
        return run_with(arguments, partial(_export, query, as_csv=arguments.csv))
    query["by"] = arguments.by or "team"
    if arguments.csv:
        query["format"] = "csv"

    async def work(ask: Ask) -> None:
        content = await ask("GET", "spend", query)
        if arguments.csv:
            sys.stdout.write(content)
            return
        by = content["by"]
        if len(content["data"]) > 1 and by and not arguments.json:
            # The sum of the rows is the last row.
            content["data"].append({**content["total"], by[0]: "total"})
        show(arguments, content, {**{group: group for group in by}, **_SUMS})

    return run_with(arguments, work)


async def _export(query: dict[str, str], ask: Ask, *, as_csv: bool) -> None:
    writer = csv.writer(sys.stdout)
    has_heading = False
    async for entry in ledger_entries(ask, query):
        if not as_csv:
            sys.stdout.write(orjson.dumps(entry).decode() + "\n")
            continue
        writer.writerows([map(cell, entry.values())] if has_heading else [entry, map(cell, entry.values())])
        has_heading = True

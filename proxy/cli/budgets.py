"""``stratiform budgets``: how much may be spent, by whom, in which window, and how much of it is left."""

import argparse
from collections.abc import Mapping
from typing import Any

from proxy.cli.admin_client import Option, Request, add_action, run, show
from proxy.cli.output import number_within

__all__ = ["configure", "run"]

_AMOUNTS = (
    Option("--usd", "usd", float, "the hard limit in USD: requests that could pass it are refused"),
    Option("--soft-usd", "soft_usd", float, "the soft limit in USD: a notice is sent when the spend passes it"),
    Option("--tokens", "tokens", int, "the hard limit in tokens of prompts and answers"),
    Option("--soft-tokens", "soft_tokens", int, "the soft limit in tokens of prompts and answers"),
    Option("--timezone", "timezone", str, "the time zone in which days, weeks and months begin (default: UTC)"),
    Option(
        "--assumed-output-tokens",
        "assumed_output_tokens",
        int,
        "the length of an answer that is assumed for requests without a limit",
    ),
    Option("--webhook", "webhook", str, "the URL to which notices are sent"),
)
_KINDS = (
    Option("--name", "name", str, "its name within the team (default: made from scope, window and unit)"),
    Option("--scope", "scope", str, "what it counts: team, key, user or model (default: team)"),
    Option("--subject", "subject", str, "the id of the key, the user or the model; * gives each a counter of its own"),
    Option("--window", "window", str, "total, hour, day, week, month or rolling:30d (default: total)"),
)
_CORRECTED = {
    "budget": "id", "subject": "subject", "window": "window", "spent before": "spent_before", "spent": "spent",
    "reserved": "reserved", "left": "left", "begins anew": "resets_at", "dry run": "dry_run",
}  # fmt: skip
_COLUMNS = {
    "budget": "id", "scope": "scope", "subject": "subject", "window": "window", "zone": "timezone", "usd": "usd",
    "soft usd": "soft_usd", "tokens": "tokens", "soft tokens": "soft_tokens", "spent": "spent", "reserved": "reserved",
    "left": "left", "begins anew": "resets_at", "webhook": "webhook", "in the file": "declared",
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_action(
        actions,
        "list",
        "list all budgets, or those of a team",
        Request("GET", "budgets", _COLUMNS, query=("team",), show=_show),
    ).add_argument("--team", help="only those of this team")
    add_action(
        actions,
        "create",
        "make a budget",
        Request("POST", "budgets", _COLUMNS, (*_AMOUNTS, *_KINDS), fields=("team",)),
    ).add_argument("--team", required=True, help="the team whose spend it limits")
    add_action(
        actions,
        "update",
        "change how much it allows",
        Request("PATCH", "budgets/{id}", _COLUMNS, _AMOUNTS),
    ).add_argument("id", help="TEAM/NAME")
    add_action(
        actions,
        "delete",
        "delete a budget",
        Request("DELETE", "budgets/{id}", {"budget": "id", "deleted": "deleted"}),
    ).add_argument("id", help="TEAM/NAME")
    spent = add_action(
        actions,
        "set-spent",
        "correct what counts as spent in the present window",
        Request("POST", "budgets/{id}/set-spent", _CORRECTED, fields=("spent", "dry_run", "subject")),
    )
    spent.add_argument("id", help="TEAM/NAME")
    spent.add_argument(
        "spent",
        type=number_within(float, 0),
        metavar="amount",
        help="the amount that was spent, in the unit of the budget (USD or tokens)",
    )
    spent.add_argument(
        "--subject", help="the id of the key, the user or the model, where each has a counter of its own"
    )
    spent.add_argument("--dry-run", action="store_true", help="show the result, and change nothing")
    add_action(
        actions,
        "accept-store",
        "accept a store that was emptied or exchanged as it is now",
        Request("POST", "store/accept", {"epoch": "epoch", "in the place of": "accepted"}),
    )


def _show(arguments: argparse.Namespace, content: Any, columns: Mapping[str, str]) -> None:
    """Print budgets. A budget that counts each key or user separately has a line for each of them, below its own."""
    if not arguments.json:
        rows = [[one, *({"id": one["id"], **each} for each in one.get("counters", ()))] for one in content["data"]]
        content = {**content, "data": [row for of_one in rows for row in of_one]}
    show(arguments, content, columns)

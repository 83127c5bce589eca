"""``stratiform budgets``: how much may be spent, by whom, in which window, and how much of it is left."""

import argparse
import math

from proxy.cli.admin_client import Actions, Ask, Option, body_of, run_with, show

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
    """Add the command's arguments."""
    actions = Actions(parser)
    actions.add("list", "list all budgets, or those of a team").add_argument("--team", help="only those of this team")
    create = actions.add("create", "make a budget", (*_AMOUNTS, *_KINDS))
    create.add_argument("--team", required=True, help="the team whose spend it limits")
    actions.add("update", "change how much it allows", _AMOUNTS).add_argument("id", help="TEAM/NAME")
    actions.add("delete", "delete a budget").add_argument("id", help="TEAM/NAME")
    spent = actions.add("set-spent", "correct what counts as spent in the present window")
    spent.add_argument("id", help="TEAM/NAME")
    spent.add_argument(
        "amount", type=_amount, help="the amount that was spent, in the unit of the budget (USD or tokens)"
    )
    spent.add_argument(
        "--subject", help="the id of the key, the user or the model, where each has a counter of its own"
    )
    spent.add_argument("--dry-run", action="store_true", help="show the result, and change nothing")
    actions.add("accept-store", "accept a store that was emptied or exchanged as it is now")


def run(arguments: argparse.Namespace) -> int:
    """Run the action that was chosen, and return the exit status."""

    async def work(ask: Ask) -> None:
        match arguments.action:
            case "list":
                content = await ask("GET", "budgets", {"team": arguments.team} if arguments.team else None)
            case "create":
                body = body_of(arguments, (*_AMOUNTS, *_KINDS), team=arguments.team)
                content = await ask("POST", "budgets", None, body)
            case "update":
                content = await ask("PATCH", f"budgets/{arguments.id}", None, body_of(arguments, _AMOUNTS))
            case "set-spent":
                given = {"subject": arguments.subject} if arguments.subject is not None else {}
                body = {"spent": arguments.amount, "dry_run": arguments.dry_run, **given}
                content = await ask("POST", f"budgets/{arguments.id}/set-spent", None, body)
                show(arguments, content, _CORRECTED)
                return
            case "accept-store":
                content = await ask("POST", "store/accept")
                show(arguments, content, {"epoch": "epoch", "in the place of": "accepted"})
                return
            case _:
                content = await ask("DELETE", f"budgets/{arguments.id}")
                show(arguments, content, {"budget": "id", "deleted": "deleted"})
                return
        show(arguments, content, _COLUMNS)

    return run_with(arguments, work)


def _amount(text: str) -> float:
    """An amount of money or of tokens; argparse says what is wrong with another text."""
    amount = float(text)
    if not math.isfinite(amount):
        raise ValueError
    return amount

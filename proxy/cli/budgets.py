"""``stratiform budgets``: how much may be spent, by whom, in which window, and how much of it is left."""

import argparse
import math

from proxy.cli.admin_client import Actions, Ask, Option, body_of, run_with, show

_AMOUNTS = (
    Option("--usd", "usd", float, "refuse what could take the spend beyond this"),
    Option("--soft-usd", "soft_usd", float, "say so when the spend passes this"),
    Option("--tokens", "tokens", int, "the same, in tokens of prompts and answers"),
    Option("--soft-tokens", "soft_tokens", int, "the same, in tokens of prompts and answers"),
    Option("--timezone", "timezone", str, "where days, weeks and months begin (UTC)"),
    Option("--assumed-output-tokens", "assumed_output_tokens", int, "for requests without a limit of their own"),
    Option("--webhook", "webhook", str, "where notices go"),
)
_KINDS = (
    Option("--name", "name", str, "what it is called within the team (by scope, window and unit)"),
    Option("--scope", "scope", str, "team, key, user or model (team)"),
    Option("--subject", "subject", str, "the key's id, user or model that it is about (*: each has its own)"),
    Option("--window", "window", str, "total, hour, day, week, month, or rolling:30d (total)"),
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
    actions.add("list", "all budgets, or a team's").add_argument("--team", help="of this team only")
    create = actions.add("create", "make a budget", (*_AMOUNTS, *_KINDS))
    create.add_argument("--team", required=True, help="whose spend it limits")
    actions.add("update", "change how much it allows", _AMOUNTS).add_argument("id", help="TEAM/NAME")
    actions.add("delete", "delete a budget").add_argument("id", help="TEAM/NAME")
    spent = actions.add("set-spent", "correct what counts as spent in the window of now")
    spent.add_argument("id", help="TEAM/NAME")
    spent.add_argument("amount", type=_amount, help="what has been spent, in USD or tokens as the budget counts")
    spent.add_argument("--subject", help="the key's id, user or model, where each has a counter of its own")
    spent.add_argument("--dry-run", action="store_true", help="show it, and change nothing")
    actions.add("accept-store", "go by a store that was emptied or exchanged, as it is")


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit status."""

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

"""``stratiform teams``: who shares keys, models and budgets."""

import argparse

from proxy.cli.admin_client import LIMITS, Actions, Ask, Option, body_of, names, run_with, show

_OPTIONS = (
    *LIMITS,
    Option(
        "--client-keys",
        "client_keys",
        str,
        "forward: clients may bring the key of the provider along; refuse: they may not",
    ),
    Option(
        "--paths",
        "paths",
        names,
        "paths of the whole account that the team may use, separated by commas; * stands for all",
    ),
)
_COLUMNS = {
    "team": "name", "mode": "mode", "models": "models", "rpm": "requests_per_minute", "tpm": "tokens_per_minute",
    "keys": "keys", "budgets": "budgets", "client keys": "client_keys", "paths": "paths", "in the file": "declared",
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    actions = Actions(parser)
    actions.add("list", "list all teams")
    actions.add("create", "make a team", _OPTIONS).add_argument("name")
    actions.add("update", "change the given fields", _OPTIONS).add_argument("name")
    delete = actions.add("delete", "delete a team and its budgets; its spend stays in the ledger")
    delete.add_argument("name")
    delete.add_argument("--force", action="store_true", help="delete its keys, too")


def run(arguments: argparse.Namespace) -> int:
    """Run the action that was chosen, and return the exit status."""

    async def work(ask: Ask) -> None:
        match arguments.action:
            case "list":
                content = await ask("GET", "teams")
            case "create":
                content = await ask("POST", "teams", None, body_of(arguments, _OPTIONS, name=arguments.name))
            case "update":
                content = await ask("PATCH", f"teams/{arguments.name}", None, body_of(arguments, _OPTIONS))
            case _:
                query = {"force": "true"} if arguments.force else None
                content = await ask("DELETE", f"teams/{arguments.name}", query)
                show(arguments, content, {"team": "name", "deleted": "deleted", "keys": "keys"})
                return
        show(arguments, content, _COLUMNS)

    return run_with(arguments, work)

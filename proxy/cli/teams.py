"""``stratiform teams``: who shares keys, models and budgets."""

import argparse

from proxy.cli.managing import LIMITS, Ask, Option, add_options, add_where, body_of, run_with, show

_OPTIONS = (
    *LIMITS,
    Option("--client-keys", "client_keys", str, "forward: clients may bring the provider's key along; or refuse"),
)
_COLUMNS = {
    "team": "name", "mode": "mode", "models": "models", "rpm": "requests_per_minute", "tpm": "tokens_per_minute",
    "keys": "keys", "budgets": "budgets", "client keys": "client_keys", "in the file": "declared",
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_where(actions.add_parser("list", help="all teams"))
    for action, help_text in (("create", "make a team"), ("update", "change what is given")):
        sub = actions.add_parser(action, help=help_text)
        sub.add_argument("name")
        add_options(sub, _OPTIONS)
        add_where(sub)
    delete = actions.add_parser("delete", help="delete a team and its budgets; what it spent stays in the ledger")
    delete.add_argument("name")
    delete.add_argument("--force", action="store_true", help="its keys, too")
    add_where(delete)


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit status."""

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

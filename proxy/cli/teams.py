"""``stratiform teams``: the groups that share keys, models and budgets."""

import argparse

from proxy.cli.admin_client import LIMITS, Option, Request, add_action, names, run

__all__ = ["configure", "run"]

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
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_action(actions, "list", "list all teams", Request("GET", "teams", _COLUMNS))
    add_action(
        actions,
        "create",
        "make a team",
        Request("POST", "teams", _COLUMNS, _OPTIONS, fields=("name",)),
    ).add_argument("name", help="the name of the team")
    add_action(
        actions,
        "update",
        "change the given fields",
        Request("PATCH", "teams/{name}", _COLUMNS, _OPTIONS),
    ).add_argument("name", help="the name of the team")
    delete = add_action(
        actions,
        "delete",
        "delete a team and its budgets; its spend stays in the ledger",
        Request("DELETE", "teams/{name}", {"team": "name", "deleted": "deleted", "keys": "keys"}, query=("force",)),
    )
    delete.add_argument("name", help="the name of the team")
    delete.add_argument("--force", action="store_const", const="true", help="delete its keys, too")

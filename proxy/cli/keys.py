"""``stratiform keys``: the proxy's own keys. One is shown when it is made, and never again."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.cli.admin_client import LIMITS, Actions, Option, Request, add_where, show
from proxy.cli.admin_client import run as run_action
from proxy.cli.key_import import import_keys

_OPTIONS = (
    Option("--user", "user", str, "the user whose key it is"),
    *LIMITS,
    Option("--expires", "expires_at", str, "when it expires: 90d, 2027-01-31 or 2027-01-31T18:00:00Z"),
    Option("--note", "note", str, "a line by which you know the key again"),
)
_SHA256 = Option(
    "--sha256", "sha256", str, "the SHA-256 of an existing key, in hex: take it over instead of making one"
)
_COLUMNS = {
    "key": "id", "team": "team", "user": "user", "status": "status", "models": "models", "mode": "mode",
    "rpm": "requests_per_minute", "tpm": "tokens_per_minute", "created": "created_at", "expires": "expires_at",
    "note": "note", "in the file": "declared",
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    actions.add(
        "list",
        "list all keys, or those of a team",
        Request("GET", "keys", _COLUMNS, query=("team",)),
    ).add_argument("--team", help="only those of this team")
    create = actions.add(
        "create",
        "make a key, and show it once",
        Request("POST", "keys", _COLUMNS, (*_OPTIONS, _SHA256), fields=("team",), show=_show_new),
    )
    create.add_argument("--team", help="the team that it belongs to (default: the team `default`)")
    actions.add(
        "update",
        "change the given fields",
        Request("PATCH", "keys/{id}", _COLUMNS, _OPTIONS),
    ).add_argument("id", help="the id of the key, as the list shows it")
    actions.add(
        "revoke",
        "refuse a key from now on; it stays in the list",
        Request("POST", "keys/{id}/revoke", _COLUMNS),
    ).add_argument("id", help="the id of the key, as the list shows it")
    actions.add(
        "delete",
        "delete a key from the list; its spend stays in the ledger",
        Request("DELETE", "keys/{id}", {"key": "id", "deleted": "deleted"}),
    ).add_argument("id", help="the id of the key, as the list shows it")
    importing = actions.parser("import", "take over LiteLLM's keys and teams; its users' keys go on working")
    importing.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="an export of keys, teams or both: CSV or JSON"
    )
    importing.add_argument("--dry-run", action="store_true", help="only say what would be taken over")
    importing.add_argument(
        "--ignore-unsupported", action="store_true", help="take over what is restricted in ways that are not known here"
    )
    add_where(importing)


def run(arguments: argparse.Namespace) -> int:
    return import_keys(arguments) if arguments.action == "import" else run_action(arguments)


def _show_new(arguments: argparse.Namespace, content: Any, columns: Mapping[str, str]) -> None:
    show(arguments, content, columns)
    if not arguments.json and "key" in content:
        sys.stdout.write(f"\n{content['key']}\n")
        print("This is the only time that the key is shown.", file=sys.stderr)

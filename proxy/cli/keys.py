"""``stratiform keys``: the proxy's own keys. One is shown when it is made, and never again."""

import argparse
import sys

from proxy.cli.admin_client import LIMITS, Actions, Ask, Option, body_of, run_with, show

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
    """Add the command's arguments."""
    actions = Actions(parser)
    actions.add("list", "list all keys, or those of a team").add_argument("--team", help="only those of this team")
    create = actions.add("create", "make a key, and show it once", (*_OPTIONS, _SHA256))
    create.add_argument("--team", help="the team that it belongs to (default: the team `default`)")
    actions.add("update", "change the given fields", _OPTIONS).add_argument("id")
    actions.add("revoke", "refuse a key from now on; it stays in the list").add_argument("id")
    actions.add("delete", "delete a key from the list; its spend stays in the ledger").add_argument("id")


def run(arguments: argparse.Namespace) -> int:
    """Run the action that was chosen, and return the exit status."""

    async def work(ask: Ask) -> None:
        match arguments.action:
            case "list":
                content = await ask("GET", "keys", {"team": arguments.team} if arguments.team else None)
            case "create":
                body = body_of(arguments, (*_OPTIONS, _SHA256), team=arguments.team)
                _show_new(arguments, await ask("POST", "keys", None, body))
                return
            case "update":
                content = await ask("PATCH", f"keys/{arguments.id}", None, body_of(arguments, _OPTIONS))
            case "revoke":
                content = await ask("POST", f"keys/{arguments.id}/revoke")
            case _:
                content = await ask("DELETE", f"keys/{arguments.id}")
                show(arguments, content, {"key": "id", "deleted": "deleted"})
                return
        show(arguments, content, _COLUMNS)

    return run_with(arguments, work)


def _show_new(arguments: argparse.Namespace, content: dict[str, object]) -> None:
    show(arguments, content, _COLUMNS)
    if not arguments.json and "key" in content:
        sys.stdout.write(f"\n{content['key']}\n")
        print("This is the only time that the key is shown.", file=sys.stderr)

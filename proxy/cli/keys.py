"""``stratiform keys``: the proxy's own keys. A key is shown when it is made, and never again. LiteLLM's keys and teams
can be taken over."""

import argparse
import sys
from collections.abc import Awaitable, Iterable, Mapping
from pathlib import Path
from typing import Any

from proxy.access.authentication import declared_id
from proxy.cli.admin_client import LIMITS, Ask, Option, Request, add_action, add_where, run_with, show
from proxy.cli.admin_client import run as run_action
from proxy.cli.litellm_export import Imported, read_export
from proxy.cli.output import print_result, visible
from proxy.errors import Conflict, InvalidRequest, NotFound, ProxyError

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
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_action(
        actions,
        "list",
        "list all keys, or those of a team",
        Request("GET", "keys", _COLUMNS, query=("team",)),
    ).add_argument("--team", help="only those of this team")
    create = add_action(
        actions,
        "create",
        "make a key, and show it once",
        Request("POST", "keys", _COLUMNS, (*_OPTIONS, _SHA256), fields=("team",), show=_show_new),
    )
    create.add_argument("--team", help="the team that it belongs to (default: the team `default`)")
    add_action(
        actions,
        "update",
        "change the given fields",
        Request("PATCH", "keys/{id}", _COLUMNS, _OPTIONS),
    ).add_argument("id", help="the id of the key, as the list shows it")
    add_action(
        actions,
        "revoke",
        "refuse a key from now on; it stays in the list",
        Request("POST", "keys/{id}/revoke", _COLUMNS),
    ).add_argument("id", help="the id of the key, as the list shows it")
    add_action(
        actions,
        "delete",
        "delete a key from the list; its spend stays in the ledger",
        Request("DELETE", "keys/{id}", {"key": "id", "deleted": "deleted"}),
    ).add_argument("id", help="the id of the key, as the list shows it")
    importing = actions.add_parser("import", help="take over LiteLLM's keys and teams; its users' keys go on working")
    importing.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="an export of keys, teams or both: CSV or JSON"
    )
    importing.add_argument("--dry-run", action="store_true", help="only say what would be taken over")
    importing.add_argument(
        "--ignore-unsupported", action="store_true", help="take over what is restricted in ways that are not known here"
    )
    add_where(importing)


def run(arguments: argparse.Namespace) -> int:
    return _import(arguments) if arguments.action == "import" else run_action(arguments)


def _show_new(arguments: argparse.Namespace, content: Any, columns: Mapping[str, str]) -> None:
    show(arguments, content, columns)
    if not arguments.json and "key" in content:
        sys.stdout.write(f"\n{content['key']}\n")
        print("This is the only time that the key is shown.", file=sys.stderr)


_THERE = "is there already"


def _import(arguments: argparse.Namespace) -> int:
    """Take LiteLLM's keys and teams over, each with its budget and the budget's spent amount.

    A budget is made before its key: if the command is ended in between, no key works without its limit. Existing keys
    and teams stay as they are, so the command may be repeated. The exit status is 1 if something was not taken over.
    Raises ConfigError.
    """
    export, outcomes, lacking = read_export(arguments.files), list[Mapping[str, Any]](), set[str]()

    async def work(ask: Ask) -> None:
        for kind, found in export.items():
            for one in found:
                # The key and its owner must be known in any case.
                is_readable = all("not known here" in why for why in one.refused)
                whys = [] if arguments.ignore_unsupported and is_readable else list(one.refused)
                if kind == "key" and one.team in lacking:
                    whys.append(f"team_id: the team {one.team} is not taken over")
                if not whys and not arguments.dry_run:
                    whys = await _taken_over(ask, kind, one)
                if kind == "team" and whys not in ([], [_THERE]):
                    lacking.add(one.team)
                outcomes.append({"kind": kind, "name": one.label, "team": one.team, "not_imported": whys})

    run_with(arguments, work)
    print_result(arguments, outcomes, lambda: _print(outcomes, is_dry=arguments.dry_run))
    return 1 if any(one["not_imported"] not in ([], [_THERE]) for one in outcomes) else 0


async def _taken_over(ask: Ask, kind: str, one: Imported) -> list[str]:
    """Make a team or a key. Returns the reasons if that was not done. Raises ProxyError."""
    try:
        if kind == "team":
            there = await _made(ask, "teams", one.body)
            await _with_budget(ask, one, f"teams/{one.team}")
            return [] if there else [_THERE]
        await _with_budget(ask, one, f"keys/{declared_id(one.body['sha256'])}")
        return [] if await _made(ask, "keys", one.body) else [_THERE]
    except InvalidRequest as error:
        return [error.message]


async def _made(ask: Ask, path: str, body: Mapping[str, Any]) -> bool:
    return await _is_done(ask("POST", path, None, body), Conflict)


async def _is_done(asking: Awaitable[object], refusal: type[ProxyError]) -> bool:
    try:
        await asking
    except refusal:
        return False
    return True


async def _with_budget(ask: Ask, one: Imported, owner: str) -> None:
    """Make the budget with its spent amount. If the budget exists and its owner does not, an earlier run was ended in
    between."""
    if one.budget is None:
        return
    name = f"{one.team}/{one.budget['name']}"
    is_new = await _made(ask, "budgets", {"team": one.team, **one.budget}) or not await _is_done(
        ask("GET", owner), NotFound
    )
    if is_new and one.spent:
        await ask("POST", f"budgets/{name}/set-spent", None, {"spent": one.spent})


def _print(outcomes: Iterable[Mapping[str, Any]], *, is_dry: bool) -> None:
    done = "would be imported" if is_dry else "imported"
    for one in outcomes:
        name = visible(f"{one['kind']} {one['name']}")
        whys = one["not_imported"]
        print(f"{name}: {done}" if not whys else f"{name}: not imported: {visible('; '.join(whys))}")

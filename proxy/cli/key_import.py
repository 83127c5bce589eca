"""``stratiform keys import``: takes LiteLLM's keys and teams over, each with its budget and what that has spent.

A key stands behind its budget: where the command is ended in between, no key works without its limit. Existing keys and
teams stay as they are, so the command may be repeated.
"""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from proxy.access.virtual_keys import declared_id
from proxy.cli.admin_client import Ask, run_with
from proxy.cli.litellm_export import Imported, read_export
from proxy.cli.output import print_json, visible
from proxy.errors import Conflict, InvalidRequest, NotFound

_THERE = "is there already"


def import_keys(arguments: argparse.Namespace) -> int:
    """Import the files; the exit status is 1 where something was not taken over. Raises ConfigError."""
    export, outcomes, lacking = read_export(arguments.files), list[Mapping[str, Any]](), set[str]()

    async def work(ask: Ask) -> None:
        for kind, found in export.items():
            for one in found:
                whys = [] if arguments.ignore_unsupported and _is_readable(one) else list(one.refused)
                if kind == "key" and one.team in lacking:
                    whys.append(f"team_id: the team {one.team} is not taken over")
                if not whys and not arguments.dry_run:
                    whys = await _taken_over(ask, kind, one)
                if kind == "team" and whys not in ([], [_THERE]):
                    lacking.add(one.team)
                outcomes.append({"kind": kind, "name": one.label, "team": one.team, "not_imported": whys})

    run_with(arguments, work)
    print_json(outcomes) if arguments.json else _show(outcomes, is_dry=arguments.dry_run)
    return 1 if any(one["not_imported"] not in ([], [_THERE]) for one in outcomes) else 0


def _is_readable(one: Imported) -> bool:
    """Whether only what it may do is not known, and not which key it is or whose."""
    return all("not known here" in why for why in one.refused)


async def _taken_over(ask: Ask, kind: str, one: Imported) -> list[str]:
    """Make a team or a key; why that was not done. Raises ProxyError, Unanswered."""
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
    try:
        await ask("POST", path, None, body)
    except Conflict:
        return False
    return True


async def _with_budget(ask: Ask, one: Imported, owner: str) -> None:
    """Make the budget, with what has been spent. If its owner is not there yet, an earlier run has ended before."""
    if one.budget is None:
        return
    name = f"{one.team}/{one.budget['name']}"
    is_new = await _made(ask, "budgets", {"team": one.team, **one.budget}) or not await _is_there(ask, owner)
    if is_new and one.spent:
        await ask("POST", f"budgets/{name}/set-spent", None, {"spent": one.spent})


async def _is_there(ask: Ask, path: str) -> bool:
    try:
        await ask("GET", path)
    except NotFound:
        return False
    return True


def _show(outcomes: Iterable[Mapping[str, Any]], *, is_dry: bool) -> None:
    done = "would be imported" if is_dry else "imported"
    for one in outcomes:
        name = visible(f"{one['kind']} {one['name']}")
        whys = one["not_imported"]
        print(f"{name}: {done}" if not whys else f"{name}: not imported: {visible('; '.join(whys))}")

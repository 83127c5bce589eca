"""``stratiform teams``, ``keys`` and ``budgets``: the groups that share keys, models and budgets; the proxy's own keys;
and how much may be spent, by whom, in which window. A key is shown when it is made, and never again.

``keys import`` takes LiteLLM's keys and teams over. Its files are rows of the tables ``LiteLLM_VerificationToken`` and
``LiteLLM_TeamTable``, as CSV or JSON, or the answers of ``/key/list`` and ``/team/list``. There are three kinds of
columns: used ones, ones that do not affect what a key may do, and restricting ones. A row with a value in a restricting
column is not taken over, because here the key could do more. Unknown columns count as restricting.
"""

import argparse
import csv
import io
import math
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from proxy.app.admin.litellm_forms import restricting
from proxy.app.settings import ConfigError
from proxy.cli import Command, number_within, print_result
from proxy.cli.admin_client import (
    LIMITS,
    AdminRequest,
    Ask,
    CommandOption,
    add_action,
    add_where,
    names,
    run,
    run_with,
    show,
)
from proxy.kit.errors import Conflict, InvalidRequest, NotFound, ProxyError
from proxy.kit.messages import visible
from proxy.kit.value import dataclass, field
from proxy.teams import validation
from proxy.teams.authentication import CLIENT_KEYS_TEAM, DEFAULT_TEAM, declared_id, digest_of
from proxy.teams.validation import window_of

_TEAM_OPTIONS = (
    *LIMITS,
    CommandOption(
        "--client-keys",
        "client_keys",
        str,
        "forward: clients may bring the key of the provider along; refuse: they may not",
    ),
    CommandOption(
        "--paths",
        "paths",
        names,
        "paths of the whole account that the team may use, separated by commas; * stands for all",
    ),
)
_TEAM_COLUMNS = {
    "team": "name", "mode": "mode", "models": "models", "rpm": "requests_per_minute", "tpm": "tokens_per_minute",
    "keys": "keys", "budgets": "budgets", "client keys": "client_keys", "paths": "paths", "in the file": "declared",
}  # fmt: skip


def _configure_teams(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_action(actions, "list", "list all teams", AdminRequest("GET", "teams", _TEAM_COLUMNS))
    add_action(
        actions,
        "create",
        "make a team",
        AdminRequest("POST", "teams", _TEAM_COLUMNS, _TEAM_OPTIONS, fields=("name",)),
    ).add_argument("name", help="the name of the team")
    add_action(
        actions,
        "update",
        "change the given fields",
        AdminRequest("PATCH", "teams/{name}", _TEAM_COLUMNS, _TEAM_OPTIONS),
    ).add_argument("name", help="the name of the team")
    delete = add_action(
        actions,
        "delete",
        "delete a team and its budgets; its spend stays in the ledger",
        AdminRequest(
            "DELETE", "teams/{name}", {"team": "name", "deleted": "deleted", "keys": "keys"}, query=("force",)
        ),
    )
    delete.add_argument("name", help="the name of the team")
    delete.add_argument("--force", action="store_const", const="true", help="delete its keys, too")


_AMOUNTS = (
    CommandOption("--usd", "usd", float, "the hard limit in USD: requests that could pass it are refused"),
    CommandOption("--soft-usd", "soft_usd", float, "the soft limit in USD: a notice is sent when the spend passes it"),
    CommandOption("--tokens", "tokens", int, "the hard limit in tokens of prompts and answers"),
    CommandOption("--soft-tokens", "soft_tokens", int, "the soft limit in tokens of prompts and answers"),
    CommandOption("--timezone", "timezone", str, "the time zone in which days, weeks and months begin (default: UTC)"),
    CommandOption(
        "--assumed-output-tokens",
        "assumed_output_tokens",
        int,
        "the length of an answer that is assumed for requests without a limit",
    ),
    CommandOption("--webhook", "webhook", str, "the URL to which notices are sent"),
)
_KINDS = (
    CommandOption("--name", "name", str, "its name within the team (default: made from scope, window and unit)"),
    CommandOption("--scope", "scope", str, "what it counts: team, key, user or model (default: team)"),
    CommandOption(
        "--subject", "subject", str, "the id of the key, the user or the model; * gives each a counter of its own"
    ),
    CommandOption("--window", "window", str, "total, hour, day, week, month or rolling:30d (default: total)"),
)
_CORRECTED = {
    "budget": "id", "subject": "subject", "window": "window", "spent before": "spent_before", "spent": "spent",
    "reserved": "reserved", "left": "left", "begins anew": "resets_at", "dry run": "dry_run",
}  # fmt: skip
_BUDGET_COLUMNS = {
    "budget": "id", "scope": "scope", "subject": "subject", "window": "window", "zone": "timezone", "usd": "usd",
    "soft usd": "soft_usd", "tokens": "tokens", "soft tokens": "soft_tokens", "spent": "spent", "reserved": "reserved",
    "left": "left", "begins anew": "resets_at", "webhook": "webhook", "in the file": "declared",
}  # fmt: skip


def _configure_budgets(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_action(
        actions,
        "list",
        "list all budgets, or those of a team",
        AdminRequest("GET", "budgets", _BUDGET_COLUMNS, query=("team",), show=_show_counters),
    ).add_argument("--team", help="only those of this team")
    add_action(
        actions,
        "create",
        "make a budget",
        AdminRequest("POST", "budgets", _BUDGET_COLUMNS, (*_AMOUNTS, *_KINDS), fields=("team",)),
    ).add_argument("--team", required=True, help="the team whose spend it limits")
    add_action(
        actions,
        "update",
        "change how much it allows",
        AdminRequest("PATCH", "budgets/{id}", _BUDGET_COLUMNS, _AMOUNTS),
    ).add_argument("id", help="TEAM/NAME")
    add_action(
        actions,
        "delete",
        "delete a budget",
        AdminRequest("DELETE", "budgets/{id}", {"budget": "id", "deleted": "deleted"}),
    ).add_argument("id", help="TEAM/NAME")
    spent = add_action(
        actions,
        "set-spent",
        "correct what counts as spent in the present window",
        AdminRequest("POST", "budgets/{id}/set-spent", _CORRECTED, fields=("spent", "dry_run", "subject")),
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
        AdminRequest("POST", "store/accept", {"epoch": "epoch", "in the place of": "accepted"}),
    )


def _show_counters(arguments: argparse.Namespace, content: Any, columns: Mapping[str, str]) -> None:
    """Print budgets. A budget that counts each key or user separately has a line for each of them, below its own."""
    if not arguments.json:
        rows = [[one, *({"id": one["id"], **each} for each in one.get("counters", ()))] for one in content["data"]]
        content = {**content, "data": [row for of_one in rows for row in of_one]}
    show(arguments, content, columns)


_KEY_OPTIONS = (
    CommandOption("--user", "user", str, "the user whose key it is"),
    *LIMITS,
    CommandOption("--expires", "expires_at", str, "when it expires: 90d, 2027-01-31 or 2027-01-31T18:00:00Z"),
    CommandOption("--note", "note", str, "a line by which you know the key again"),
)
_SHA256 = CommandOption(
    "--sha256", "sha256", str, "the SHA-256 of an existing key, in hex: take it over instead of making one"
)
_KEY_COLUMNS = {
    "key": "id", "team": "team", "user": "user", "status": "status", "models": "models", "mode": "mode",
    "rpm": "requests_per_minute", "tpm": "tokens_per_minute", "created": "created_at", "expires": "expires_at",
    "note": "note", "in the file": "declared",
}  # fmt: skip
_THERE = "is there already"
Row = Mapping[str, Any]


_USED = frozenset({
    "token", "key_name", "key_alias", "user_id", "team_id", "team_alias", "models", "tpm_limit", "rpm_limit",
    "max_budget", "soft_budget", "budget_duration", "spend", "expires", "blocked",
})  # fmt: skip
_SILENT = frozenset({
    "soft_budget_cooldown", "total_spend", "budget_reset_at", "created_at", "created_by", "updated_at",
    "updated_by", "settings_updated_at", "last_active", "rotation_count", "auto_rotate", "rotation_interval",
    "last_rotation_at", "key_rotation_at", "model_spend", "key_type", "agent_id", "admins", "members",
    "members_with_roles", "members_count", "team_member_permissions", "allow_team_guardrail_config",
    "allowed_cache_controls", "keys", "keys_count",
})  # fmt: skip
_EMPTY = ("", "null", "{}", "[]", "\\n", "f", "false")
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_ALL_MODELS = frozenset({"all-proxy-models", "all-team-models"})


@dataclass(frozen=True, slots=True)
class Imported:
    """A team or a key: the body with which the admin API makes it, the body of its budget, and the spent amount of the
    budget. ``refused`` says why it is not taken over; if ``refused`` is empty, it is taken over."""

    label: str
    team: str
    body: Mapping[str, Any] = field(repr=False)
    budget: Mapping[str, Any] | None = None
    spent: float = 0.0
    refused: Sequence[str] = ()


def _configure_keys(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_action(
        actions,
        "list",
        "list all keys, or those of a team",
        AdminRequest("GET", "keys", _KEY_COLUMNS, query=("team",)),
    ).add_argument("--team", help="only those of this team")
    add_action(
        actions,
        "create",
        "make a key, and show it once",
        AdminRequest("POST", "keys", _KEY_COLUMNS, (*_KEY_OPTIONS, _SHA256), fields=("team",), show=_show_new),
    ).add_argument("--team", help="the team that it belongs to (default: the team `default`)")
    add_action(
        actions,
        "update",
        "change the given fields",
        AdminRequest("PATCH", "keys/{id}", _KEY_COLUMNS, _KEY_OPTIONS),
    ).add_argument("id", help="the id of the key, as the list shows it")
    add_action(
        actions,
        "revoke",
        "refuse a key from now on; it stays in the list",
        AdminRequest("POST", "keys/{id}/revoke", _KEY_COLUMNS),
    ).add_argument("id", help="the id of the key, as the list shows it")
    add_action(
        actions,
        "delete",
        "delete a key from the list; its spend stays in the ledger",
        AdminRequest("DELETE", "keys/{id}", {"key": "id", "deleted": "deleted"}),
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


def _run_keys(arguments: argparse.Namespace) -> int:
    return _import(arguments) if arguments.action == "import" else run(arguments)


def _show_new(arguments: argparse.Namespace, content: Any, columns: Mapping[str, str]) -> None:
    show(arguments, content, columns)
    if not arguments.json and "key" in content:
        sys.stdout.write(f"\n{content['key']}\n")
        print("This is the only time that the key is shown.", file=sys.stderr)


def _import(arguments: argparse.Namespace) -> int:
    """Take LiteLLM's keys and teams over, each with its budget and the budget's spent amount.

    A budget is made before its key: if the command is ended in between, no key works without its limit. Existing keys
    and teams stay as they are, so the command may be repeated. The exit status is 1 if something was not taken over.
    Raises ConfigError.
    """
    outcomes, lacking = list[Mapping[str, Any]](), set[str]()
    try:
        export = read_export(arguments.files)
    except RecursionError:
        raise ConfigError(["the files cannot be read: they are nested too deeply"]) from None

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

    def show_outcomes() -> None:
        done = "would be imported" if arguments.dry_run else "imported"
        for one in outcomes:
            what = f"not imported: {'; '.join(one['not_imported'])}" if one["not_imported"] else done
            print(visible(f"{one['kind']} {one['name']}: {what}"))

    run_with(arguments, work)
    print_result(arguments, outcomes, show_outcomes)
    return 1 if any(one["not_imported"] not in ([], [_THERE]) for one in outcomes) else 0


async def _taken_over(ask: Ask, kind: str, one: Imported) -> list[str]:
    """Make a team or a key. Returns the reasons if that was not done. Raises ProxyError."""
    try:
        if kind == "team":
            is_new = await _is_done(ask("POST", "teams", None, one.body), Conflict)
            await _with_budget(ask, one, f"teams/{one.team}")
        else:
            await _with_budget(ask, one, f"keys/{declared_id(one.body['sha256'])}")
            is_new = await _is_done(ask("POST", "keys", None, one.body), Conflict)
        return [] if is_new else [_THERE]
    except InvalidRequest as error:
        return [error.message]


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
    is_new = await _is_done(ask("POST", "budgets", None, {"team": one.team, **one.budget}), Conflict)
    if (is_new or not await _is_done(ask("GET", owner), NotFound)) and one.spent:
        await ask("POST", f"budgets/{one.team}/{one.budget['name']}/set-spent", None, {"spent": one.spent})


def read_export(files: Sequence[Path]) -> dict[str, list[Imported]]:
    """The teams and keys of all files together, as ``team`` and ``key``. Raises ConfigError."""
    found = [row for path in files for row in _rows_of(path)]
    of_teams = _merged((_text(row, "team_id"), row) for row in found if "token" not in row)
    # The name of a team is its alias, if the alias can be made a name and no other team has it. An alias must not put a
    # team under another team's limits.
    taken_for = {id_: _text(row, "team_alias") or id_ for id_, row in of_teams.items()}
    names = {id_: _NOT_IN_NAMES.sub("-", text).strip("-_.")[:64] for id_, text in taken_for.items()}
    reserved = ("", DEFAULT_TEAM, CLIENT_KEYS_TEAM)
    names |= {id_: f"team-{digest_of(taken_for[id_])[:8]}" for id_, name in names.items() if name in reserved}
    while len(taken := Counter(names.values())) < len(names):
        names = {id_: name if taken[name] == 1 else f"{name[:40]}-{digest_of(id_)[:23]}" for id_, name in names.items()}
    # LiteLLM looks a key up by the same digest (proxy/utils.py hash_token).
    keys = _merged(
        (token.lower() if _HEX.fullmatch(token) else digest_of(token), row)
        for row in found
        if (token := _text(row, "token"))
    )
    return {
        "team": [_imported(row, names[id_], names[id_], {"name": names[id_]}, []) for id_, row in of_teams.items()],
        "key": [_key(digest, row, names) for digest, row in keys.items()],
    }


def _merged(rows: Iterable[tuple[str, Row]]) -> dict[str, Row]:
    """One row for each name. A team's row may hold a shorter form of a key: the values of all rows of a key count."""
    found: dict[str, Row] = {}
    for name, row in rows:
        told = {column: value for column, value in row.items() if not _is_empty(value)}
        if name:
            found[name] = {**row, **found.get(name, {}), **told}
    return found


def _rows_of(path: Path) -> list[Row]:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is no UTF-8'}"]) from None
    is_json = text.lstrip()[:1] in ("[", "{")
    try:
        rows: list[Row] = list(_within(_json(text)) if is_json else csv.DictReader(io.StringIO(text)))
    except (csv.Error, ValueError):
        raise ConfigError([f"{path}: is neither JSON nor CSV"]) from None
    if not any(row.get("token") or row.get("team_id") for row in rows):
        raise ConfigError([f"{path}: holds no keys (with a column `token`) and no teams (with a column `team_id`)"])
    return rows


def _json(text: str) -> object:
    """One value, or one on each line. Raises ValueError."""
    try:
        return orjson.loads(text)
    except ValueError:
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]


def _within(value: object) -> Iterator[Row]:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            if "token" in one or "team_id" in one:
                yield one
            yield from (row for name in ("keys", "teams", "data") for row in _within(one.get(name) or []))


def _imported(row: Row, label: str, team: str, body: dict[str, Any], refused: list[str]) -> Imported:
    """A team, or the key that the body names by its digest. ``refused`` is what is wrong with its name and owner."""
    refused = [*_restrictions(row), *refused]
    models = _list(row.get("models"))
    if not _ALL_MODELS & set(models):
        body["models"] = models
    for column, name in (("rpm_limit", "requests_per_minute"), ("tpm_limit", "tokens_per_minute")):
        if (limit := _number(row, column, refused)) is not None:
            body[name] = int(limit)
    budget = _budget(row, "key" if "sha256" in body else "team", refused)
    if budget is not None and "sha256" in body:
        budget |= {"subject": declared_id(body["sha256"]), "name": f"litellm-{declared_id(body['sha256'])}"}
    spent = _number(row, "spend", refused) or 0.0
    try:
        validation.nanos(spent)
    except ValueError as error:
        refused.append(f"spend: {error}")
    return Imported(label, team, body, budget, spent, tuple(refused))


def _key(digest: str, row: Row, teams: Mapping[str, str]) -> Imported:
    token, refused = _text(row, "token"), list[str]()
    label = " ".join(filter(None, (_text(row, "key_alias"), _text(row, "key_name")))) or digest[:8]
    id_, team = _text(row, "team_id"), DEFAULT_TEAM
    if not (token.startswith("sk-") or _HEX.fullmatch(token)):
        refused.append("token: is neither a key nor the SHA-256 of one")
    if id_ and id_ not in teams:
        refused.append("team_id: this team is not in the export: export the teams, too")
    elif id_:
        team = teams[id_]
    told = {name: _text(row, column) for name, column in (("user", "user_id"), ("expires_at", "expires"))}
    body = {"team": team, "sha256": digest, "note": label[:200]} | {
        name: value for name, value in told.items() if value
    }
    return _imported(row, label, team, body, refused)


def _restrictions(row: Row) -> Iterator[str]:
    for column, value in row.items():
        if column == "blocked" and not _is_empty(value):
            yield "blocked: LiteLLM refuses it, and an unknown key is refused here"
        elif column == "metadata":
            yield from (f"metadata.{name}: restricts, and is not known here" for name in restricting(_object(value)))
        # This value allows all routes of models, which are the only routes that this proxy has.
        elif column == "allowed_routes" and _list(value) == ["llm_api_routes"]:
            continue
        elif column not in _USED | _SILENT and not _is_empty(value):
            yield f"{column}: restricts, and is not known here"


def _budget(row: Row, scope: str, refused: list[str]) -> dict[str, Any] | None:
    hard, soft = _number(row, "max_budget", refused), _number(row, "soft_budget", refused)
    if hard is None and soft is None:
        return None
    try:
        window = window_of(_text(row, "budget_duration"))
    except ValueError as error:
        refused.append(f"budget_duration: {error}")
        window = "total"
    amounts = {name: usd for name, usd in (("usd", hard), ("soft_usd", soft)) if usd is not None}
    return {"scope": scope, "name": "litellm", "window": window, **amounts}


def _number(row: Row, column: str, refused: list[str]) -> float | None:
    text = _text(row, column)
    if not text:
        return None
    with suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    refused.append(f"{column}: is no number")
    return None


def _text(row: Row, column: str) -> str:
    value = row.get(column)
    return "" if value is None or value in ("null", "\\N") else str(value).strip()


def _is_empty(value: object) -> bool:
    """Whether a column has no value. A limit of 0 is a value."""
    if isinstance(value, str):
        return value.strip().lower() in _EMPTY
    return value is None or value is False or value == [] or value == {}


def _object(value: object) -> Mapping[str, Any]:
    if isinstance(value, str) and value.strip():
        try:
            value = orjson.loads(value)
        except ValueError:
            return {"limits that cannot be read": value}
    return value if isinstance(value, dict) else {} if _is_empty(value) else {"limits that cannot be read": value}


def _list(value: object) -> list[str]:
    """A list of JSON, or an array as PostgreSQL writes it: ``{a,"b c"}``."""
    if isinstance(value, str):
        text = value.strip()
        try:
            if text.startswith("{") and text.endswith("}"):
                return next(csv.reader([text[1:-1]], escapechar="\\"), [])
            value = orjson.loads(text) if text.startswith("[") else [] if _is_empty(text) else [text]
        except (csv.Error, ValueError):
            return [text]
    # A value that is not a list allows no model, because no model has that name.
    return [str(one) for one in value] if isinstance(value, list) else [] if value is None else [str(value)]


teams = Command(_configure_teams, run)
budgets = Command(_configure_budgets, run)
keys = Command(_configure_keys, _run_keys)

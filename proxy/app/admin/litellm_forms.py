"""LiteLLM's forms of keys, users, teams and spend, for tools that were made for its proxy.

Each request becomes a request to the admin API itself (``AdminService``). The answer has LiteLLM's names, as far as the
facts exist here: proxy/app/settings/README.md has a table. A field that would restrict a key and is not known here is
refused, because a key must never be able to do more than was asked for.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from itertools import groupby
from typing import Any

from proxy.app.admin import AdminService, store_away
from proxy.app.admin.reports import Query, View, ledger_entries
from proxy.engine.exchange import Principal
from proxy.kit.errors import Conflict, Forbidden, InvalidRequest, MethodNotAllowed, NotFound, ProxyError, StoreError
from proxy.teams import validation
from proxy.teams.authentication import DEFAULT_TEAM, Directory, declared_id, digest_of, new_key
from proxy.teams.validation import checked, date_of, window_of

_KEY = {
    "models": "models", "team_id": "team", "user_id": "user", "key_alias": "note", "duration": "expires_at",
    "rpm_limit": "requests_per_minute", "tpm_limit": "tokens_per_minute",
}  # fmt: skip
_BUDGET = ("max_budget", "budget_duration")
# Members of the free `metadata` by which LiteLLM restricts keys. All other members are an operator's notes.
_RESTRICTING = re.compile(
    r"(?i)limit|budget|guardrail|polic|(?:^|_)tags?(?:_|$)|route|param|enforce|block|allow|deny|model|expir|team_"
)
_PAGE = "1000"
_MOST_LOGS = 10_000


class LitellmForms:
    """Answers LiteLLM's paths. A caller with the master key is None. Any other caller sees only its own data."""

    def __init__(self, service: AdminService, directory: Directory) -> None:
        self._do = service.answer
        self._directory = directory
        self._turn = asyncio.Lock()
        self._handlers: Mapping[str, tuple[str, Callable[[Query, Any, Principal | None], Awaitable[Any]]]] = {
            "key/generate": ("POST", self._generate),
            "key/delete": ("POST", self._delete),
            "key/info": ("GET", self._key_info),
            "user/info": ("GET", self._user_info),
            "team/info": ("GET", self._team_info),
            "spend/logs": ("GET", self._spend_logs),
        }

    @property
    def paths(self) -> Collection[str]:
        return self._handlers.keys()

    async def answer(self, method: str, path: str, query: Query, body: Any, caller: Principal | None) -> Any:
        wanted, handler = self._handlers[path]
        if method != wanted:
            raise MethodNotAllowed(f"/{path} takes {wanted}.")
        # If providers' own keys are let through, the sender of such a key is not known here.
        if caller is not None and (wanted == "POST" or not caller.key_id):
            raise Forbidden(f"/{path} needs the proxy's master key.", code="master_key_needed")
        try:
            await self._directory.refresh()
            if caller is None:
                return await handler(query, body, caller)
            # A sum over the ledger takes a while, and no rate limit controls how often a key asks for it.
            async with self._turn:
                return await handler(query, body, caller)
        except StoreError as error:
            raise store_away(error) from error

    async def _generate(self, query: Query, body: Any, caller: Principal | None) -> Any:
        if not isinstance(body, dict):
            raise InvalidRequest("The body must be a JSON object.")
        known = {*_KEY, *_BUDGET}
        given = {name: body[name] for name in known & body.keys() if body[name] is not None}
        metadata = body.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise InvalidRequest("'metadata' must be a JSON object.", param="metadata")
        others = {name: value for name, value in body.items() if name not in {*known, "metadata"}}
        others |= {f"metadata.{name}": metadata[name] for name in restricting(metadata)}
        for name, value in others.items():
            # A limit of 0 is a limit.
            if value is not None and value is not False and value not in ("", [], {}):
                raise InvalidRequest(
                    f"'{name[:64]}' is not known here, so this key would not be held to it.", param=name[:64]
                )
        budget, secret = _budget(given), new_key()
        digest, team = digest_of(secret), given.get("team_id", DEFAULT_TEAM)
        name = declared_id(digest)
        key = {ours: given[name] for name, ours in _KEY.items() if name in given}
        # The budget comes first, so that no worker ever knows the key without it.
        if budget:
            await self._do("POST", "budgets", body={"team": team, "subject": name, "name": name, **budget})
        try:
            made = await self._do("POST", "keys", body={**key, "sha256": digest})
        except ProxyError:
            if budget:
                await self._do("DELETE", f"budgets/{team}/{name}")
            raise
        return {**self._shown(made, {}), "key": secret, "key_name": f"sk-...{secret[-4:]}"}

    async def _delete(self, query: Query, body: Any, caller: Principal | None) -> Any:
        """Revoke keys. If one of them is not known, or belongs to the configuration, no key is revoked."""
        snapshot, keys, aliases = self._directory.snapshot, _texts(body, "keys"), _texts(body, "key_aliases")
        wanted = [[self._id(one)] for one in keys]
        wanted += [[key.id for key in snapshot.keys.values() if key.note == alias] for alias in aliases]
        found = {name for names in wanted for name in names or [None]}
        if not found or None in found:
            raise NotFound("One of the keys is not known here, or none was named; none was deleted.", param="keys")
        if snapshot.declared & found:
            raise Conflict("One of the keys is declared in the proxy's configuration; none was deleted.")
        for name in found:
            await self._do("POST", f"keys/{name}/revoke")
        return {"deleted_keys": [*keys, *aliases]}

    async def _key_info(self, query: Query, body: Any, caller: Principal | None) -> Any:
        asked = query.get("key") or (caller.key_id if caller is not None else "")
        name = self._id(asked)
        if caller is not None and name != caller.key_id:
            raise Forbidden("A key may look at itself alone.", code="master_key_needed")
        if name is None:
            raise NotFound("There is no such key.", param="key")
        key = await self._do("GET", f"keys/{name}")
        return {"key": asked, "info": self._shown(key, await self._spent(key=name, team=key["team"]))}

    async def _user_info(self, query: Query, body: Any, caller: Principal | None) -> Any:
        user = _own(query, "user_id", None if caller is None else caller.user)
        teams = {} if caller is None else {"team": caller.team}
        keys = [key for key in (await self._do("GET", "keys", query=teams))["data"] if user and key["user"] == user]
        spent = await self._spent(user=user, **teams) if user else {}
        return {
            "user_id": user or None,
            "user_info": {"user_id": user or None, "spend": sum(spent.values()), "max_budget": None, "models": []},
            "keys": [self._shown(key, spent) for key in keys],
            "teams": sorted({key["team"] for key in keys}),
        }

    async def _team_info(self, query: Query, body: Any, caller: Principal | None) -> Any:
        name = _own(query, "team_id", None if caller is None else caller.team)
        if name not in self._directory.snapshot.teams:
            raise NotFound("There is no such team.", param="team_id")
        team, spent = await self._do("GET", f"teams/{name}"), await self._spent(team=name)
        keys = (await self._do("GET", "keys", query={"team": name}))["data"]
        info = {"team_id": name, "team_alias": name, "models": team["models"], "spend": sum(spent.values()),
                "rpm_limit": team["requests_per_minute"], "tpm_limit": team["tokens_per_minute"], "blocked": False,
                "created_at": _iso(team["created_at"]), "members_with_roles": [], "metadata": {}}  # fmt: skip
        info |= dict(zip(_BUDGET, self._limit(name, "team", "*"), strict=True))
        shown = [self._shown(key, spent) for key in keys if caller is None or key["id"] == caller.key_id]
        return {"team_id": name, "team_info": info, "keys": shown, "team_memberships": []}

    async def _spend_logs(self, query: Query, body: Any, caller: Principal | None) -> Any:
        key = caller.key_id if caller is not None else query.get("api_key", "")
        name = self._id(key) or key
        since, until, user = query.get("start_date"), query.get("end_date", ""), query.get("user_id", "")
        of = _given({"team": caller.team if caller is not None else "", "until": until})
        if since and until and query.get("summarize", "true").lower() != "false":
            asked = {"since": since, "by": "day,key,user,model", **of, **_given({"key": name, "user": user})}
            return await asyncio.to_thread(list, _daily((await self._do("GET", "spend", query=asked))["data"]))
        wanted = _given({"key_id": name, "user": user, "exchange_id": query.get("request_id", "")})
        newest = deque[View](maxlen=_MOST_LOGS)
        async for one in ledger_entries(self._do, {"since": since or "1d", "limit": _PAGE, **of}):
            if all(one[field] == value for field, value in wanted.items()):
                newest.appendleft(one)
        return await asyncio.to_thread(list, map(_log, newest))

    async def _spent(self, **of: str) -> Mapping[str, float]:
        """The total spend of each key."""
        rows = (await self._do("GET", "spend", query={"since": "0", "by": "key", **_given(of)}))["data"]
        return {row["key"]: row["cost_usd"] for row in rows}

    def _id(self, text: str) -> str | None:
        """The id of a key. The text may be the id, the key's SHA-256, or the key itself."""
        keys, digest = self._directory.snapshot.keys, digest_of(text)
        return text if text in keys else next((one.id for one in keys.values() if one.digest in (text, digest)), None)

    def _limit(self, team: str, scope: str, subject: str) -> tuple[float | None, str | None]:
        """The hard limit in USD of a counter, and its window."""
        for one in self._directory.snapshot.by_team.get(team, ()):
            if (one.scope, one.subject, one.unit) == (scope, subject, "usd") and one.hard is not None:
                return validation.usd(one.hard), one.window
        return None, None

    def _shown(self, key: View, spent: Mapping[str, float]) -> View:
        shown = {name: key[ours] for name, ours in _KEY.items() if name != "duration"}
        return shown | {
            "token": key["id"], "token_id": key["id"], "expires": _iso(key["expires_at"]), "status": key["status"],
            "created_at": _iso(key["created_at"]), "blocked": key["status"] == "revoked", "metadata": {},
            "spend": spent.get(key["id"], 0.0),
            **dict(zip(_BUDGET, self._limit(key["team"], "key", key["id"]), strict=True)),
        }  # fmt: skip


def _own(query: Query, name: str, own: str | None) -> str:
    """The value that a query asks for, by default the caller's ``own``. If ``own`` is None, the caller may see all.
    Raises Forbidden."""
    asked = query.get(name) or own or ""
    if own is not None and asked != own:
        raise Forbidden(f"A key may look at its own '{name}' alone.", code="master_key_needed")
    return asked


def restricting(metadata: Mapping[str, Any]) -> list[str]:
    """The members of a key's ``metadata`` by which LiteLLM limits what the key may do."""
    return [name for name in metadata if _RESTRICTING.search(name)]


def _texts(body: Any, name: str) -> list[str]:
    given = body.get(name) or [] if isinstance(body, dict) else None
    if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
        raise InvalidRequest(f"'{name}' must be a list of texts.", param=name)
    return given


def _budget(given: Mapping[str, Any]) -> View:
    """The budget of a key that is to be made; empty if the key has no budget."""
    duration = given.get("budget_duration", "")
    if not isinstance(duration, str):
        raise InvalidRequest("'budget_duration' must be a text.", param="budget_duration")
    if "max_budget" in given:
        return {"scope": "key", "usd": given["max_budget"], "window": checked("budget_duration", window_of, duration)}
    if duration:
        raise InvalidRequest("'budget_duration' goes with 'max_budget'.", param="budget_duration")
    return {}


def _given(query: Query) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def _iso(at: float | None) -> str | None:
    return None if at is None else date_of(at).isoformat()


def _daily(rows: list[View]) -> Iterator[View]:
    """The rows of a report by day, key, user and model, summed up to one row for each day with its parts."""
    for day, group in groupby(sorted(rows, key=lambda row: str(row["day"])), key=lambda row: row["day"]):
        of_day = list(group)
        parts = {part: {row[part]: 0.0 for row in of_day} for part in ("key", "user", "model")}
        for row in of_day:
            for part, sums in parts.items():
                sums[row[part]] += row["cost_usd"]
        total = sum(row["cost_usd"] for row in of_day)
        yield {**parts["key"], "startTime": day, "spend": total, "users": parts["user"], "models": parts["model"]}


def _log(entry: View) -> View:
    """An entry of the ledger as a row of LiteLLM's spend logs."""
    read, output = entry["read_tokens"], entry["output_tokens"]
    written = entry["write_5m_tokens"] + entry["write_1h_tokens"]
    prompt = read + written + entry["plain_tokens"]
    return {
        "request_id": entry["exchange_id"], "call_type": "acompletion", "api_key": entry["key_id"],
        "spend": entry["cost_usd"], "total_tokens": prompt + output, "prompt_tokens": prompt,
        "completion_tokens": output, "startTime": _iso(entry["at"]),
        "endTime": _iso(entry["at"] + entry["latency_ms"] / 1000), "model": entry["model"], "user": entry["user"],
        "team_id": entry["team"], "cache_hit": "False", "request_tags": [],
        "status": "success" if entry["status"] < 400 else "failure",
        "metadata": {"usage_object": {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}},
    }  # fmt: skip

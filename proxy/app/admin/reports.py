"""What the admin API reports: live sessions, with their owners, usage, tiers, and how long their cache lives; and spend
and pages of the ledger, as JSON or as CSV for spreadsheets.

``grouped`` sums up rows of the admin API's answers by common values, for everything that shows such sums.
"""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol, get_args
from zoneinfo import ZoneInfo

import orjson
from msgspec import to_builtins

from proxy.context.blocks import Circumstances, hit_rate, shown
from proxy.kit.errors import InvalidRequest, MethodNotAllowed, NotFound
from proxy.kit.modes import Edit
from proxy.kit.tasks import in_turns
from proxy.planner.session_record import SessionDetails, SessionPage, SessionRecord, SessionRequest
from proxy.planner.tiers import Change, Tier
from proxy.protocol.response.usage import Usage
from proxy.protocol.wire.json_body import Unreadable, dumps, elements, members_of, printable, read_or_mended
from proxy.storage import LedgerEntry, SpendGroup, SpendQuery, SpendRow, Store
from proxy.teams import validation
from proxy.teams.validation import between, checked

Query = Mapping[str, str]
View = dict[str, Any]
"""A record as it is shown: a JSON object with the names of the configuration. It holds no secret and no digest."""

_MOST = 1000
_MOST_WORDS = 200
_MOST_DIAGNOSES = 100
_MOST_MESSAGES, _MOST_TEXT = 50, 20_000
_TIERS = {tier.label: tier for tier in Tier}


def check_query(query: Mapping[str, str], known: Iterable[str]) -> None:
    """Raises InvalidRequest if a parameter is not known."""
    unknown = sorted(set(query) - set(known))
    if unknown:
        raise InvalidRequest(f"There is no parameter '{unknown[0][:64]}'.", param=unknown[0][:64])


def limit_of(query: Mapping[str, str], default: str, most: int) -> int:
    """The parameter ``limit`` of a query, which is a whole number of at least 1. Raises InvalidRequest."""
    text = query.get("limit", default)
    return int(checked("limit", between(1, most), int(text[:9]) if text.isdecimal() else 0))


class Sessions(Protocol):
    """The stored data of sessions. No method raises an error if the store is away."""

    async def page(self, behind: str, limit: int, team: str = "", words: str = "") -> SessionPage:
        """At most ``limit`` sessions after the previous page, of one team or of all teams, with these words in the
        texts that tell sessions apart. Raises ValueError if ``behind`` does not come from a page."""

    async def one(self, session: str) -> tuple[SessionPage, SessionDetails]:
        """One session, and its details. The page is empty if there is no such session."""

    def text(self, session: str) -> bytes | None:
        """The last request of a session as it came; None if it is not kept."""


async def sessions_answer(sessions: Sessions, method: str, path: str, query: Query, now: float) -> View:
    """Answers ``sessions`` and ``sessions/ID``, and the ``breakdown``, ``requests`` and ``text`` of one session. Raises
    InvalidRequest, NotFound, MethodNotAllowed."""
    if method != "GET":
        raise MethodNotAllowed("Sessions can only be read.")
    if not path:
        return await _list(sessions, query, now)
    check_query(query, ())
    name, _, rest = path.partition("/")
    if rest not in ("", "breakdown", "requests", "text"):
        raise NotFound("Of a session there are its breakdown, its requests and its text, and nothing else.")
    page, details = await sessions.one(name)
    if not page.records:
        raise NotFound("There is no such session, or it was not used for a day.")
    view = _view(page.records[0], now) | _standing(page)
    if not rest:
        return view
    if rest == "requests":
        return view | {"data": await in_turns(map(_request_view, details.requests()))}
    if rest == "text":
        if (body := sessions.text(name)) is None:
            raise NotFound("The text is not kept: stratiform.ui.show_text is off, or another worker has served it.")
        return {"object": "session.text", "id": name, "data": await asyncio.to_thread(_texts, body)}
    contents = details.contents()
    if contents is None:
        raise NotFound("Of this session only the figures are kept, and not what it consists of.")
    own = await in_turns(one for one in details.requests() if not one.is_refresh)
    diagnosis = {"diagnosis": await in_turns(map(_diagnosis, own[-_MOST_DIAGNOSES:]))}
    total, (most_input, most_output) = page.records[0].total(), contents.limits
    about = Circumstances(
        model=page.records[0].facts.model,
        max_input_tokens=most_input,
        max_output_tokens=most_output,
        changes=[Change(key, _TIERS[source], _TIERS.get(target), "") for key, source, target in contents.moves],
        empty_tiers_total=total.empty_tiers,
        last=Usage(*contents.last) if contents.last is not None else None,
        total=total.usage,
        edits={Edit(name): count for name, count in contents.edits.items()},
    )
    return view | shown(contents.inventory, about) | diagnosis


async def _list(sessions: Sessions, query: Query, now: float) -> View:
    check_query(query, ("behind", "limit", "q", "team"))
    limit, words = limit_of(query, "100", _MOST), query.get("q", "")[:_MOST_WORDS]
    try:
        page = await sessions.page(query.get("behind", ""), limit, query.get("team", ""), words)
    except ValueError as error:
        raise InvalidRequest("'behind' must be what the page before says.", param="behind") from error
    data = await in_turns(_view(record, now) for record in page.records)
    return {"object": "list", "data": data, "has_more": bool(page.behind), "behind": page.behind, **_standing(page)}


def _standing(page: SessionPage) -> View:
    """The time since which the figures are counted."""
    return {"as_of": page.as_of, "store_away": page.is_away}


def _view(record: SessionRecord, now: float) -> View:
    facts, total = record.facts, record.total()
    usage = total.usage
    # The cost in the session's own mode is by the provider's figures, and in the other modes by the shadow cache. In
    # mode mark, the cost of another order is not known.
    modes = [
        ("passthrough", total.client_read_tokens, total.client_usd),
        ("mark", total.marked_read_tokens, total.marked_usd),
        ("tier", total.planned_read_tokens, total.planned_usd),
    ][: 2 if facts.mode == "mark" else 3]
    own = "passthrough" if facts.mode == "observe" else facts.mode
    return {
        "object": "session",
        "id": record.id,
        "team": facts.team,
        "key": facts.key_id,
        "user": facts.user,
        "model": facts.model,
        "client": facts.client,
        "mode": facts.mode,
        "reason": facts.reason,
        "first_seen": record.began_at,
        "last_seen": total.at,
        "requests": total.requests,
        "read_tokens": total.read_tokens,
        "write_tokens": usage.write,
        "uncached_tokens": total.uncached_tokens,
        "output_tokens": total.output_tokens,
        "hit_ratio": hit_rate(None, usage),
        "cost_usd": round(total.cost_usd, 9),
        "saved_usd": round(total.saved_usd, 9),
        "modes": [
            {
                "mode": mode,
                "read_tokens": read,
                "cost_usd": round(usd, 9),
                "by": "provider" if mode == own else "shadow",
            }
            for mode, read, usd in modes
        ],
        "tiers": {label: facts.tiers.get(label, 0) for label in _TIERS},
        "breakpoints": [
            {"tokens": tokens, "until": facts.read_at + life_s, "is_live": facts.read_at + life_s > now}
            for tokens, life_s in facts.breakpoints
        ],
        "culprits": [{"culprit": name, "breaks": breaks, "usd": round(usd, 9)} for name, breaks, usd in facts.culprits],
    }


def _diagnosis(one: SessionRequest) -> View:
    """The cause of a cache break in one request. ``kind`` is empty if nothing broke the cache."""
    names = ("at", "prompt", "read", "written", "kind", "culprit", "is_waste", "line", "before", "tokens", "lost")
    behind = max(0, one.prompt - one.before - one.tokens) if one.kind else 0
    return {name: getattr(one, name) for name in names} | {"behind": behind, "usd": _usd(one.lost_usd)}


def _request_view(one: SessionRequest) -> View:
    """One request, in the client's own layout and as it was planned. One of the two was sent, and the provider has
    reported its figures. The shadow cache estimates the figures of the other one."""
    broke = {
        "kind": one.kind,
        "culprit": one.culprit,
        "line": one.line or None,
        "is_waste": one.is_waste,
        "before_tokens": one.before,
        "lost_tokens": one.lost,
        "usd": _usd(one.lost_usd),
    }
    other_usd = one.cost_usd + (-one.saved_usd if one.is_observed else one.saved_usd)
    sent = _layout_view(one.prompt, one.read, one.written, one.cost_usd, "provider")
    # A refresh is not a client's request.
    prompt, read, written = (0, 0, 0) if one.is_refresh else (one.prompt, one.other_read, one.other_written)
    other = _layout_view(prompt, read, written, other_usd, "shadow")
    client, planned = (sent, other) if one.is_observed else (other, sent)
    return {
        "at": one.at,
        "keep_alive": one.is_refresh,
        "prompt_tokens": one.prompt,
        "client_layout": client,
        "planned_layout": planned,
        "break": broke if one.kind else None,
    }


def _layout_view(prompt: int, read: int, written: int, usd: float, source: str) -> View:
    return {
        "read_tokens": read,
        "write_tokens": written,
        "uncached_tokens": max(0, prompt - read - written),
        "cost_usd": _usd(usd),
        "by": source,
    }


def _usd(amount: float) -> float:
    """An amount, rounded to the seven digits that are kept."""
    return float(f"{amount:.7g}")


def _texts(body: bytes) -> list[View]:
    """The messages of a request: their roles and their texts. Content that is more than a text is shown as JSON.
    Entries that do not have the form of a message are left out."""
    last: list[object] = []
    with suppress(Unreadable):
        # Only the part of a long conversation that is shown is read.
        raws = elements(members_of(body).get("messages", b"[]"))[-_MOST_MESSAGES:]
        last = [read_or_mended(orjson.loads, bytes(raw)) for raw in raws]
    return [
        {"role": printable(str(message.get("role"))), "text": _text(message.get("content"))[:_MOST_TEXT]}
        for message in last
        if isinstance(message, dict)
    ]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    with suppress(RecursionError):
        return dumps(content).decode()
    return ""


BILLED = ("requests", "read_tokens", "write_tokens", "uncached_tokens", "cost_usd", "saved_usd")
"""The counters that sessions and reports of spend have in common."""


def grouped(rows: Iterable[Mapping[str, Any]], by: Sequence[str], sums: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each group: the common values, the ``sums`` (for ``last_seen`` the latest value), and the share of
    the prompts that was read from the cache, if tokens are counted. The most expensive group comes first, by the sum
    whose name ends in ``usd``."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in by)
        line = found.setdefault(key, dict(zip(by, key, strict=True)) | dict.fromkeys(sums, 0))
        for name in sums:
            line[name] = max(line[name], row[name]) if name == "last_seen" else line[name] + row[name]
    usd = next(name for name in sums if name.endswith("usd"))
    return sorted(map(with_ratio, found.values()), key=lambda line: -line[usd])


def with_ratio(sums: Mapping[str, Any]) -> dict[str, Any]:
    """These sums, with the hit ratio if they have tokens."""
    if "read_tokens" not in sums:
        return dict(sums)
    prompt = sums["read_tokens"] + sums["write_tokens"] + sums["uncached_tokens"]
    return {**sums, "hit_ratio": sums["read_tokens"] / prompt if prompt else 0.0}


GROUPS: Sequence[str] = get_args(SpendGroup)
_SUMS = (
    "requests", "read_tokens", "write_tokens", "uncached_tokens", "output_tokens", "cost_usd", "saved_usd",
    "estimated_requests",
)  # fmt: skip
_PARAMETERS = frozenset({"since", "until", "by", "team", "key", "user", "model", "timezone", "format"})
_ENTRY_PARAMETERS = frozenset({"since", "until", "team", "after", "limit", "format"})
# Spreadsheets read a text that begins with one of these as a formula
# (https://owasp.org/www-community/attacks/CSV_Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_IN_USD: Final = {"cost": "cost_usd", "saved": "saved_usd", "break_cost": "break_usd"}


async def spend_report(store: Store, query: Mapping[str, str], now: float) -> Any:
    """The spend in ``since <= at < until``, summed up by the groups in ``by``. Raises InvalidRequest."""
    _check(query, _PARAMETERS)
    names = (part.strip() for part in query.get("by", "team").split(","))
    by: tuple[Any, ...] = tuple(dict.fromkeys(filter(None, names)))
    if not set(by) <= set(GROUPS):
        raise InvalidRequest(f"'by' must be some of {', '.join(GROUPS)}, with commas between.", param="by")
    since, until = _range(query, now)
    zone = checked("timezone", validation.timezone, query.get("timezone", "UTC"))
    offset = datetime.fromtimestamp(until, UTC).astimezone(ZoneInfo(zone)).utcoffset() or timedelta()
    rows = await store.spend(
        SpendQuery(
            since=since,
            until=until,
            by=by,
            team=query.get("team"),
            key_id=query.get("key"),
            user=query.get("user"),
            model=query.get("model"),
            utc_offset_s=int(offset.total_seconds()),
        )
    )
    # There may be very many rows: a client may name another user with each request.
    lines = await asyncio.to_thread(list, map(_spend_view, rows))
    if query.get("format") == "csv":
        return await asyncio.to_thread(as_csv, [*by, *_SUMS], lines)
    return {
        "object": "list",
        "since": since,
        "until": until,
        "by": list(by),
        "data": lines,
        "total": {name: round(sum(line[name] for line in lines), 9) for name in _SUMS},
    }


def _spend_view(row: SpendRow) -> View:
    return {
        **row.group,
        "requests": row.requests,
        "read_tokens": row.read_tokens,
        "write_tokens": row.write_tokens,
        "uncached_tokens": row.plain_tokens,
        "output_tokens": row.output_tokens,
        "cost_usd": validation.usd(row.cost),
        "saved_usd": validation.usd(row.saved),
        "estimated_requests": row.estimated,
    }


async def entries_report(store: Store, query: Mapping[str, str], now: float) -> Any:
    """A page of the ledger, oldest entries first. For the next page, ``since`` is the last entry's ``at`` and ``after``
    its exchange id. Raises InvalidRequest."""
    _check(query, _ENTRY_PARAMETERS)
    since, until = _range(query, now)
    limit = limit_of(query, "1000", 10_000)
    entries = await store.entries(since, until, query.get("after", ""), limit, query.get("team"))
    lines = await asyncio.to_thread(list, map(_entry_view, entries))
    if query.get("format") == "csv":
        return await asyncio.to_thread(as_csv, [_IN_USD.get(name, name) for name in LedgerEntry.__match_args__], lines)
    return {"object": "list", "since": since, "until": until, "data": lines, "has_more": len(lines) == limit}


def _entry_view(entry: LedgerEntry) -> View:
    values = to_builtins(entry).items()
    return {_IN_USD.get(name, name): validation.usd(value) if name in _IN_USD else value for name, value in values}


async def ledger_entries(ask: Callable[..., Awaitable[Any]], query: Mapping[str, str]) -> AsyncIterator[View]:
    """The entries of the ledger that the query asks for, the oldest first. They are fetched page by page with
    ``await ask(method, path, query)``."""
    page = dict(query)
    while True:
        content = await ask("GET", "entries", page)
        for entry in content["data"]:
            yield entry
        if not content["has_more"]:
            return
        last = content["data"][-1]
        page.update(since=repr(last["at"]), until=repr(content["until"]), after=str(last["exchange_id"]))


def as_csv(columns: Sequence[str], lines: Iterable[View]) -> str:
    """Lines as CSV (RFC 4180). A text that a spreadsheet would read as a formula gets an apostrophe in front."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for line in lines:
        writer.writerow([cell(line.get(column)) for column in columns])
    return out.getvalue()


def cell(value: Any) -> Any:
    """A value as it may stand in a spreadsheet."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _check(query: Mapping[str, str], known: frozenset[str]) -> None:
    check_query(query, known)
    if query.get("format", "json") not in ("json", "csv"):
        raise InvalidRequest("'format' must be json or csv.", param="format")


def _range(query: Mapping[str, str], now: float) -> tuple[float, float]:
    moment = partial(validation.moment, now=now, ahead=False)
    since = checked("since", moment, query.get("since", "30d"))
    until = checked("until", moment, query["until"]) if "until" in query else now + 1.0
    if since >= until:
        raise InvalidRequest("'since' must lie before 'until'.", param="since")
    return since, until

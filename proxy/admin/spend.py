"""Reports of spend and pages of the ledger, as JSON or as CSV for spreadsheets.

``grouped`` sums up rows of the admin API's answers by common values, for everything that shows such sums.
"""

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, get_args
from zoneinfo import ZoneInfo

from proxy.access import validation
from proxy.admin.forms import View, check_query, checked, limit_of
from proxy.errors import InvalidRequest
from proxy.storage.port import LedgerEntry, SpendGroup, SpendQuery, Store

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
    lines: list[View] = [
        {
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
        for row in rows
    ]
    if query.get("format") == "csv":
        return as_csv([*by, *_SUMS], lines)
    return {
        "object": "list",
        "since": since,
        "until": until,
        "by": list(by),
        "data": lines,
        "total": {name: round(sum(line[name] for line in lines), 9) for name in _SUMS},
    }


async def entries_report(store: Store, query: Mapping[str, str], now: float) -> Any:
    """A page of the ledger, oldest entries first. For the next page, ``since`` is the last entry's ``at`` and ``after``
    its exchange id. Raises InvalidRequest."""
    _check(query, _ENTRY_PARAMETERS)
    since, until = _range(query, now)
    limit = limit_of(query, "1000", 10_000)
    entries = await store.entries(since, until, query.get("after", ""), limit, query.get("team"))
    lines = [asdict(entry) for entry in entries]
    for line in lines:
        line |= {shown: validation.usd(line.pop(name)) for name, shown in _IN_USD.items()}
    if query.get("format") == "csv":
        return as_csv([_IN_USD.get(field.name, field.name) for field in fields(LedgerEntry)], lines)
    return {"object": "list", "since": since, "until": until, "data": lines, "has_more": len(lines) == limit}


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
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if is_formula else "" if value is None else value


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

"""Live sessions: who they belong to, what they used, which tiers they consist of, and how long their cache lives."""

from dataclasses import asdict
from typing import Protocol

from proxy.admin.forms import check_query, checked
from proxy.admin.resource import Query, View
from proxy.core.diagnosis.history import History
from proxy.core.layout.tiers import Change, Tier
from proxy.core.reasons import Edit
from proxy.core.response.usage import Usage
from proxy.core.sessions.session_record import SessionContents, SessionPage, SessionRecord
from proxy.core.structured.blocks.breakdown import Circumstances, hit_rate, shown
from proxy.errors import InvalidRequest, MethodNotAllowed, NotFound

_PARAMETERS = frozenset({"behind", "limit", "team"})
_MOST = 1000
_DEFAULT = "100"
_TIERS = {tier.label: tier for tier in Tier}


class Sessions(Protocol):
    """What is kept of sessions. Nothing here raises for a store that is away."""

    async def page(self, behind: str, limit: int, team: str = "") -> SessionPage:
        """At most so many sessions behind the page before, of one team or of all. Raises ValueError where ``behind`` is
        none of a page's."""
        ...

    async def one(self, session: str) -> tuple[SessionPage, SessionContents | None]:
        """One session, and what its last request consisted of; None: that is not kept (any more)."""
        ...


async def sessions_answer(sessions: Sessions, method: str, path: str, query: Query, now: float) -> View:
    """``sessions``, ``sessions/ID`` and ``sessions/ID/breakdown``. Raises InvalidRequest, NotFound,
    MethodNotAllowed."""
    if method != "GET":
        raise MethodNotAllowed("Sessions can only be read.")
    if not path:
        return await _list(sessions, query, now)
    check_query(query, ())
    name, _, rest = path.partition("/")
    if rest not in ("", "breakdown"):
        raise NotFound("Of a session there is its breakdown, and nothing else.")
    page, contents = await sessions.one(name)
    if not page.records:
        raise NotFound("There is no such session, or it was not used for a day.")
    view = _view(page.records[0], now) | _standing(page)
    if not rest:
        return view
    if contents is None:
        raise NotFound("Of this session only the figures are kept, and not what it consists of.")
    diagnosis = [asdict(entry) for entry in History(contents.diagnoses, contents.culprits).entries()]
    return view | shown(contents.inventory, _about(page.records[0], contents)) | {"diagnosis": diagnosis}


async def _list(sessions: Sessions, query: Query, now: float) -> View:
    check_query(query, _PARAMETERS)
    limit = checked("limit", _limit, query.get("limit", _DEFAULT))
    try:
        page = await sessions.page(query.get("behind", ""), limit, query.get("team", ""))
    except ValueError as error:
        raise InvalidRequest("'behind' must be what the page before says.", param="behind") from error
    data = [_view(record, now) for record in page.records]
    return {"object": "list", "data": data, "has_more": bool(page.behind), "behind": page.behind, **_standing(page)}


def _standing(page: SessionPage) -> View:
    """Since when the figures stand."""
    return {"as_of": page.as_of, "store_away": page.is_away}


def _view(record: SessionRecord, now: float) -> View:
    facts, total = record.facts, record.total()
    usage = total.usage
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
        "tiers": {label: facts.tiers.get(label, 0) for label in _TIERS},
        "breakpoints": [
            {"tokens": tokens, "until": facts.read_at + life_s, "is_live": facts.read_at + life_s > now}
            for tokens, life_s in facts.breakpoints
        ],
    }


def _about(record: SessionRecord, contents: SessionContents) -> Circumstances:
    total, inventory = record.total(), contents.inventory
    most_input, most_output = contents.limits
    return Circumstances(
        model=record.facts.model,
        max_input_tokens=most_input,
        max_output_tokens=most_output,
        changes=[Change(key, _TIERS[source], _TIERS.get(target), "") for key, source, target in contents.moves],
        empty_tiers_total=total.empty_tiers,
        last=Usage(*contents.last) if contents.last is not None else None,
        total=total.usage,
        panels=inventory.panels,
        edits={Edit(name): count for name, count in contents.edits.items()},
        freezing_cost=inventory.freezing_cost,
    )


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= _MOST:
        raise ValueError(f"must be between 1 and {_MOST}")
    return int(text)

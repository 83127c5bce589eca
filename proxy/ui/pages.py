"""The content of each page, from the answers of the admin API."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup

from proxy.admin import AdminService
from proxy.admin.grouping import BILLED, grouped, with_ratio
from proxy.errors import NotFound, NotReady
from proxy.ui import picture, words
from proxy.ui.templates import Page, static

Query = Mapping[str, str]
Rows = Sequence[Mapping[str, Any]]
_PERIODS: Final = ("24h", "7d", "30d")
_MOST_SESSIONS = 500
_MOST_CULPRITS = 10
_AT_ONCE = 100
_MOST_LISTED = 500


class Pages:
    """Builds pages. A wrong request gets the same error as at the admin API."""

    def __init__(self, service: AdminService) -> None:
        self._service = service
        self._pages: Mapping[str, Callable[[Query], Awaitable[Page]]] = {
            "": self.overview,
            "sessions": self.sessions,
            "teams": self.teams,
            "keys": partial(self._managed, "keys"),
            "budgets": partial(self._managed, "budgets"),
        }

    async def page(self, path: str, query: Query) -> Page:
        """The page of that path. Raises ProxyError."""
        if path in self._pages:
            return await self._pages[path](query)
        kind, _, name = path.partition("/")
        if kind == "sessions" and name and "/" not in name:
            return await self.session(name)
        if kind == "sessions" and name.endswith("/requests"):
            return await self.requests(name.removesuffix("/requests"))
        raise NotFound("There is no such page.")

    async def overview(self, query: Query) -> Page:
        """The savings by team and model, the live sessions, and the causes of cache breaks."""
        since = query.get("since", _PERIODS[1])
        asked = {"since": since, "by": "team"}
        nothing: dict[str, Any] = {"data": [], "total": dict.fromkeys(BILLED, 0), "is_away": True}
        spend = await self._get_or(nothing, "spend", asked)
        by_model = await self._get_or(nothing, "spend", {**asked, "by": "model"})
        nobody: dict[str, Any] = {"data": [], "store_away": False, "as_of": 0.0}
        listed = await self._get_or(nobody, "sessions", {"limit": str(_MOST_SESSIONS)})
        store = await self._get_or({}, "store")
        costliest = max(listed["data"], key=lambda one: one["cost_usd"], default=None)
        data = {
            "since": since,
            "periods": _PERIODS,
            "total": with_ratio(spend["total"]),
            **await asyncio.to_thread(_tables, spend["data"], by_model["data"], listed["data"]),
            "listed": len(listed["data"]),
            "away": "is_away" in spend or listed["store_away"],
            "as_of": listed["as_of"],
            "lost": store.get("lost", []),
            "costliest": costliest,
            **(await self._drawn(costliest) if costliest is not None else {}),
        }
        return Page("Overview", "overview.html", data)

    async def sessions(self, query: Query) -> Page:
        """Live sessions, searched and paged."""
        asked = {name: query[name] for name in ("team", "q", "behind") if query.get(name)}
        answer = await self._get("sessions", {**asked, "limit": str(_AT_ONCE)})
        data = {
            "sessions": answer["data"],
            "further": urlencode({**asked, "behind": answer["behind"]}) if answer["has_more"] else "",
            "is_first": "behind" not in asked,
            "asked": {"q": asked.get("q", ""), "team": asked.get("team", "")},
            "away": answer["store_away"],
            "as_of": answer["as_of"],
        }
        return Page("Sessions", "sessions.html", data, forms="search.html", nav="sessions")

    async def session(self, name: str) -> Page:
        """One session: its picture, its layers, and its cost in other modes."""
        session = await self._get(f"sessions/{name}")
        data = {
            "session": session,
            "contents": await self._get_or({}, f"sessions/{name}/breakdown"),
            **await self._drawn(session),
            # None if the text is not shown, or not kept by this worker.
            "text": (await self._get_or({"data": None}, f"sessions/{name}/text"))["data"],
            "away": session["store_away"],
            "as_of": session["as_of"],
        }
        return Page(f"Session {words.cut(name, 24)}", "session.html", data, nav="sessions")

    async def requests(self, name: str) -> Page:
        """The figures from which the picture of a session is drawn."""
        answer = await self._get(f"sessions/{name}/requests")
        return Page(
            "Requests", "requests.html", {"session": answer, "requests": answer["data"]}, nav="sessions", is_live=False
        )

    async def drawing(self, name: str) -> str:
        """The picture of a session as one file."""
        session = await self._get(f"sessions/{name}")
        requests = (await self._get(f"sessions/{name}/requests"))["data"]
        return await asyncio.to_thread(
            picture.document, requests, words.sentence(session, requests), static("picture.css").decode()
        )

    async def teams(self, query: Query) -> Page:
        """Teams, and the form that makes one."""
        return Page("Teams", "teams.html", {"teams": (await self._get("teams"))["data"]}, nav="teams", is_live=False)

    async def _managed(self, kind: str, query: Query) -> Page:
        """Keys or budgets, of one team or of all."""
        team = query.get("team", "")
        found = (await self._get(kind, {"team": team} if team else {}))["data"]
        teams = [one["name"] for one in (await self._get("teams"))["data"]]
        data = {kind: found[:_MOST_LISTED], "more": max(0, len(found) - _MOST_LISTED), "teams": teams, "team": team}
        return Page(kind.capitalize(), f"{kind}.html", data, nav=kind, is_live=False)

    async def _drawn(self, session: Mapping[str, Any]) -> Mapping[str, Any]:
        """The picture of a session, and the sentence above it."""
        requests = (await self._get(f"sessions/{session['id']}/requests"))["data"]
        # Drawing takes some milliseconds, in which requests of clients would wait.
        return await asyncio.to_thread(_drawing, session, requests)

    async def _get_or(self, instead: dict[str, Any], path: str, query: Query | None = None) -> dict[str, Any]:
        """The answer of the admin API, or ``instead`` if there is no answer or the store is away."""
        with suppress(NotFound, NotReady):
            return await self._get(path, query)
        return instead

    async def _get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = await self._service.answer("GET", path, query or {})
        return answer


def _drawing(session: Mapping[str, Any], requests: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return {
        "requests": requests,
        "sentence": words.sentence(session, requests),
        "blamed": words.culprits(requests)[:_MOST_CULPRITS],
        "halves": tuple(map(Markup, picture.halves(requests))),  # their texts are escaped
        "legend": Markup(picture.legend()),
    }


def _tables(spend: Rows, by_model: Rows, sessions: Rows) -> Mapping[str, Any]:
    """The tables of the spend, and of the causes of cache breaks."""
    broken = ({**one, "sessions": 1} for session in sessions for one in session["culprits"])
    return {
        "groups": {
            "team": grouped(spend, ("team",), BILLED),
            "model": grouped(by_model, ("model",), BILLED),
            "client": grouped(sessions, ("client",), BILLED),
        },
        "culprits": grouped(broken, ("culprit",), ("breaks", "sessions", "usd"))[:_MOST_CULPRITS],
    }

"""The content of each page, from the answers of the admin API, and the templates that are filled with it.

Every text in a template is escaped, whatever its source.

The picture of a session has a row for each request, as wide as its prompt, in the client's own layout and in ours. Both
layouts are drawn at one scale. A row consists of the tokens that were read from the cache, written to it, and paid in
full. These parts differ by colour and by hatch, so that they can be told apart in print and by everybody. A notch shows
where sent content broke the cache; the most expensive breaks have a name. The picture shows no text of a prompt.

Figures and names stand at the beginning as people read them. ``Pages`` asks the admin API and puts each page together.
"""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from markupsafe import Markup

from proxy.app.admin import AdminService
from proxy.app.admin.reports import BILLED, grouped, with_ratio
from proxy.kit.errors import NotFound, NotReady
from proxy.kit.value import dataclass, field

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent

_MOST_CHARS = 64
_TURN, _VOLATILE = "turn:", "volatile:"
_PLACE = re.compile(r"^(?:[\w-]+:[\w-]+/)?(?:file|symbol|section):(?=.)")
# A document by its last attribute, in the form of keys (``/source:a.md``) or of the prompt (`` source="a.md"``).
_DOCUMENT = re.compile(r"^document:(?:.*[/ ])?[\w-]+[:=]\"?([^\"]+?)\"?(?::[0-9a-f]{12})?$")
_DOCUMENTS = re.compile(r"^documents?:([0-9a-f]{4})[0-9a-f]{8}$")
_VERBS = {
    "changed": "changed",
    "appeared": "appeared",
    "disappeared": "disappeared",
    "reordered": "moved",
    "compacted": "was compacted",
}


def usd(amount: float | None) -> str:
    """USD to the cent. An amount of less than a cent is shown with its first two digits."""
    if amount is None:
        return "unlimited"
    sign, size = "−" if amount < 0 else "", abs(amount)
    if 0 < size < 1e-4:
        return f"{sign}<$0.0001"
    return f"{sign}${size:.2g}" if 0 < size < 0.01 else f"{sign}${size:,.2f}"


def short(count: float) -> str:
    """A count of tokens in three digits."""
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    return next((f"{count / size:.3g}{unit}" for size, unit in units if abs(count) >= size), f"{count:g}")


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{share * 100:.1f}%"


def cut(name: Any, most: int = _MOST_CHARS) -> str:
    """A name that a client chose, without characters that no font shows, and cut to ``most`` characters."""
    text = "".join(char if char.isprintable() else "·" for char in str(name or "")[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"


def piece(key: Any) -> str:
    """The client's own name of a piece. In a key, the place and the kind of the piece precede that name."""
    name = cut(key, 200)
    if name.startswith(_TURN):
        return f"a turn of the {name[len(_TURN) :]}"
    if _VOLATILE in name:
        return "a line that changes"
    if found := _DOCUMENT.match(name):
        return found[1]
    return f"documents ({found[1]})" if (found := _DOCUMENTS.match(name)) else _PLACE.sub("", name)


def moment(at: float | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time in UTC."""
    try:
        return "" if at is None else datetime.fromtimestamp(at, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "unknown"


def times(count: int) -> str:
    """A number of times, in words."""
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def sentence(session: Mapping[str, Any], requests: Sequence[Mapping[str, Any]]) -> str:
    """The sentence above a session: its cost, its cost in the client's own layout, and the culprit."""
    count, cost, saved = session["requests"], session["cost_usd"], session["saved_usd"]
    instead = f" instead of {usd(cost + saved)}" if usd(cost + saved) != usd(cost) else ""
    worst = [f"; {blamed(one)}" for one in culprits(requests)[:1] if one["usd"] > 0]
    return f"{count:,} request{'' if count == 1 else 's'}, {usd(cost)}{instead}{''.join(worst)}."


def blamed(one: Mapping[str, Any]) -> str:
    """A clause about the cost of one culprit."""
    name, kind, breaks, cost = one["culprit"], one["kind"], times(one["breaks"]), usd(one["usd"])
    if not name:
        return f"the cache broke {breaks} ({kind}) and that cost {cost}"
    return f"{cut(piece(name))} {_VERBS.get(kind, 'broke the cache')} {breaks} and cost {cost}"


def culprits(requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The culprits of breaks, the most expensive first."""
    broken = ({**one["break"], "breaks": 1} for one in requests if one["break"] is not None)
    return grouped(broken, ("culprit", "kind"), ("breaks", "lost_tokens", "usd"))


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title, the template of the part that changes while the page is open, and the data of that part.
    ``forms`` is the template of the unchanging content in front of that part; empty if there is none. ``nav`` is the
    section that the page belongs to."""

    title: str
    template: str
    data: Mapping[str, Any] = field(default_factory=dict)
    forms: str = ""
    nav: str = ""
    status: int = 200
    is_live: bool = True


class Templates:
    """Reads the templates from the package when the first page is asked for."""

    @cached_property
    def _environment(self) -> "Environment":
        # A proxy whose pages nobody opens does not load the template language.
        from proxy.kit import templates_in

        environment = templates_in(_HERE / "templates")
        shown = (blamed, cut, moment, percent, piece, short, times, usd)
        environment.filters |= {one.__name__: one for one in shown}
        return environment

    def part(self, page: Page, about: Mapping[str, Any] = MappingProxyType({})) -> str:
        """The body of a page. It changes while the page is open; with the data ``about`` one visit, it does not
        change."""
        return self._environment.get_template(page.template).render({**about, **page.data})

    def whole(self, page: Page, part: str, about: Mapping[str, Any]) -> str:
        """The page with this part. ``about`` holds the values that every page shows."""
        forms = self._environment.get_template(page.forms).render({**page.data, **about}) if page.forms else ""
        given = {"page": page, "part": Markup(part), "forms": Markup(forms), "seen": mark_of(part), **about}
        return self._environment.get_template("base.html").render(given)


def mark_of(part: str) -> str:
    """The mark that tells two versions of a part from each other."""
    return hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@cache
def assets() -> Mapping[str, tuple[str, bytes]]:
    """The style sheet, the script and the icon: their types and contents, by their names below ``/ui/static/``."""
    return {
        "style.css": ("text/css; charset=utf-8", static("style.css") + static("picture.css")),
        "script.js": ("text/javascript; charset=utf-8", static("script.js")),
        "icon.svg": ("image/svg+xml", static("icon.svg")),
    }


def static(name: str) -> bytes:
    """A file of the package."""
    return (_HERE / "static" / name).read_bytes()


def element(name: str, text: str = "", **attributes: object) -> str:
    """One element. ``_`` in an attribute's name stands for ``-``; a trailing ``_`` is dropped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{written}>{escape(text, quote=False)}</{name}>" if text else f"<{name}{written}/>"


def picture(width: float, height: float, title: str, style: str, body: Iterable[str]) -> str:
    """A whole document. ``style`` is CSS; it is empty if the page that shows the picture has the style."""
    size = f'viewBox="0 0 {_number(width)} {_number(height)}" width="{_number(width)}" height="{_number(height)}"'
    return _joined(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(title, quote=False)}</title>",
            *([f"<style>{style}</style>"] if style else []),
            *body,
            "</svg>\n",
        ]
    )


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


Row = Mapping[str, Any]
"""A request as the admin API shows it."""

PARTS: Final = ("read", "write", "uncached")
_NAMES: Final = {"read": "read from the cache", "write": "written to it", "uncached": "paid in full"}
PLOT: Final = 330.0
"""How wide the longest prompt is drawn."""
_WIDTH, _TOP, _BOTTOM, _LEFT = 480.0, 40.0, 26.0, 34.0
_LEGEND_HEIGHT = 34.0
_MOST_NAMED = 12
_LABEL_CHARS = 18
_NAME_HEIGHT = 14.0
_SUM_OF_ROWS, _THICKEST, _THINNEST = 420.0, 16.0, 2.0


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of both halves: the most tokens of a prompt, and the height of a row."""

    most: int
    row: float
    rows: int

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Scale":
        """The scale at which these requests can be drawn."""
        height = max(_THINNEST, min(_THICKEST, _SUM_OF_ROWS / max(1, len(rows))))
        return cls(max((row["prompt_tokens"] for row in rows), default=0) or 1, height, len(rows))

    @property
    def height(self) -> float:
        """The height of one half."""
        return _TOP + max(self.rows * self.row, 3 * _NAME_HEIGHT) + _BOTTOM

    def x(self, tokens: float) -> float:
        """The position at which so many tokens end."""
        return _LEFT + tokens / self.most * PLOT

    def y(self, row: int) -> float:
        """The position at which a row begins."""
        return _TOP + row * self.row


def halves(rows: Sequence[Row]) -> list[str]:
    """Two pictures for a page that has the style: one of the client's own layout, and one of ours."""
    scale = Scale.of(rows)
    return [
        picture(_WIDTH, scale.height, _title(rows, layout), "", _body(rows, layout, scale))
        for layout in ("client_layout", "planned_layout")
    ]


def document(rows: Sequence[Row], title: str, style: str) -> str:
    """One self-contained file with both pictures."""
    scale, title = Scale.of(rows), cut(title, 300)
    top = 40.0
    body = [
        *_patterns(),
        element("rect", width="100%", height="100%", class_="back"),
        element("text", title, x=16, y=26, class_="title"),
        f'<g transform="translate(0 {top:.0f})">{_joined(_body(rows, "client_layout", scale))}</g>',
        f'<g transform="translate({_WIDTH:.0f} {top:.0f})">{_joined(_body(rows, "planned_layout", scale))}</g>',
        f'<g transform="translate(0 {top + scale.height:.0f})">{_joined(_legend())}</g>',
    ]
    return picture(2 * _WIDTH, top + scale.height + _LEGEND_HEIGHT, title, style, body)


def legend() -> str:
    """The legend of the colours, for a page. It also contains the patterns."""
    return picture(_WIDTH, _LEGEND_HEIGHT, "Legend", "", [*_patterns(), *_legend()])


def _title(rows: Sequence[Row], layout: str) -> str:
    cost = usd(sum(row[layout]["cost_usd"] for row in rows))
    is_estimate = any(row[layout]["by"] == "shadow" for row in rows)
    name = "The client's own layout" if layout == "client_layout" else "Stratiform's layout"
    return f"{name}: {cost}{' (estimated)' if is_estimate else ''}"


def _body(rows: Sequence[Row], layout: str, scale: Scale) -> Iterator[str]:
    yield element("text", _title(rows, layout), x=_LEFT, y=20, class_="half")
    yield from _axis(scale)
    gap = 0.0 if scale.row < 4 else 1.0
    for index, part in enumerate(PARTS):
        # One path for the part of all rows: a picture of 500 requests is small, and is drawn at once.
        found = []
        for number, row in enumerate(rows):
            before = sum(row[layout][f"{name}_tokens"] for name in PARTS[:index])
            x, end = scale.x(before), scale.x(before + row[layout][f"{part}_tokens"])
            if end > x:
                found.append(f"M{x:.2f} {scale.y(number):.1f}h{end - x:.2f}v{scale.row - gap:.1f}h-{end - x:.2f}z")
        yield element("path", d="".join(found), fill=f"url(#k-{part})", class_=f"k {part}")
    is_planned_sent = any(row["planned_layout"]["by"] == "provider" for row in rows)
    if layout == ("planned_layout" if is_planned_sent else "client_layout"):
        yield from _notches(rows, scale)


def _axis(scale: Scale) -> Iterator[str]:
    bottom = scale.height - _BOTTOM + 4
    size: int = 10 ** (len(str(scale.most)) - 1)
    # A round number of tokens that fits in a few times.
    step = next(step for step in (size // 5, size // 2, size, 2 * size) if step and scale.most // step <= 5)
    for number in range(scale.most // step + 1):
        x = scale.x(number * step)
        yield element("line", x1=x, x2=x, y1=_TOP - 4, y2=bottom, class_="grid")
        yield element("text", short(number * step), x=x, y=bottom + 14, text_anchor="middle", class_="quiet")
    for number in {0, scale.rows - 1} - {-1}:
        y = scale.y(number) + min(scale.row, 9.0)
        yield element("text", str(number + 1), x=_LEFT - 6, y=y, text_anchor="end", class_="quiet")


def _notches(rows: Sequence[Row], scale: Scale) -> Iterator[str]:
    """The places where requests broke the cache. The most expensive breaks are named, as far as there is room."""
    broken = [(number, row["break"]) for number, row in enumerate(rows) if row["break"] is not None]
    for number, broke in broken:
        x, y = scale.x(min(broke["before_tokens"], rows[number]["prompt_tokens"])), scale.y(number)
        notch = f"M{x - 4:.1f} {y - 1:.1f}h8l-4 {max(5.0, scale.row):.1f}z"
        label = f"{number + 1}: {_name(broke)} {broke['kind']}, {usd(broke['usd'])}"
        yield f'<path d="{notch}" class="notch">{element("title", label)}</path>'
    taken: list[float] = []
    for number, broke in sorted(broken, key=lambda one: -one[1]["usd"]):
        y = scale.y(number) + scale.row / 2
        if len(taken) < _MOST_NAMED and broke["usd"] > 0 and all(abs(y - other) >= _NAME_HEIGHT for other in taken):
            taken.append(y)
            x, end = scale.x(rows[number]["prompt_tokens"]), scale.x(scale.most)
            yield element("line", x1=x + 2, x2=end + 4, y1=y, y2=y, class_="leader")
            cost = usd(broke["usd"])
            label = f"{cut(_name(broke), _LABEL_CHARS - 1 - len(cost))} {cost}"
            yield element("text", label, x=end + 6, y=y + 4, class_="culprit")


def _name(broke: Mapping[str, Any]) -> str:
    """The name of the culprit: the last part of a piece's key, or else the provider's action."""
    return piece(broke["culprit"] or broke["kind"]).rpartition("/")[2]


def _legend() -> Iterator[str]:
    x = _LEFT
    for part in PARTS:
        yield element("rect", x=x, y=8.0, width=18.0, height=12.0, fill=f"url(#k-{part})", class_=f"k {part}")
        yield element("text", _NAMES[part], x=x + 24, y=18, class_="quiet")
        x += 40 + 6.0 * len(_NAMES[part])
    yield element("path", d=f"M{x:.0f} 9h8l-4 9z", class_="notch")
    yield element("text", "break", x=x + 12, y=18, class_="quiet")


def _patterns() -> Iterator[str]:
    """A solid area, one with oblique lines, and one with lines across both ways."""
    strokes = {"read": "", "write": "M0 6L6 0M-1 1L1 -1M5 7L7 5", "uncached": "M0 0L6 6M0 6L6 0"}
    yield "<defs>"
    for part, lines in strokes.items():
        yield f'<pattern id="k-{part}" width="6" height="6" patternUnits="userSpaceOnUse">'
        yield element("rect", width=6, height=6, class_=f"f-{part}")
        if lines:
            yield element("path", d=lines, class_=f"s-{part}")
        yield "</pattern>"
    yield "</defs>"


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(parts)


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
        return Page(f"Session {cut(name, 24)}", "session.html", data, nav="sessions")

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
        return await asyncio.to_thread(document, requests, sentence(session, requests), static("picture.css").decode())

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
        "sentence": sentence(session, requests),
        "blamed": culprits(requests)[:_MOST_CULPRITS],
        "halves": tuple(map(Markup, halves(requests))),  # their texts are escaped
        "legend": Markup(legend()),
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

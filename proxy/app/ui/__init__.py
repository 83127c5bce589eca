"""``/ui``: pages that show sessions in their layers, and manage teams, keys and budgets.

The pages have no data of their own: they show the answers of the admin API, and each form becomes one operation of it.
``UiEndpoint`` answers requests with pages, pictures, files and events. See the README beside this file.

Everybody who has the master key gets in (``Gate``), by a signed cookie that lives for a while. A page on another site
can make a browser send requests here. If the owner of that site's name lets the name point at this machine, the browser
takes that page for our own site (DNS rebinding). So a request must name one of the hosts by which the proxy is reached.
The cookie is sent only with requests of our own pages. A form carries a token that is derived from the cookie.

``Live`` keeps open pages up to date. Each open page asks for its part every two seconds. The part of one address is
made once for all pages that show it. A part that has not changed is not sent. After a part was made, no part is made
for a hundred times as long as that took, so that pages do not hold up requests of clients. Then the oldest part that a
page asks for is made.
"""

import asyncio
import hmac
import secrets
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from msgspec import to_builtins
from starlette.types import Receive, Scope, Send

from proxy.app.admin import AdminService
from proxy.app.ui.pages import Page, Pages, Templates, assets, mark_of
from proxy.app.web.connection import Connection
from proxy.engine import ClientDisconnected, suppress_and_log
from proxy.kit.errors import InvalidRequest, MethodNotAllowed, NotFound, NotReady, ProxyError, Unauthorized
from proxy.kit.value import dataclass, field
from proxy.teams import validation
from proxy.teams.authentication import Identity, is_address, is_loopback

COOKIE: Final = "stratiform_ui"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_FORWARDED = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})


class PageRefused(ProxyError, status=403, type="invalid_request_error", code="forbidden"):
    """A request that the pages do not serve for any sender."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A visitor who may look at the pages. ``token`` belongs into the visitor's forms; if it is empty, the visitor may
    change nothing. ``until`` is the end of the visit, in unix seconds."""

    token: str = ""
    until: float = float("inf")

    def sent_form(self, fields: Mapping[str, str]) -> bool:
        """Whether a form comes from a page of this visit."""
        return bool(self.token) and hmac.compare_digest(fields.get("token", "").encode(), self.token.encode())


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets requests in. ``host`` is the address that the proxy listens on. ``hosts`` are other names by which it is
    reached. ``life_s`` is how long a cookie lives."""

    identity: Identity
    now: Callable[[], float]
    host: str
    hosts: Collection[str] = field(default_factory=tuple)
    life_s: float = 3600.0

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raises Refused for a request that does not name one of the proxy's hosts, or comes from another site."""
        host = headers.get("host", "").lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        is_named = bool(name) and name in {self.host.lower(), *(host.lower() for host in self.hosts)}
        # A name can be made to point anywhere; an address cannot. The network decides which addresses lead here.
        leads_here = name in _LOOPBACK or (self.host in ("0.0.0.0", "::") and is_address(name))
        if not (is_named or leads_here):
            raise PageRefused(
                "This page is not served under that name. If the name is right, list it in stratiform.ui.hosts."
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host:
            raise PageRefused("This request comes from a page of another site.")

    def visit(self, headers: Mapping[str, str], peer: str) -> Visit | None:
        """The visit of a known visitor, else None. Raises Refused if there is no master key and the request does not
        come from this machine."""
        if self.identity.has_master:
            return self._of_cookie(headers.get("cookie", ""))
        if not is_loopback(self.host) or not is_loopback(peer) or _FORWARDED & headers.keys():
            raise PageRefused("Without a master key these pages are shown on the proxy's own machine alone.")
        return Visit()

    def enter(self) -> str:
        """The value of a new cookie."""
        until = int(self.now() + self.life_s)
        text = f"{until}.{secrets.token_hex(16)}"
        return f"{text}.{self.identity.signed(f'ui.{text}')}"

    def _of_cookie(self, cookies: str) -> Visit | None:
        for pair in cookies.split(";"):
            name, _, value = pair.strip().partition("=")
            text, _, signature = value.rpartition(".")
            until = text.partition(".")[0]
            if name != COOKIE or not until.isdecimal() or len(value) > 256:
                continue
            is_ours = hmac.compare_digest(signature.encode(), self.identity.signed(f"ui.{text}").encode())
            if is_ours and float(until) > self.now():
                return Visit(self.identity.signed(f"form.{text}"), float(until))
        return None


EVERY_S: Final = 2.0
MOST_STREAMS: Final = 100
_REST, _MOST_REST_S = 100.0, 30.0


@dataclass(slots=True)
class _Shown:
    """The current part of one address, when it was made and last asked for, and how many pages show it."""

    part: str = ""
    mark: str = ""
    made_at: float = float("-inf")
    asked_at: float = float("-inf")
    streams: int = 0


class Live:
    """``make`` makes the part of a page that changes, by the page's address. ``is_stopping`` says that the server
    is about to end; the server waits for its streams."""

    def __init__(self, make: Callable[[str], Awaitable[str]], every_s: float = EVERY_S) -> None:
        self._make = make
        self._every_s = every_s
        self._open: dict[str, _Shown] = {}
        self._rests_until = 0.0
        self.is_stopping: Callable[[], bool] = bool

    @property
    def streams(self) -> int:
        """How many pages are open."""
        return sum(shown.streams for shown in self._open.values())

    async def follow(self, address: str, seen: str) -> AsyncIterator[str]:
        """The part of a page, whenever it differs from the version that was ``seen`` last. A page that reads slowly
        misses outdated versions. The iterator ends when the server ends."""
        shown = self._open.setdefault(address, _Shown())
        shown.streams += 1
        try:
            while not self.is_stopping():
                shown.asked_at = now = perf_counter()
                rest_s, due = self._rests_until - now, now - self._every_s
                # A part is made now if it is due, and no older part waits. A page that reads slowly does not ask, so no
                # other page waits for it.
                waiting = (one.made_at for one in self._open.values() if one.asked_at > due - self._every_s)
                if rest_s <= 0 and shown.made_at <= min(due, *waiting):
                    await self._renew(address, shown, now)
                if shown.mark not in ("", seen):
                    seen = shown.mark
                    yield shown.part
                await asyncio.sleep(rest_s if 0 < rest_s < self._every_s else self._every_s)
        finally:
            shown.streams -= 1
            if not shown.streams:
                del self._open[address]

    async def _renew(self, address: str, shown: _Shown, now: float) -> None:
        """Make a part anew. Meanwhile, other pages go on with the old part."""
        self._rests_until, shown.made_at = float("inf"), now
        # If the page no longer exists, loading it again says so. Until then it keeps its last content.
        with suppress_and_log("ui.live"), suppress(ProxyError):
            try:
                shown.part = await self._make(address)
                shown.mark = mark_of(shown.part)
            finally:
                ended = perf_counter()
                self._rests_until = ended + min(_MOST_REST_S, _REST * (ended - now))


Fields = Mapping[str, str]
_FORMS: Final[Mapping[str, type[validation.TeamForm | validation.KeyForm | validation.BudgetForm]]] = {
    "teams": validation.TeamForm,
    "keys": validation.KeyForm,
    "budgets": validation.BudgetForm,
}


def _operation(kind: str, fields: Fields) -> tuple[str, str, Mapping[str, Any]]:
    """The operation of the admin API that a form asks for: method, path and body. Raises ProxyError, with a sentence
    for the page."""
    name = fields.get("id", "")
    match kind, fields.get("action", ""):
        case (("teams" | "keys" | "budgets"), "create"):
            return "POST", kind, _body(fields, _FORMS[kind])
        case "keys", "revoke":
            return "POST", f"keys/{name}/revoke", {}
        case "budgets", "raise":
            # An empty field means no limit.
            limit = {one: fields[one].strip() or None for one in ("usd", "tokens", "expected") if one in fields}
            changes = validation.read_form(limit, validation.BudgetForm, is_strict=False)
            return "PATCH", f"budgets/{name}", to_builtins(changes)
        case "budgets", "restore":
            return "POST", f"budgets/{name}/set-spent", _body(fields, validation.SpentForm)
        case _:
            raise NotFound("There is no such form.")


def _body(fields: Fields, form: type[validation.AdminForm]) -> Mapping[str, Any]:
    """The filled fields of a form, in the form that the admin API takes. Raises InvalidRequest."""
    filled: dict[str, Any] = {one: fields[one].strip() for one in form.__struct_fields__ if fields.get(one, "").strip()}
    if "models" in filled:
        filled["models"] = [part.strip() for part in filled["models"].split(",") if part.strip()]
    return dict(to_builtins(validation.read_form(filled, form, is_strict=False)))


_FORM_BYTES = 64 << 10
_MOST_FIELDS = 50
_GZIP_BYTES = 1_000
_HTML = "text/html; charset=utf-8"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_SAFE: Final = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    # With no-referrer a browser sends our own forms with the origin "null": https://fetch.spec.whatwg.org/#origin-header
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)


class UiEndpoint:
    """Serves ``/ui``. ``shows_text`` says on each page that texts of prompts can be seen."""

    def __init__(self, service: AdminService, gate: Gate, *, shows_text: bool = False) -> None:
        self.service, self.gate, self.shows_text = service, gate, shows_text
        self.pages, self.templates, self.live = Pages(service), Templates(), Live(self.part)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, scope["path"].removeprefix("/ui").strip("/"))
        await connection.serve(_Answering(self, connection, scope).run())

    async def part(self, address: str) -> str:
        """The part of a page that changes, by the address of the page below ``/ui/``."""
        path, _, query = address.partition("?")
        page = await self.pages.page(path, parsed(query))
        if not page.is_live:
            raise NotFound("That page does not change by itself.")
        return await asyncio.to_thread(self.templates.part, page)


class _Answering:
    """One request, and the answer to it."""

    def __init__(self, ui: UiEndpoint, connection: Connection, scope: Scope) -> None:
        self._ui = ui
        self._connection = connection
        self._path = connection.path
        self._headers = {name.lower(): value for name, value in connection.headers}
        self._peer = (scope.get("client") or ("", 0))[0]
        self._is_https = scope.get("scheme") == "https"

    async def run(self) -> None:
        """Answer it."""
        visit: Visit | None = None
        with suppress(ClientDisconnected):
            try:
                self._ui.gate.check_host(self._headers)
                visit = self._ui.gate.visit(self._headers, self._peer)
                await self._route(visit)
            except ProxyError as error:
                await self._refuse(error, visit)

    async def _route(self, visit: Visit | None) -> None:
        method, kind, _, name = self._connection.method, *self._path.partition("/")
        if kind == "static":
            await self._asset(name)
        elif method == "POST" and self._path == "login":
            await self._enter()
        elif visit is None:
            is_stale = f"{COOKIE}=" in self._headers.get("cookie", "")
            raise Unauthorized("Your visit has ended: log in again." if is_stale else "Log in with the master key.")
        elif method == "POST":
            await self._do(visit)
        elif method not in ("GET", "HEAD"):
            raise MethodNotAllowed("Pages are read with GET, and forms are sent with POST.", headers={"allow": "GET"})
        elif self._path == "events" and method == "GET":
            await self._events(visit)
        elif kind == "sessions" and name.endswith("/picture.svg"):
            await self._picture(name.removesuffix("/picture.svg"))
        else:
            await self._send_page(await self._ui.pages.page(self._path, parsed(self._connection.query)), visit)

    async def _asset(self, name: str) -> None:
        if name not in assets():
            raise NotFound("There is no such file.")
        kind, body = assets()[name]
        await self._send(200, body, kind, [("cache-control", "no-cache")], packs=True)

    async def _enter(self) -> None:
        """Log a visitor in."""
        fields = await self._form()
        key = ("authorization", f"Bearer {fields.get('key', '').strip()}")
        if not self._ui.gate.identity.is_master([key]):
            raise Unauthorized("That is not the master key.")
        # Only an address among these pages is gone to, and any other becomes the first page.
        where = fields.get("next", "")
        is_ours = where.startswith("/") and not where.startswith("//") and where.isprintable() and "\\" not in where
        page = quote(where, safe="/%?=&") if is_ours and len(where) < 1000 else ""
        await self._go(f"/ui{page}", self._cookie(self._ui.gate.enter(), self._ui.gate.life_s))

    async def _do(self, visit: Visit) -> None:
        """Do what a sent form of these pages asks for."""
        fields = await self._form()
        if self._path == "logout":
            await self._go("/ui", self._cookie("", 0))
            return
        if not visit.sent_form(fields):
            raise InvalidRequest("This form does not come from a page of your visit: load the page, and try again.")
        problem, key, back = None, "", {"team": fields["back"]} if fields.get("back") else {}
        try:
            method, path, body = _operation(self._path, fields)
            key = (await self._ui.service.answer(method, path, {}, body)).get("key", "")
            if not key:
                await self._go(f"/ui/{self._path}?{urlencode(back)}" if back else f"/ui/{self._path}")
                return
        except ProxyError as error:
            problem = error
        # Send the page again in its current state, with the problem of the form or the key that is shown once.
        await self._send_page(await self._ui.pages.page(self._path, back), visit, problem=problem, new_key=key)

    async def _events(self, visit: Visit) -> None:
        """Send the part of a page whenever it changes."""
        query, live = parsed(self._connection.query), self._ui.live
        if live.streams >= MOST_STREAMS:
            raise NotReady("Too many pages are open for all of them to be kept up to date: reload this one.")
        await self._ui.part(query.get("page", ""))  # refuses an address that is not a page
        await self._connection.start(
            200, [("content-type", "text/event-stream"), ("cache-control", "no-store"), *_SAFE]
        )
        await self._connection.send(b"retry: 3000\n\n")
        async for part in live.follow(query.get("page", ""), query.get("seen", "")):
            if visit.until <= self._ui.gate.now():
                break
            # The event's id tells which version the browser has then seen.
            lines = [f"id: {mark_of(part)}", *(f"data: {line}" for line in part.splitlines()), "", ""]
            await self._connection.send("\n".join(lines).encode("utf-8", "replace"))
        await self._connection.end()

    async def _picture(self, name: str) -> None:
        drawn = await self._ui.pages.drawing(name)
        headers = [
            ("content-disposition", 'attachment; filename="session.svg"'),
            ("cache-control", "no-store"),
            # A picture that is opened by itself contains its own style.
            ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox"),
        ]
        await self._send(200, drawn.encode(), "image/svg+xml", headers, packs=True)

    async def _form(self) -> Mapping[str, str]:
        return parsed((await self._connection.read(_FORM_BYTES)).decode("utf-8", "replace"))

    async def _refuse(self, error: ProxyError, visit: Visit | None) -> None:
        is_stranger = isinstance(error, Unauthorized)
        template = "login.html" if is_stranger else "message.html"
        where = quote(f"/{self._path}") if self._connection.method == "GET" and self._path != "events" else ""
        title = "Log in" if is_stranger else "That did not work"
        page = Page(title, template, {"message": error.message, "next": where}, status=error.status, is_live=False)
        await self._send_page(page, visit, headers=list(error.headers.items()))

    async def _send_page(
        self,
        page: Page,
        visit: Visit | None,
        *,
        problem: ProxyError | None = None,
        new_key: str = "",
        headers: list[tuple[str, str]] | None = None,
    ) -> None:
        about = {
            "token": visit.token if visit is not None else "",
            "is_inside": visit is not None,
            "address": f"{self._path}?{self._connection.query}" if self._connection.query else self._path,
            "problem": problem.message if problem is not None else "",
            "new_key": new_key,
            "shows_text": self._ui.shows_text,
        }
        # The part that changes by itself is the same for all visitors, and is made once.
        part = await asyncio.to_thread(self._ui.templates.part, page, {} if page.is_live else about)
        body = self._ui.templates.whole(page, part, about).encode("utf-8", "replace")
        status = problem.status if problem is not None else page.status
        # A page with a token is not compressed: its length would reveal something about the token.
        packs = page.is_live and not page.forms
        await self._send(status, body, _HTML, [("cache-control", "no-store"), *(headers or [])], packs=packs)

    async def _send(
        self, status: int, body: bytes, kind: str, headers: list[tuple[str, str]], *, packs: bool = False
    ) -> None:
        if packs and len(body) > _GZIP_BYTES and "gzip" in self._headers.get("accept-encoding", ""):
            packer = zlib.compressobj(6, zlib.DEFLATED, 31)
            body = packer.compress(body) + packer.flush()
            headers = [*headers, ("content-encoding", "gzip"), ("vary", "accept-encoding")]
        safe = [(name, value) for name, value in _SAFE if name not in dict(headers)]
        shown = b"" if self._connection.method == "HEAD" else body
        await self._connection.answer(status, shown, [("content-type", kind), *headers, *safe])

    async def _go(self, where: str, *headers: tuple[str, str]) -> None:
        await self._send(303, b"", _HTML, [("location", where), ("cache-control", "no-store"), *headers])

    def _cookie(self, value: str, life_s: float) -> tuple[str, str]:
        flags = "HttpOnly; SameSite=Strict" + ("; Secure" if self._is_https else "")
        return "set-cookie", f"{COOKIE}={value}; Path=/ui; Max-Age={life_s:.0f}; {flags}"


def parsed(text: str) -> dict[str, str]:
    """A query or a form. If a name comes twice, the last value counts. Raises InvalidRequest."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="replace"))
    except ValueError as error:
        raise InvalidRequest("The form has too many fields.") from error

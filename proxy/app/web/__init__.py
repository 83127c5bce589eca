"""Serves HTTP: the application, its routes and their endpoints.

Requests arrive as ASGI. The engine's answers are sent as their bytes arrive, and its errors have the form that OpenAI's
clients read. Nothing here makes decisions, or reads a setting.

Starlette's errors and unexpected exceptions get the one form that clients know. Only clients that connect from certain
addresses may be let in (LiteLLM's ``general_settings.allowed_ips``). Only the address of the connection counts, because
a client can write any address into a header. Probes are answered to everyone, as by LiteLLM, because they come from the
machines that run the proxy.

``/healthz`` says that the process is alive, ``/readyz`` that it can take traffic, and ``/metrics`` has its figures. A
failed readiness probe takes a proxy out of service, and all replicas share their store. So a fault is reported in the
answer's body, and the status is 503 only if requests are refused because of the fault.

``/admin/...`` has teams, keys, budgets and spend, for clients with the master key. Without a configured master key,
this path does not exist. The client is authenticated before anything else of the request is read. The paths that
LiteLLM's tools use have the same in LiteLLM's forms: models and their health, keys, users, teams and spend. There, a
client with the master key sees everything. A client with another key sees the models that it may use, and its own data.

``POST /v1/chat/completions`` is planned, and ``POST /v1/stratiform/breakdown`` takes the same body. Every other path
under ``/v1`` is passed through raw, whatever its method and content.

``GET /v1/models`` and ``/v1/models/{id}`` have the names of the model list. If the list has only wildcards, the
upstream is asked, because it knows its models better. Wildcards are listed in addition to names only if the client
wants them (LiteLLM's ``?return_wildcard_routes=true``): no model is called ``openai/*``.

``/openai/...`` has the addresses of Azure's clients, served like the same paths of OpenAI's API.
``/openai/deployments/NAME/chat/completions?api-version=...`` asks the model NAME, whatever model the body names.
``/openai/responses?...``, and every other path that names no deployment, is served as the path without ``/openai``. A
key in ``api-key`` is the client's key, like a bearer token. The version of Azure's API is removed, because it means
nothing to other servers.
https://learn.microsoft.com/en-us/azure/ai-services/openai/reference
"""

import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import parse_qsl

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy import __version__
from proxy.app.admin import AdminService
from proxy.app.admin.litellm_forms import LitellmForms
from proxy.app.web.connection import Connection
from proxy.engine import CHAT, ClientDisconnected, Engine
from proxy.engine.exchange import Principal
from proxy.engine.headers import decoded
from proxy.engine.intake import is_same_upstream
from proxy.engine.ports import Fault
from proxy.engine.telemetry.metrics import CONTENT_TYPE, Metrics
from proxy.kit.errors import (
    Forbidden,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    NotReady,
    ProxyError,
    Unauthorized,
    UnknownModel,
    error_body,
)
from proxy.kit.secrets import bare, sent_keys
from proxy.kit.value import dataclass
from proxy.models import Deployment
from proxy.models.deployments import ModelTable
from proxy.protocol.access import allows
from proxy.protocol.account import INVALID_PATH, Path, read_path
from proxy.teams.authentication import Identity, digest_of

_BODY_BYTES = 1 << 20
_MOST_PARAMETERS = 20
_SHOWN_CHARS = 256


def error_response(error: ProxyError) -> Response:
    """An error as a complete answer."""
    return Response(error_body(error), error.status, error.headers, media_type="application/json")


async def on_http_exception(request: Request, error: Exception) -> Response:
    """The answer if there is no such route, or if the route does not accept the method."""
    assert isinstance(error, HTTPException)
    # request.url is not used, because it decodes the query, which may not be UTF-8.
    what = f"{request.method} {request.scope['path'][:_SHOWN_CHARS]}"
    match error.status_code:
        case 404:
            return error_response(NotFound(f"Invalid URL ({what}): nothing is served there"))
        case 405:
            return error_response(MethodNotAllowed(f"Not allowed ({what})", headers=error.headers))
        case _:
            return error_response(InvalidRequest(error.detail))


async def on_surprise(request: Request, error: Exception) -> Response:
    """The answer to a bug outside the exchanges, which contain their own errors. The server logs the traceback, and the
    client never sees it."""
    return error_response(InternalError("an internal error of the proxy; its log has the details"))


Networks = Sequence[IPv4Network | IPv6Network]
PROBES = frozenset({"/healthz", "/readyz", "/health/liveliness", "/health/liveness", "/health/readiness"})


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
    """Lets only clients from these networks reach the app."""

    app: ASGIApp
    networks: Networks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in PROBES or self._admits(scope.get("client")):
            await self.app(scope, receive, send)
        else:
            refusal = error_response(Forbidden("This address may not use the proxy.", code="address_not_allowed"))
            await refusal(scope, receive, send)

    def _admits(self, client: Sequence[object] | None) -> bool:
        try:
            address = ip_address(str(client[0]).partition("%")[0]) if client else None
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in network for network in self.networks if address is not None)


@dataclass(frozen=True, slots=True)
class Health:
    """Answers probes. ``obstacle`` returns what keeps the proxy from serving at all (empty: nothing). ``faults``
    returns the parts that do not work as they should. ``metrics_key`` is the key that ``/metrics`` requires (empty:
    none)."""

    registry: Metrics
    obstacle: Callable[[], str]
    faults: Callable[[], Iterable[Fault]] = tuple
    metrics_key: str = ""

    async def live(self, request: Request) -> Response:
        """Answer that the process is alive, also in LiteLLM's words. The answer shows that the event loop runs."""
        return JSONResponse({"status": "ok"} if request.scope.get("path") == "/healthz" else "I'm alive!")

    async def ready(self, request: Request) -> Response:
        """Whether requests can be served, and the faults that do not prevent that."""
        obstacle = self.obstacle()
        faults = [*([Fault("start", obstacle, refuses=True)] if obstacle else ()), *self.faults()]
        told = {"faults": [{"part": fault.part, "message": fault.message} for fault in faults]} if faults else {}
        refusing = next((fault for fault in faults if fault.refuses), None)
        if refusing is None:
            if request.scope.get("path") != "/health/readiness":
                return JSONResponse({"status": "ready", **told})
            # These are LiteLLM's words, which its tools look for.
            is_away = any(fault.part == "store" for fault in faults)
            return JSONResponse({"status": "healthy", "db": "disconnected" if is_away else "connected", **told})
        error = NotReady(refusing.message)
        return JSONResponse({"status": "unavailable", **told, **json.loads(error_body(error))}, error.status)

    async def metrics(self, request: Request) -> Response:
        """The metrics for Prometheus."""
        right, keys = digest_of(self.metrics_key), sent_keys(request.headers.items())
        if self.metrics_key and not any([hmac.compare_digest(digest_of(key), right) for key in keys]):
            return error_response(Unauthorized("/metrics asks for the key of stratiform.metrics.key"))
        return Response(await self.registry.rendered(), media_type=CONTENT_TYPE)


@dataclass(frozen=True, slots=True)
class JsonEndpoint:
    """Serves requests with an ``answer``, which is a JSON value or a CSV text, or with the error that replaces it.
    ``front`` is cut off the path. ``creates``: a POST to a list creates a new entry in it."""

    answer: Callable[[Connection], Awaitable[object]]
    front: str = "/"
    creates: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, scope["path"].removeprefix(self.front))
        await connection.serve(self._serve(connection))

    async def _serve(self, connection: Connection) -> None:
        is_new = self.creates and connection.method == "POST" and "/" not in connection.path.strip("/")
        try:
            content = await self.answer(connection)
            body = content.encode() if isinstance(content, str) else orjson.dumps(content)
            kind = "text/csv; charset=utf-8" if isinstance(content, str) else "application/json"
            # An answer may hold a key that was just made.
            headers = [("content-type", kind), ("cache-control", "no-store")]
            await connection.answer(201 if is_new else 200, body, headers)
        except ProxyError as error:
            await connection.refuse(error)
        except ClientDisconnected:
            return


@dataclass(frozen=True, slots=True)
class AdminEndpoint:
    """The admin API over HTTP, and keys, users, teams and spend in LiteLLM's forms."""

    service: AdminService
    identity: Identity
    forms: LitellmForms

    def routes(self, engine: Engine) -> list[Route]:
        """The routes of the admin API, and those that LiteLLM's tools use."""
        litellm = JsonEndpoint(partial(self._litellm, engine))
        own = JsonEndpoint(self._own, "/admin/", creates=True)
        return [Route("/admin/{path:path}", own), *(Route(f"/{path}", litellm) for path in self.forms.paths)]

    async def _own(self, connection: Connection) -> object:
        if not self.identity.has_master:
            raise NotFound(f"Invalid URL ({connection.method} /admin/...): nothing is served there")
        if not self.identity.is_master(connection.headers):
            raise Unauthorized("The admin API needs the proxy's master key as `Authorization: Bearer KEY`.")
        return await self.service.answer(connection.method, connection.path, *await sent(connection))

    async def _litellm(self, engine: Engine, connection: Connection) -> object:
        caller = None if self.identity.is_master(connection.headers) else engine.principal(connection)
        return await self.forms.answer(connection.method, connection.path, *await sent(connection), caller)


async def sent(connection: Connection) -> tuple[dict[str, str], object]:
    """The query and the body of an authenticated request. Raises InvalidRequest."""
    body = await connection.read(_BODY_BYTES)
    try:
        pairs = parse_qsl(connection.query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS, errors="strict")
    except ValueError as error:
        raise InvalidRequest("The query cannot be read.") from error
    try:
        return dict(pairs), orjson.loads(body) if body else {}
    except orjson.JSONDecodeError as error:
        raise InvalidRequest("The body is not JSON.", code="invalid_json") from error


_FRONT = {
    "name": "stratiform",
    "version": __version__,
    "what": "An OpenAI-compatible proxy: clients set their base URL to /v1 here.",
    "paths": ["/v1/chat/completions", "/v1/models", "/healthz", "/readyz", "/metrics", "/ui"],
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Stratiform</title>
<h1>Stratiform</h1><p>{what}</p><p>Its pages: <a href="/ui">/ui</a>, for whoever may look at them.</p></html>"""


async def front(request: Request) -> Response:
    """A short description of this server: a page for browsers, JSON for others."""
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(_PAGE.format(**_FRONT))
    return JSONResponse(_FRONT)


_BREAKDOWN = "/stratiform/breakdown"


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    """Chat requests, JSON and SSE: the engine plans, forwards and streams back. ``is_breakdown``: the answer only lists
    the parts of which a request with structured context would consist."""

    engine: Engine
    is_breakdown: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send, model: str = "") -> None:
        """Serve one request. ``model`` is the model that its address names."""
        path = _BREAKDOWN if self.is_breakdown else CHAT
        connection = Connection(scope, receive, send, path, receive_s=self.engine.limits.receive_s)
        served = self.engine.breakdown(connection) if self.is_breakdown else self.engine.chat(connection, model)
        await connection.serve(served)


# TRACE and CONNECT are missing: TRACE returns the request that the upstream got, with the deployment's own key in it,
# and CONNECT asks for a tunnel.
_METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
_V1 = "/v1"


@dataclass(frozen=True, slots=True)
class PassthroughEndpoint:
    """Embeddings, responses, completions, audio, files, Anthropic's messages, and future paths of providers."""

    engine: Engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send, model: str = "") -> None:
        """Serve one request. ``model`` is the model that its address names."""
        connection = Connection(scope, receive, send, sent_path(scope), receive_s=self.engine.limits.receive_s)
        try:
            path = check_request_line(scope)
        except ProxyError as error:
            await connection.refuse(self.engine.first_refusal(connection, error))
            return
        await connection.serve(self.engine.relay(connection, model, path))


def check_request_line(scope: Scope) -> Path:
    """The parsed path. Raises NotFound for a path that servers read differently, and MethodNotAllowed for a method that
    is not passed on. The deployment's key must not give access to anything that was not checked."""
    if scope["method"] not in _METHODS:
        allowed = ", ".join(_METHODS)
        raise MethodNotAllowed(f"this method is not passed on; use one of {allowed}", headers={"allow": allowed})
    if scope["path"].startswith(f"{_V1}/") and not raw_path(scope).startswith(f"{_V1}/"):
        raise NotFound("the path begins with /v1/, which must not be percent-encoded", code=INVALID_PATH)
    return read_path(sent_path(scope))


def sent_path(scope: Scope) -> str:
    """The path after ``/v1``, percent-encoded as the client sent it. It begins with a slash, because text directly
    after a bare host would become a part of the host."""
    path = raw_path(scope).removeprefix(_V1)
    return path if path.startswith("/") else f"/{path}"


def raw_path(scope: Scope) -> str:
    """The path, percent-encoded as the client sent it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1")


# A configuration has no dates. LiteLLM's proxy reports this date for every entry.
_CREATED = 1677610602


@dataclass(frozen=True, slots=True)
class ModelsEndpoint:
    """The models that the key may use: the list, single entries of it, and LiteLLM's ``/model/info`` and ``/health``.
    Their health comes from the circuit breakers. No call is made to find it out, because a call would cost money."""

    engine: Engine
    models: ModelTable
    is_failing: Callable[[Deployment], bool]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, sent_path(scope), receive_s=self.engine.limits.receive_s)
        name: str | None = scope.get("path_params", {}).get("name")
        try:
            principal = self.engine.principal(connection)
            check_request_line(scope)
            content = self._list(principal, connection.query) if name is None else self._one(principal, name)
        except ProxyError as error:
            await connection.refuse(error)
            return
        if content is None:
            await connection.serve(self.engine.relay(connection))
        else:
            await connection.answer(200, orjson.dumps(content), [("content-type", "application/json")])

    def _list(self, principal: Principal, query: str) -> object | None:
        """The names that the key may use. None: the upstream is asked."""
        wants_patterns = "return_wildcard_routes=true" in query.lower().split("&")
        names = [*self.models.names(), *(self.models.patterns() if wants_patterns else ())]
        return {"object": "list", "data": [_entry(n) for n in names if self._allows(principal, n)]} if names else None

    def _one(self, principal: Principal, name: str) -> object | None:
        """The entry of a model that the key may use. None: the upstream is asked. Raises UnknownModel."""
        deployment = self.models.resolve(name)
        if not self._allows(principal, name):
            raise UnknownModel(f"The model '{deployment.name}' is not one that this key may use.", param="model")
        # If a path that names no model goes to the upstream that serves this model under this name, that upstream can
        # be asked for the entry.
        if name not in self.models.names() and deployment.model == name:
            with suppress(UnknownModel):
                return None if is_same_upstream(self.models.unnamed()[0], deployment) else _entry(name)
        return _entry(name)

    async def info(self, connection: Connection) -> object:
        """The entries of the models."""
        found = []
        for name, deployment in self._deployments(connection):
            told = {"max_input_tokens": deployment.max_input_tokens} if deployment.max_input_tokens else {}
            info = {"id": deployment.id, "db_model": False, "cache_profile": deployment.profile.name, **told}
            found.append({"model_name": name, "litellm_params": {"model": deployment.model}, "model_info": info})
        return {"data": found}

    async def health(self, connection: Connection) -> object:
        """Which of the models are healthy."""
        parts: dict[bool, list[object]] = {False: [], True: []}
        for name, deployment in self._deployments(connection):
            parts[self.is_failing(deployment)].append({"model": deployment.model, "model_name": name})
        return {"healthy_endpoints": parts[False], "unhealthy_endpoints": parts[True],
                "healthy_count": len(parts[False]), "unhealthy_count": len(parts[True])}  # fmt: skip

    def _deployments(self, connection: Connection) -> list[tuple[str, Deployment]]:
        """The deployments of each name that the key may use, without the deployments that replace them."""
        principal = self.engine.principal(connection)
        names = [name for name in self.models.names() if self._allows(principal, name)]
        return [(name, deployment) for name in names for deployment in self.models.candidates(name)]

    def _allows(self, principal: Principal, name: str) -> bool:
        if not principal.models:
            return True
        deployment = self.models.resolve(name)
        return allows(principal.models, (name, deployment.name, deployment.entry), deployment.groups)


def _entry(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "stratiform"}


_AZURE_FRONT = "/openai"
_VERSION = "api-version"
_KEY, _AUTHORIZATION = b"api-key", b"authorization"
_ENDINGS = frozenset(
    {
        ("chat", "completions"), ("completions",), ("embeddings",), ("responses",), ("images", "generations"),
        ("images", "edits"), ("audio", "transcriptions"), ("audio", "translations"), ("audio", "speech"),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AzureEndpoint:
    """Passes requests on to the endpoints that serve the same paths of OpenAI's API."""

    engine: Engine
    chat: ChatEndpoint
    models: ModelsEndpoint
    passthrough: PassthroughEndpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            check_request_line(scope)
            path, model = _address(raw_path(scope))
        except ProxyError as error:
            connection = Connection(scope, receive, send, raw_path(scope))
            await connection.refuse(self.engine.first_refusal(connection, error))
            return
        inner = _as_openai(scope, path)
        name = path.removeprefix("/models/")
        if path == CHAT and scope["method"] == "POST":
            await self.chat(inner, receive, send, model)
        elif scope["method"] == "GET" and (path == "/models" or name != path):
            names = {} if path == "/models" else {"name": decoded(name)}
            await self.models({**inner, "path_params": names}, receive, send)
        else:
            await self.passthrough(inner, receive, send, model)


def _address(raw: str) -> tuple[str, str]:
    """The path of OpenAI's API, after ``/v1``, for which a path of Azure's API stands, and the model that it names, if
    it names one. Raises NotFound for a path that can be read in several ways, and for an operation on a deployment that
    Azure may have and this proxy does not know."""
    sent = raw.removeprefix(_AZURE_FRONT)
    path = read_path(sent if sent.startswith("/") else f"/{sent}")
    if path.words[:1] != ("deployments",):
        return "/" + "/".join(sent.split("/")[1 + path.skipped :]), ""
    for ending in (path.words[-2:], path.words[-1:]):
        name = path.segments[1 : -len(ending)]
        if ending in _ENDINGS and name:
            return "/" + "/".join(ending), "/".join(name)
    known = ", ".join(sorted("/".join(ending) for ending in _ENDINGS))
    raise NotFound(f"Behind /openai/deployments/NAME/ these are served: {known}.")


def _as_openai(scope: Scope, path: str) -> Scope:
    """The same request in the form that a client of OpenAI's API sends."""
    raw = f"/v1{path}"
    parts = [part for part in scope["query_string"].split(b"&") if part]
    kept = [part for part in parts if decoded(part.decode("latin-1")).partition("=")[0].strip().lower() != _VERSION]
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    if all(name != _AUTHORIZATION for name, _ in headers):
        headers = [
            (_AUTHORIZATION, f"Bearer {bare(key.decode('latin-1'))}".encode("latin-1")) if name == _KEY else (name, key)
            for name, key in headers
        ]
    return {
        **scope,
        "path": decoded(raw),
        "raw_path": raw.encode("latin-1"),
        "query_string": b"&".join(kept),
        "headers": headers,
    }


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an app, built by the caller. The functions of ``on_close`` are called in reverse order after the
    engine has ended."""

    engine: Engine
    models: ModelTable
    metrics: Metrics
    obstacle: Callable[[], str] = str
    faults: Callable[[], Iterable[Fault]] = tuple
    on_close: Sequence[Callable[[], Awaitable[None]]] = ()
    admin: AdminEndpoint | None = None
    is_failing: Callable[[Deployment], bool] = lambda deployment: False
    allowed_ips: Networks = ()
    ui: ASGIApp | None = None
    metrics_key: str = ""


def create_app(parts: Parts) -> Starlette:
    """The ASGI application that serves these parts."""
    chat = ChatEndpoint(parts.engine)
    models = ModelsEndpoint(parts.engine, parts.models, parts.is_failing)
    passthrough = PassthroughEndpoint(parts.engine)
    health = Health(parts.metrics, parts.obstacle, parts.faults, parts.metrics_key)
    info = JsonEndpoint(models.info)
    app = Starlette(
        routes=[
            Route("/", front, methods=["GET"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/chat/completions/", chat, methods=["POST"]),
            Route("/v1/stratiform/breakdown", ChatEndpoint(parts.engine, is_breakdown=True), methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/models/{name:path}", models, methods=["GET"]),
            Route("/v1/model/info", info, methods=["GET"]),
            Route("/v1/{path:path}", passthrough),
            Route("/openai/{path:path}", AzureEndpoint(parts.engine, chat, models, passthrough)),
            Route("/chat/completions", chat, methods=["POST"]),
            Route("/chat/completions/", chat, methods=["POST"]),
            Route("/models", models, methods=["GET"]),
            Route("/models/{name:path}", models, methods=["GET"]),
            Route("/healthz", health.live, methods=["GET"]),
            Route("/readyz", health.ready, methods=["GET"]),
            Route("/health/liveliness", health.live, methods=["GET"]),
            Route("/health/liveness", health.live, methods=["GET"]),
            Route("/health/readiness", health.ready, methods=["GET"]),
            Route("/health", JsonEndpoint(models.health), methods=["GET"]),
            Route("/model/info", info, methods=["GET"]),
            Route("/metrics", health.metrics, methods=["GET"]),
            *(parts.admin.routes(parts.engine) if parts.admin is not None else []),
            *([Route("/ui", parts.ui), Route("/ui/{path:path}", parts.ui)] if parts.ui is not None else []),
        ],
        exception_handlers={HTTPException: on_http_exception, Exception: on_surprise},
        lifespan=_lifespan(parts),
        middleware=[Middleware(AllowedAddresses, parts.allowed_ips)] if parts.allowed_ips else [],
    )
    # The provider decides what a path means, including its last slash. Only the chat path is the proxy's own.
    app.router.redirect_slashes = False
    return app


def _lifespan(parts: Parts) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for close in parts.on_close:
                stack.push_async_callback(close)
            stack.push_async_callback(parts.engine.aclose)
            yield

    return lifespan

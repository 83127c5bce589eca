"""The application: the routes, and the endpoints that are about the proxy itself. Nothing here makes decisions.

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
"""

import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
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
from proxy.access.authentication import Identity, digest_of
from proxy.admin import AdminService
from proxy.admin.litellm_forms import LitellmForms
from proxy.core.secrets import sent_keys
from proxy.core.value import dataclass
from proxy.deployments import ModelTable
from proxy.engine import ClientDisconnected, Engine
from proxy.errors import (
    Forbidden,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    NotReady,
    ProxyError,
    Unauthorized,
    error_body,
)
from proxy.ports import Deployment, Fault
from proxy.telemetry.metrics import CONTENT_TYPE, Metrics
from proxy.web.connection import Connection
from proxy.web.inference import AzureEndpoint, ChatEndpoint, ModelsEndpoint, PassthroughEndpoint

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
class AdminEndpoint:
    """The admin API over HTTP."""

    service: AdminService
    identity: Identity
    forms: LitellmForms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path: str = scope["path"].removeprefix("/admin/")
        connection = Connection(scope, receive, send, path)
        # A POST to a list creates a new entry in it.
        status = 201 if connection.method == "POST" and "/" not in path.strip("/") else 200
        await connection.serve(serve(connection, self._answer, status))

    async def _answer(self, connection: Connection) -> object:
        if not self.identity.has_master:
            raise NotFound(f"Invalid URL ({connection.method} /admin/...): nothing is served there")
        if not self.identity.is_master(connection.headers):
            raise Unauthorized("The admin API needs the proxy's master key as `Authorization: Bearer KEY`.")
        return await self.service.answer(connection.method, connection.path, *await sent(connection))


async def serve(connection: Connection, answer: Callable[[Connection], Awaitable[object]], status: int = 200) -> None:
    """Send an answer, which is a JSON value or a CSV text, or the error that replaces it."""
    try:
        content = await answer(connection)
        body = content.encode() if isinstance(content, str) else orjson.dumps(content)
        kind = "text/csv; charset=utf-8" if isinstance(content, str) else "application/json"
        # An answer may hold a key that was just made.
        await connection.answer(status, body, [("content-type", kind), ("cache-control", "no-store")])
    except ProxyError as error:
        await connection.refuse(error)
    except ClientDisconnected:
        return


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


@dataclass(frozen=True, slots=True)
class LitellmAdmin:
    """Keys, users, teams and spend in LiteLLM's forms."""

    admin: AdminEndpoint
    engine: Engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, scope["path"].strip("/"))
        await connection.serve(serve(connection, self._answer))

    async def _answer(self, connection: Connection) -> object:
        caller = None if self.admin.identity.is_master(connection.headers) else self.engine.principal(connection)
        asked = await sent(connection)
        return await self.admin.forms.answer(connection.method, connection.path, *asked, caller)


@dataclass(frozen=True, slots=True)
class LitellmModels:
    """``/model/info`` and ``/health``: the models that the key may use. Their health comes from the circuit breakers.
    No call is made to find it out, because a call would cost money."""

    engine: Engine
    models: ModelsEndpoint
    is_failing: Callable[[Deployment], bool]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, scope["path"])
        await connection.serve(serve(connection, self._answer))

    async def _answer(self, connection: Connection) -> object:
        found = self.models.deployments(self.engine.principal(connection))
        return self._health(found) if connection.path == "/health" else {"data": list(map(_info, found))}

    def _health(self, found: list[tuple[str, Deployment]]) -> object:
        parts: dict[bool, list[object]] = {False: [], True: []}
        for name, deployment in found:
            parts[self.is_failing(deployment)].append({"model": deployment.model, "model_name": name})
        return {"healthy_endpoints": parts[False], "unhealthy_endpoints": parts[True],
                "healthy_count": len(parts[False]), "unhealthy_count": len(parts[True])}  # fmt: skip


def _info(named: tuple[str, Deployment]) -> object:
    name, deployment = named
    told = {"max_input_tokens": deployment.max_input_tokens} if deployment.max_input_tokens else {}
    info = {"id": deployment.id, "db_model": False, "cache_profile": deployment.profile.name, **told}
    return {"model_name": name, "litellm_params": {"model": deployment.model}, "model_info": info}


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
    models = ModelsEndpoint(parts.engine, parts.models)
    passthrough = PassthroughEndpoint(parts.engine)
    health = Health(parts.metrics, parts.obstacle, parts.faults, parts.metrics_key)
    known = LitellmModels(parts.engine, models, parts.is_failing)
    app = Starlette(
        routes=[
            Route("/", front, methods=["GET"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/chat/completions/", chat, methods=["POST"]),
            Route("/v1/stratiform/breakdown", ChatEndpoint(parts.engine, is_breakdown=True), methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/models/{name:path}", models, methods=["GET"]),
            Route("/v1/model/info", known, methods=["GET"]),
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
            Route("/health", known, methods=["GET"]),
            Route("/model/info", known, methods=["GET"]),
            Route("/metrics", health.metrics, methods=["GET"]),
            *_administration(parts),
            *([Route("/ui", parts.ui), Route("/ui/{path:path}", parts.ui)] if parts.ui is not None else []),
        ],
        exception_handlers={HTTPException: on_http_exception, Exception: on_surprise},
        lifespan=_lifespan(parts),
        middleware=[Middleware(AllowedAddresses, parts.allowed_ips)] if parts.allowed_ips else [],
    )
    # The provider decides what a path means, including its last slash. Only the chat path is the proxy's own.
    app.router.redirect_slashes = False
    return app


def _administration(parts: Parts) -> list[Route]:
    """The routes of the admin API, and those that LiteLLM's tools use."""
    if parts.admin is None:
        return []
    paths, forms = parts.admin.forms.paths, LitellmAdmin(parts.admin, parts.engine)
    return [Route("/admin/{path:path}", parts.admin), *(Route(f"/{path}", forms) for path in paths)]


def _lifespan(parts: Parts) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for close in parts.on_close:
                stack.push_async_callback(close)
            stack.push_async_callback(parts.engine.aclose)
            yield

    return lifespan

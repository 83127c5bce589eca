"""``/admin/...``: teams, keys, budgets and spend, for clients with the master key.

Without a configured master key, this path does not exist. The client is authenticated before anything else of the
request is read.

The paths that LiteLLM's tools use, in LiteLLM's forms: models and their health, keys, users, teams and spend.

A client with the master key sees everything. A client with another key sees the models that it may use, and its own
data.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Receive, Scope, Send

from proxy import __version__
from proxy.access.authentication import Identity
from proxy.admin import AdminService
from proxy.admin.litellm_forms import LitellmForms
from proxy.core.value import dataclass
from proxy.engine import ClientDisconnected, Engine
from proxy.errors import InvalidRequest, NotFound, ProxyError, Unauthorized
from proxy.ports import Deployment
from proxy.web.connection import Connection
from proxy.web.inference import ModelsEndpoint

_BODY_BYTES = 1 << 20
_MOST_PARAMETERS = 20


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
        await _send(connection, await answer(connection), status)
    except ProxyError as error:
        await connection.refuse(error)
    except ClientDisconnected:
        return


async def sent(connection: Connection) -> tuple[dict[str, str], object]:
    """The query and the body of an authenticated request. Raises InvalidRequest."""
    body = await connection.read(_BODY_BYTES)
    return _query(connection.query), _json(body) if body else {}


async def _send(connection: Connection, content: object, status: int) -> None:
    if isinstance(content, str):
        body, kind = content.encode(), "text/csv; charset=utf-8"
    else:
        body, kind = orjson.dumps(content), "application/json"
    # An answer may hold a key that was just made.
    await connection.answer(status, body, [("content-type", kind), ("cache-control", "no-store")])


def _query(text: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS, errors="strict"))
    except ValueError as error:
        raise InvalidRequest("The query cannot be read.") from error


def _json(body: bytes) -> object:
    try:
        return orjson.loads(body)
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

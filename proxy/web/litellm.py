"""The paths that LiteLLM's tools use, in LiteLLM's forms: models and their health, keys, users, teams and spend.

A client with the master key sees everything. A client with another key sees the models that it may use, and its own
data.
"""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Receive, Scope, Send

from proxy import __version__
from proxy.core.value import dataclass
from proxy.engine import Engine
from proxy.ports import Deployment
from proxy.web.admin import AdminEndpoint, sent, serve
from proxy.web.connection import Connection
from proxy.web.models import ModelsEndpoint

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

"""The paths of the API that clients ask for answers of models.

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

from contextlib import suppress
from urllib.parse import parse_qs

import orjson
from starlette.types import Receive, Scope, Send

from proxy.core.account.objects import INVALID_PATH, Path, read_path
from proxy.core.model_patterns import allows
from proxy.core.secrets import bare
from proxy.core.value import dataclass
from proxy.deployments import ModelTable
from proxy.engine import Engine
from proxy.engine.engine import CHAT
from proxy.engine.headers import decoded
from proxy.engine.intake import is_same_upstream
from proxy.errors import MethodNotAllowed, NotFound, ProxyError, UnknownModel
from proxy.ports import Deployment, Principal
from proxy.web.connection import Connection

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
_FRONT = "/v1"


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
    if scope["path"].startswith(f"{_FRONT}/") and not raw_path(scope).startswith(f"{_FRONT}/"):
        raise NotFound("the path begins with /v1/, which must not be percent-encoded", code=INVALID_PATH)
    return read_path(sent_path(scope))


def sent_path(scope: Scope) -> str:
    """The path after ``/v1``, percent-encoded as the client sent it. It begins with a slash, because text directly
    after a bare host would become a part of the host."""
    path = raw_path(scope).removeprefix(_FRONT)
    return path if path.startswith("/") else f"/{path}"


def raw_path(scope: Scope) -> str:
    """The path, percent-encoded as the client sent it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1")


_JSON = (("content-type", "application/json"),)
# A configuration has no dates. LiteLLM's proxy reports this date for every entry.
_CREATED = 1677610602
_MOST_PARAMETERS = 20


@dataclass(frozen=True, slots=True)
class ModelsEndpoint:
    """Serves the list and single entries of it."""

    engine: Engine
    models: ModelTable

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
            await connection.answer(200, orjson.dumps(content), _JSON)

    def _list(self, principal: Principal, query: str) -> object | None:
        """The names that the key may use. None: the upstream is asked."""
        names = [*self.models.names(), *(self.models.patterns() if _wants_patterns(query) else ())]
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

    def deployments(self, principal: Principal) -> list[tuple[str, Deployment]]:
        """The deployments of each name that the key may use, without the deployments that replace them."""
        names = [name for name in self.models.names() if self._allows(principal, name)]
        return [(name, deployment) for name in names for deployment in self.models.candidates(name)]

    def _allows(self, principal: Principal, name: str) -> bool:
        if not principal.models:
            return True
        deployment = self.models.resolve(name)
        return allows(principal.models, (name, deployment.name, deployment.entry), deployment.groups)


def _wants_patterns(query: str) -> bool:
    try:
        return (
            parse_qs(query, max_num_fields=_MOST_PARAMETERS).get("return_wildcard_routes", [""])[-1].lower() == "true"
        )
    except ValueError:
        return False


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

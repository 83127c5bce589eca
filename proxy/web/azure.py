"""``/openai/...``: the addresses of Azure's clients, served like the same paths of OpenAI's API.

``/openai/deployments/NAME/chat/completions?api-version=...`` asks the model NAME, whatever model the body names.
``/openai/responses?...``, and every other path that names no deployment, is served as the path without ``/openai``. A
key in ``api-key`` is the client's key, like a bearer token. The version of Azure's API is removed, because it means
nothing to other servers.
https://learn.microsoft.com/en-us/azure/ai-services/openai/reference
"""

from starlette.types import Receive, Scope, Send

from proxy.core.account.paths import read_path
from proxy.core.secrets.credentials import bare
from proxy.core.value import dataclass
from proxy.engine import Engine
from proxy.engine.engine import CHAT
from proxy.engine.target import decoded
from proxy.errors import NotFound, ProxyError
from proxy.web.chat import ChatEndpoint
from proxy.web.connection import Connection
from proxy.web.models import ModelsEndpoint
from proxy.web.passthrough import PassthroughEndpoint, check_request_line, raw_path

_FRONT = "/openai"
_VERSION = "api-version"
_KEY, _AUTHORIZATION = b"api-key", b"authorization"
_ENDINGS = frozenset(
    {
        ("chat", "completions"), ("completions",), ("embeddings",), ("responses",), ("images", "generations"),
        ("images", "edits"), ("audio", "transcriptions"), ("audio", "translations"), ("audio", "speech"),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Address:
    """A path of OpenAI's API, after ``/v1``, and the model that the address names. ``model`` is empty if it names
    none."""

    path: str
    model: str = ""


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
            found = read_address(raw_path(scope))
        except ProxyError as error:
            connection = Connection(scope, receive, send, raw_path(scope))
            await connection.refuse(self.engine.first_refusal(connection, error))
            return
        inner = _as_openai(scope, found.path)
        name = found.path.removeprefix("/models/")
        if found.path == CHAT and scope["method"] == "POST":
            await self.chat(inner, receive, send, found.model)
        elif scope["method"] == "GET" and (found.path == "/models" or name != found.path):
            names = {} if found.path == "/models" else {"name": decoded(name)}
            await self.models({**inner, "path_params": names}, receive, send)
        else:
            await self.passthrough(inner, receive, send, found.model)


def read_address(raw: str) -> Address:
    """The address that a path of Azure's API stands for. Raises NotFound for a path that can be read in several ways,
    and for an operation on a deployment that Azure may have and this proxy does not know."""
    sent = raw.removeprefix(_FRONT)
    path = read_path(sent if sent.startswith("/") else f"/{sent}")
    if path.words[:1] != ("deployments",):
        return Address("/" + "/".join(sent.split("/")[1 + path.skipped :]))
    for ending in (path.words[-2:], path.words[-1:]):
        name = path.segments[1 : -len(ending)]
        if ending in _ENDINGS and name:
            return Address("/" + "/".join(ending), "/".join(name))
    known = ", ".join(sorted("/".join(ending) for ending in _ENDINGS))
    raise NotFound(f"Behind /openai/deployments/NAME/ these are served: {known}.")


def _as_openai(scope: Scope, path: str) -> Scope:
    """The same request in the form that a client of OpenAI's API sends."""
    raw = f"/v1{path}"
    parts = [part for part in scope["query_string"].split(b"&") if part]
    kept = [part for part in parts if decoded(part.decode("latin-1")).partition("=")[0].strip().lower() != _VERSION]
    return {
        **scope,
        "path": decoded(raw),
        "raw_path": raw.encode("latin-1"),
        "query_string": b"&".join(kept),
        "headers": _with_bearer(scope["headers"]),
    }


def _with_bearer(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    if any(name == _AUTHORIZATION for name, _ in headers):
        return headers
    return [
        (_AUTHORIZATION, f"Bearer {bare(value.decode('latin-1'))}".encode("latin-1")) if name == _KEY else (name, value)
        for name, value in headers
    ]

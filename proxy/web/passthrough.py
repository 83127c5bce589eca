"""Every other path under ``/v1``: passed through raw, whatever its method and content."""

from starlette.types import Receive, Scope, Send

from proxy.core.account.paths import INVALID_PATH, Path, read_path
from proxy.core.value import dataclass
from proxy.engine import Engine
from proxy.errors import MethodNotAllowed, NotFound, ProxyError
from proxy.web.connection import Connection

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

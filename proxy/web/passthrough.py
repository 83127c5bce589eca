"""Every other path under ``/v1``: passed through raw, whatever its method and content."""

import re
from urllib.parse import unquote

from starlette.types import Receive, Scope, Send

from proxy.engine import Engine
from proxy.errors import NotFound
from proxy.web.connection import Connection

_SLASHES = re.compile(r"[/\\\\]")
_MOST_DECODINGS = 4


class PassthroughEndpoint:
    """Embeddings, responses, completions, audio, files, Anthropic's messages, and what providers will invent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, upstream_path(scope), receive_s=self._engine.limits.receive_s)
        try:
            refuse_dot_segments(scope)
        except NotFound as error:
            await connection.refuse(error)
            return
        await connection.serve(self._engine.relay(connection))


def refuse_dot_segments(scope: Scope) -> None:
    """Raises NotFound. A server may resolve them, and the deployment's key must not open what lies beside its base
    URL."""
    if has_dot_segments(scope["path"]):
        raise NotFound("the path may not contain dot segments")


def has_dot_segments(path: str) -> bool:
    """Whether some server could find ``.`` or ``..`` in the path: Tomcat cuts a segment off at its semicolon, IIS takes
    a backslash for a slash, and some decode twice."""
    for _ in range(_MOST_DECODINGS):
        if any(segment.partition(";")[0].strip() in (".", "..") for segment in _SLASHES.split(path)):
            return True
        decoded = unquote(path)
        if decoded == path:
            return False
        path = decoded
    return True


def upstream_path(scope: Scope) -> str:
    """The path behind ``/v1``, percent-encoded as the client sent it.

    It begins with a slash, also where the client encoded that one: behind a base URL without a path,
    ``%2F@elsewhere`` would make the base a user's name, and ``elsewhere`` the host.
    """
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.decode("latin-1").removeprefix("/v1")
    return path if path.startswith("/") else f"/{path}"

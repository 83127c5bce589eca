"""Every other path under ``/v1``: passed through raw, whatever its method and content."""

from starlette.types import Receive, Scope, Send

from proxy.engine import Engine
from proxy.errors import NotFound
from proxy.web.connection import Connection


class PassthroughEndpoint:
    """Embeddings, responses, completions, audio, files, Anthropic's messages, and what providers will invent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, upstream_path(scope), receive_s=self._engine.limits.receive_s)
        if not {".", ".."}.isdisjoint(scope["path"].split("/")):
            # A server may resolve them, and the deployment's key must not open what lies beside its base URL.
            await connection.refuse(NotFound("the path may not contain dot segments"))
            return
        await connection.serve(self._engine.relay(connection))


def upstream_path(scope: Scope) -> str:
    """The path behind ``/v1``, percent-encoded as the client sent it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").removeprefix("/v1")

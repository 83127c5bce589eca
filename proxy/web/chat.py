"""``POST /v1/chat/completions``."""

from starlette.types import Receive, Scope, Send

from proxy.engine import Engine
from proxy.web.connection import Connection


class ChatEndpoint:
    """Chat requests, JSON and SSE: the engine plans, forwards and streams back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, "/chat/completions", receive_s=self._engine.limits.receive_s)
        await connection.serve(self._engine.chat(connection))

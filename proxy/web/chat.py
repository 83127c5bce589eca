"""``POST /v1/chat/completions``, and ``POST /v1/stratiform/breakdown`` for the same body."""

from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from proxy.engine import Engine
from proxy.web.connection import Connection

CHAT = "/chat/completions"


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    """Chat requests, JSON and SSE: the engine plans, forwards and streams back."""

    engine: Engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send, model: str = "") -> None:
        """Serve one request; ``model`` is the one that its address names."""
        connection = Connection(scope, receive, send, CHAT, receive_s=self.engine.limits.receive_s)
        await connection.serve(self.engine.chat(connection, model))


@dataclass(frozen=True, slots=True)
class BreakdownEndpoint:
    """What a chat request with structured context would consist of. The body is that of the chat request."""

    engine: Engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, CHAT, receive_s=self.engine.limits.receive_s)
        await connection.serve(self.engine.breakdown(connection))

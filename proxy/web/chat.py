"""``POST /v1/chat/completions``, and ``POST /v1/stratiform/breakdown`` for the same body."""

from starlette.types import Receive, Scope, Send

from proxy.core.value import dataclass
from proxy.engine import Engine
from proxy.engine.engine import CHAT
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

"""``/admin/...``: teams, keys, budgets and spend, for clients with the master key.

Without a configured master key, this path does not exist. The client is authenticated before anything else of the
request is read.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

import orjson
from starlette.types import Receive, Scope, Send

from proxy.access.authentication import Identity
from proxy.admin import AdminService
from proxy.admin.litellm_forms import LitellmForms
from proxy.core.value import dataclass
from proxy.engine import ClientDisconnected
from proxy.errors import InvalidRequest, NotFound, ProxyError, Unauthorized
from proxy.web.connection import Connection

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

"""``GET /v1/models`` and ``/v1/models/{id}``: the names of the model list.

Where the list only has wildcards, the upstream knows its models better: it is asked.
"""

import orjson
from starlette.types import Receive, Scope, Send

from proxy.engine import Engine
from proxy.errors import ProxyError
from proxy.ports import Models
from proxy.web.connection import Connection
from proxy.web.passthrough import upstream_path

_JSON = (("content-type", "application/json"),)
# A configuration has no dates; litellm's proxy reports this one for every entry of its own.
_CREATED = 1677610602


class ModelsEndpoint:
    """The list, and one entry of it."""

    def __init__(self, engine: Engine, models: Models) -> None:
        self._engine = engine
        self._models = models

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, upstream_path(scope), receive_s=self._engine.limits.receive_s)
        name: str | None = scope.get("path_params", {}).get("name")
        try:
            content = self._content(name)
        except ProxyError as error:
            await connection.refuse(error)
            return
        if content is None:
            await connection.serve(self._engine.relay(connection))
        else:
            await self._answer(connection, content)

    def _content(self, name: str | None) -> object | None:
        """What we know ourselves; None: the upstream knows. Raises UnknownModel where nothing serves the name."""
        names = self._models.names()
        if name is None:
            return {"object": "list", "data": [_entry(n) for n in names]} if names else None
        if name in names:
            return _entry(name)
        self._models.resolve(name)
        return None

    async def _answer(self, connection: Connection, content: object) -> None:
        try:
            self._engine.subject(connection)
        except ProxyError as error:
            await connection.refuse(error)
            return
        await connection.answer(200, orjson.dumps(content), _JSON)


def _entry(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "stratiform"}

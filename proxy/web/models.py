"""``GET /v1/models`` and ``/v1/models/{id}``: the names of the model list.

Where the list only has wildcards, the upstream knows its models better: it is asked.
"""

import orjson
from starlette.types import Receive, Scope, Send

from proxy.core.allow import allows
from proxy.engine import Engine
from proxy.errors import ProxyError, UnknownModel
from proxy.ports import Models, Subject
from proxy.web.connection import Connection
from proxy.web.passthrough import refuse_dot_segments, upstream_path

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
            refuse_dot_segments(scope)
            content = self._content(name, self._engine.subject(connection))
        except ProxyError as error:
            await connection.refuse(error)
            return
        if content is None:
            await connection.serve(self._engine.relay(connection))
        else:
            await connection.answer(200, orjson.dumps(content), _JSON)

    def _content(self, name: str | None, subject: Subject) -> object | None:
        """What we know ourselves, and the key may use; None: the upstream knows. Raises UnknownModel."""
        names = self._models.names()
        if name is None:
            return {"object": "list", "data": [_entry(n) for n in names if self._allows(subject, n)]} if names else None
        deployment = self._models.resolve(name)
        if not self._allows(subject, name):
            raise UnknownModel(f"The model '{deployment.name}' is not one that this key may use.", param="model")
        return _entry(name) if name in names else None

    def _allows(self, subject: Subject, name: str) -> bool:
        if not subject.models:
            return True
        deployment = self._models.resolve(name)
        return allows(subject.models, (name, deployment.name, deployment.entry))


def _entry(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "stratiform"}

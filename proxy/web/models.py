"""``GET /v1/models`` and ``/v1/models/{id}``: the names of the model list.

If the list has only wildcards, the upstream is asked, because it knows its models better. Wildcards are listed in
addition to names only if the client wants them (LiteLLM's ``?return_wildcard_routes=true``): no model is called
``openai/*``.
"""

from urllib.parse import parse_qs

import orjson
from starlette.types import Receive, Scope, Send

from proxy.core.model_patterns import allows
from proxy.core.value import dataclass
from proxy.deployments import ModelTable
from proxy.engine import Engine
from proxy.engine.rights import is_same_upstream
from proxy.errors import ProxyError, UnknownModel
from proxy.ports import Deployment, Principal
from proxy.web.connection import Connection
from proxy.web.passthrough import check_request_line, sent_path

_JSON = (("content-type", "application/json"),)
# A configuration has no dates. LiteLLM's proxy reports this date for every entry.
_CREATED = 1677610602
_MOST_PARAMETERS = 20


@dataclass(frozen=True, slots=True)
class ModelsEndpoint:
    """Serves the list and single entries of it."""

    engine: Engine
    models: ModelTable

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = Connection(scope, receive, send, sent_path(scope), receive_s=self.engine.limits.receive_s)
        name: str | None = scope.get("path_params", {}).get("name")
        try:
            principal = self.engine.principal(connection)
            check_request_line(scope)
            content = self._list(principal, connection.query) if name is None else self._one(principal, name)
        except ProxyError as error:
            await connection.refuse(error)
            return
        if content is None:
            await connection.serve(self.engine.relay(connection))
        else:
            await connection.answer(200, orjson.dumps(content), _JSON)

    def _list(self, principal: Principal, query: str) -> object | None:
        """The names that the key may use. None: the upstream is asked."""
        names = [*self.models.names(), *(self.models.patterns() if _wants_patterns(query) else ())]
        return {"object": "list", "data": [_entry(n) for n in names if self._allows(principal, n)]} if names else None

    def _one(self, principal: Principal, name: str) -> object | None:
        """The entry of a model that the key may use. None: the upstream is asked. Raises UnknownModel."""
        deployment = self.models.resolve(name)
        if not self._allows(principal, name):
            raise UnknownModel(f"The model '{deployment.name}' is not one that this key may use.", param="model")
        return None if name not in self.models.names() and self._is_asked(deployment, name) else _entry(name)

    def _is_asked(self, deployment: Deployment, name: str) -> bool:
        """Whether a path that names no model goes to the upstream that serves this model under this name. Then that
        upstream can be asked for the entry."""
        try:
            asked = self.models.unnamed()[0]
        except UnknownModel:
            return False
        return is_same_upstream(asked, deployment) and deployment.model == name

    def deployments(self, principal: Principal) -> list[tuple[str, Deployment]]:
        """The deployments of each name that the key may use, without the deployments that replace them."""
        names = [name for name in self.models.names() if self._allows(principal, name)]
        return [(name, deployment) for name in names for deployment in self.models.candidates(name)]

    def _allows(self, principal: Principal, name: str) -> bool:
        if not principal.models:
            return True
        deployment = self.models.resolve(name)
        return allows(principal.models, (name, deployment.name, deployment.entry), deployment.groups)


def _wants_patterns(query: str) -> bool:
    try:
        return (
            parse_qs(query, max_num_fields=_MOST_PARAMETERS).get("return_wildcard_routes", [""])[-1].lower() == "true"
        )
    except ValueError:
        return False


def _entry(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "stratiform"}

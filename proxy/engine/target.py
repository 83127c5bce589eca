"""Keys in the wrong place: in the path, the query, the model's name or the user of a request.

No key of this proxy goes upstream with them, and no key at all is logged or kept for having been put there.
"""

from proxy.core.secrets.credentials import KEY_PREFIX, holds, own_secrets, secrets_in
from proxy.core.secrets.redaction import without_literals, without_shapes
from proxy.engine.client import Client
from proxy.engine.exchange import Exchange
from proxy.engine.headers import uses_operators_key
from proxy.engine.query import keys_in, refuse_key, without_keys
from proxy.errors import InvalidRequest
from proxy.ports import Deployment, Principal

# A shorter text without a digit may be a word.
_SURE_CHARS = 16


def keys_of(client: Client) -> tuple[str, ...]:
    """Every credential that the client sent, whosever it is. A word that stands in for a key (``lm-studio``) is none:
    names of models hold it, too."""
    sent = (*secrets_in(client.headers), *keys_in(client.query))
    return tuple(key for key in sent if len(key) >= _SURE_CHARS or any(char.isdigit() for char in key))


def sent_query(client: Client, deployment: Deployment, principal: Principal) -> str:
    """The query that the deployment is sent."""
    if not client.query:
        return ""
    hides_credentials = principal.virtual or uses_operators_key(deployment)
    return without_keys(client.query, _secrets(client, principal), hides_credentials=hides_credentials)


def refuse_key_in_path(client: Client, principal: Principal) -> None:
    """Raises InvalidRequest for a path that holds a key of this proxy."""
    refuse_key(client.path, _secrets(client, principal))


def refuse_key_in_model(model: str, exchange: Exchange) -> None:
    """Raises InvalidRequest for a model whose name holds a key: behind a wildcard it would go upstream."""
    principal = exchange.principal
    is_ours = principal is not None and (principal.virtual or principal.forwards_key)
    if is_ours and holds(model, (KEY_PREFIX, *exchange.arrival.keys)):
        raise InvalidRequest("'model' holds an API key; send the name of a model", param="model", code="key_in_model")


def without_keys_of(exchange: Exchange, user: str) -> str:
    """What a client calls its user, without a key. Long runs of letters stay: they tell users apart."""
    return without_shapes(without_literals(user, exchange.arrival.keys))


def _secrets(client: Client, principal: Principal) -> tuple[str, ...]:
    return own_secrets(client.headers, is_virtual=principal.virtual, forwards_key=principal.forwards_key)

"""API keys in the wrong place: in the path, the query, the model's name or the user of a request.

No key of this proxy goes upstream in these places, and no key of any kind is logged or stored because a client put it
there.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from urllib.parse import unquote_plus

from proxy.core.secrets import (
    KEY_PARAMETERS,
    KEY_PREFIX,
    holds,
    own_secrets,
    secrets_in,
    without_literals,
    without_shapes,
)
from proxy.engine.exchange import Exchange
from proxy.engine.headers import uses_operators_key
from proxy.engine.ports import Client
from proxy.errors import InvalidRequest
from proxy.ports import Deployment, Principal

# A shorter text without a digit may be a word.
_SURE_CHARS = 16
_MOST_DECODINGS = 4


def keys_of(client: Client) -> tuple[str, ...]:
    """Every credential that the client sent, from any issuer. A word that is used in place of a key (``lm-studio``) is
    not a credential, because names of models contain it, too."""
    pairs = (decoded(part).partition("=") for part in client.query.split("&"))
    in_query = (value for name, _, value in pairs if name.strip().lower() in KEY_PARAMETERS and value)
    sent = (*secrets_in(client.headers), *in_query)
    return tuple(key for key in sent if len(key) >= _SURE_CHARS or any(char.isdigit() for char in key))


def sent_query(client: Client, deployment: Deployment, principal: Principal) -> str:
    """The query that is sent to the deployment. Parameters that hold a key of this proxy are removed. If the client's
    credentials must not go upstream, the parameters in which providers accept keys are removed, too. All others pass
    unchanged."""
    if not client.query:
        return ""
    secrets, hides_credentials = _secrets(client, principal), principal.virtual or uses_operators_key(deployment)
    return "&".join(part for part in client.query.split("&") if not _is_dropped(part, secrets, hides_credentials))


def refuse_key_in_path(client: Client, principal: Principal) -> None:
    """Raises InvalidRequest for a path that holds a key of this proxy, because paths are logged on the way and at their
    destination, and go upstream unchanged."""
    if holds(decoded(client.path), _secrets(client, principal)):
        raise InvalidRequest(
            "The path holds an API key. Send the key as `Authorization: Bearer KEY` and in no other place.",
            code="key_in_path",
        )


def refuse_key_in_model(model: str, exchange: Exchange) -> None:
    """Raises InvalidRequest for a model whose name holds a key, because a name that matches a wildcard goes
    upstream."""
    principal = exchange.principal
    is_ours = principal is not None and (principal.virtual or principal.forwards_key)
    if is_ours and holds(model, (KEY_PREFIX, *exchange.arrival.keys)):
        raise InvalidRequest("'model' holds an API key; send the name of a model", param="model", code="key_in_model")


def without_keys_of(exchange: Exchange, user: str) -> str:
    """The user that a client names, without any key. Long runs of letters stay, because they distinguish users."""
    return without_shapes(without_literals(user, exchange.arrival.keys))


def _secrets(client: Client, principal: Principal) -> tuple[str, ...]:
    return own_secrets(client.headers, is_virtual=principal.virtual, forwards_key=principal.forwards_key)


def decoded(text: str) -> str:
    """The text without percent-encoding, even if it was encoded more than once (up to four times)."""
    for _ in range(_MOST_DECODINGS):
        if "%" not in text:
            break
        text = unquote_plus(text)
    return text


def _is_dropped(part: str, secrets: Collection[str], hides_credentials: bool) -> bool:
    plain = decoded(part)
    name = plain.partition("=")[0].strip().lower()
    return (hides_credentials and name in KEY_PARAMETERS) or holds(plain, secrets)


# Words in a name that indicate a credential, or the owner of an account.
_SECRET = re.compile(
    r"(^|[_-])(auth|authorization|key|token|secret|credentials?|password|cookie|organization|project|account|role"
    r"|profile|session|sts|tenant|client|identity)([_-]|$)"
)


def without_credentials(deployment: Deployment) -> Deployment:
    """The deployment without its key, and without headers and parameters that could stand for one."""
    return replace(
        deployment,
        api_key=None,
        headers=tuple((name, value) for name, value in deployment.headers if not _SECRET.search(name.lower())),
        params={name: value for name, value in deployment.params.items() if not _SECRET.search(name.lower())},
    )

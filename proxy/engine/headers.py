"""What crosses the proxy in either direction: the headers, and the query of a request. Keys in the wrong place do not.

All headers pass except those that belong to one connection (RFC 9110 section 7.6.1), those that the proxy sets itself,
the proxy's own, and credentials that are not meant for the other side (``proxy.kit.secrets``). Names are
always in lower case. A name with ``_`` is treated like the name with ``-``, because some servers do not distinguish the
two.

A client may also put a key into the path, the query, the model's name or the user of its request. No key of this proxy
goes upstream in these places, and no key of any kind is logged or stored because a client put it there.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import unquote_plus

from proxy.engine.exchange import Exchange, Principal
from proxy.kit.errors import Forbidden, InvalidRequest
from proxy.kit.secrets import (
    ACCOUNT_HEADERS,
    CREDENTIAL_HEADERS,
    KEY_PARAMETERS,
    KEY_PREFIX,
    OWN_KEY_HEADER,
    PLAIN_KEY_HEADERS,
    bare,
    canonical,
    holds,
    secrets_in,
    without_keys,
)
from proxy.models import Deployment, Headers, Transport

OWN_PREFIX = "x-stratiform-"
PROFILE_HEADER = "x-stratiform-profile"
ID_HEADER = "x-request-id"
# The header in which a provider reads the id that its client gives a request. All others get it in the common header.
# https://developers.openai.com/api/reference/overview,
# https://github.com/microsoft/api-guidelines/blob/vNext/azure/Guidelines.md#distributed-tracing--telemetry
_ID_HEADERS = {"openai": "x-client-request-id", "azure": "x-ms-client-request-id"}
ID_HEADERS = frozenset({ID_HEADER, *_ID_HEADERS.values()})
# This is longer than any id that tools make. OpenAI accepts 512 characters.
_ID = re.compile(r"[\w.:/@+=-]{1,128}", re.ASCII)
_HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade", "http2-settings",
    }
)  # fmt: skip
# A cookie belongs to the host that set it. Here, many clients would share the provider's cookies, and the provider
# would get theirs.
_REQUEST_DROPPED = _HOP_BY_HOP | {"host", "content-length", "accept-encoding", "expect", "cookie"}
# Headers from which some servers take another method or path than the request's own one, which was checked.
_ANOTHER_REQUEST = frozenset(
    {
        "x-http-method-override", "x-http-method", "x-method-override", "x-original-method", "x-original-url",
        "x-rewrite-url", "x-original-uri", "x-override-url", "x-forwarded-uri", "x-forwarded-method",
        "x-forwarded-path", "x-forwarded-prefix",
    }
)  # fmt: skip
# A gateway may send the request, with the key, to an address that it finds in a header
# (https://portkey.ai/docs/api-reference/inference-api/headers,
# https://docs.helicone.ai/getting-started/integration-method/gateway). The headers of pages say only who asks.
_ADDRESS = re.compile(r"\A\s*+(?:https?:|[\[{].*://)", re.IGNORECASE | re.DOTALL)
# The host as it was asked for and the site whose page asks, behind a blank: a site on this machine, one that has the
# address of the proxy itself, or a program's own pages. Any page can give itself the origin ``null``.
_NEAR_SITE = re.compile(
    r"\A(?:\S*+ https?://(?:localhost|[\w.-]++(?<=\.localhost)|127(?:\.\d++){3}|0\.0\.0\.0|\[::1\])(?::\d++)?"
    r"|\S*+ (?!https?:)[a-z][\w.+-]*+:\S*+"
    r"|(\d++(?:\.\d++){3}|\[[\da-f:.]++\])(?::\d++)? https?://\1(?::\d++)?)",
    re.ASCII | re.IGNORECASE,
)
# Some of these headers hold for the host that sends them. Others tell a server in front of the proxy to send a file.
_ANSWER_DROPPED = _HOP_BY_HOP | {
    "content-length", "date", "server", "set-cookie", "set-cookie2", "alt-svc", "strict-transport-security",
    "clear-site-data", "public-key-pins", "x-accel-redirect", "x-sendfile", "x-lighttpd-send-file",
    "x-litespeed-location", "x-reproxy-url",
}  # fmt: skip
_AZURE_KEY = "api-key"
_TOKEN_START = "eyJ"
# https://www.iana.org/assignments/http-parameters/http-parameters.xhtml#content-coding
_CODINGS = frozenset(
    {
        "aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip", "x-compress", "x-gzip",
        "zstd",
    }
)  # fmt: skip
# Headers in which a LiteLLM proxy reports on its key and its own upstream.
_ACCOUNT_PREFIXES = ("x-litellm-key-", "x-litellm-model-api-base")
control_in = re.compile("[\\x00-\\x08\\x0a-\\x1f\\x7f]").search
"""Finds a line break or another control character. A value that has one must not be sent in a header."""
# RFC 9110 section 5.1; header names are lower case here.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
# A shorter text without a digit may be a word.
_SURE_CHARS = 16
_MOST_DECODINGS = 4
# Words in a name that indicate a credential, or the owner of an account.
_SECRET = re.compile(
    r"auth|key|token(?!s)|secret|credential|passw|passphrase|pwd|cookie|bearer|jwt|signature|subscription"
    r"|(^|[_-])(organization|project|account|role|profile|session|sts|tenant|client|identity|config)([_-]|$)"
)


def get(headers: Headers, name: str) -> str | None:
    """The first value of a header. ``name`` is in lower case."""
    for key, value in headers:
        if key == name:
            return value
    return None


class BodyForm(NamedTuple):
    """How a body is written. ``kind`` is its content type in lower case, or empty. ``is_coded``: it is compressed, or
    coded in another way. ``length`` is its number of bytes; None if that is not known."""

    kind: str
    is_json: bool
    is_events: bool
    is_coded: bool
    length: int | None


def form_of(headers: Headers) -> BodyForm:
    """The form of a body, by its headers. Any other name of a coding changes nothing: some servers write ``none``
    (https://ai-sdk.dev/v5/docs/troubleshooting/streaming-not-working-when-proxied), or a character set."""
    kind, length, is_coded = "", "", False
    for name, value in headers:
        if name == "content-type":
            kind = kind or value.lower()
        elif name == "content-length":
            length = length or value
        elif name == "content-encoding":
            is_coded = is_coded or any(coding.strip() in _CODINGS for coding in value.lower().split(","))
    is_events, size = kind.startswith("text/event-stream"), int(length) if length.isdecimal() else None
    return BodyForm(kind, "json" in kind, is_events, is_coded, size)


def named_by(headers: Headers, keys: Sequence[str]) -> str:
    """The client's id for its request. Empty if it gives none, or if the id is no plain word or holds a key, because an
    id is forwarded and logged."""
    given = get(headers, ID_HEADER)
    if not given or not _ID.fullmatch(given):
        return ""
    return given if without_keys(given, keys, keeps_runs=True) == given else ""


def with_id(sent: Headers, deployment: Deployment, request_id: str) -> Headers:
    """The headers for a deployment. The request's id is added if they have none. An id that is no plain word is not
    forwarded, because it may be as long as all headers together, and it appears in logs."""
    name = _ID_HEADERS.get("azure" if deployment.speaks_azure else deployment.server, ID_HEADER)
    plain = [pair for pair in sent if pair[0].lower() not in ID_HEADERS or _ID.fullmatch(pair[1])]
    return plain if get(plain, name) is not None else [*plain, (name, request_id)]


def for_upstream(
    headers: Headers, deployment: Deployment, principal: Principal, accept_encoding: str | None = "identity"
) -> list[tuple[str, str]]:
    """The request headers that are sent to a deployment.

    The deployment's own key replaces the client's, in the client's style. A virtual key (issued by this proxy) is never
    sent, nor any header that holds it. If the configuration's key is used, only the configuration selects the billed
    account, and no header turns the checked request into another one, or takes it to another server. Raises Forbidden
    for a page of another site whose request has no key: the operator's key would be spent by whatever page somebody
    looks at.
    """
    dropped = _dropped(headers, _REQUEST_DROPPED)
    own = deployment.header_names
    key = deployment.api_key
    if hides_credentials := principal.virtual or deployment.uses_operators_key:
        dropped |= CREDENTIAL_HEADERS | ACCOUNT_HEADERS | _ANOTHER_REQUEST
    secrets = _own_secrets(headers, principal)
    passed = [
        (name, value)
        for name, value in headers
        if (plain := canonical(name)) not in dropped
        and plain not in own
        and not plain.startswith(OWN_PREFIX)
        and not control_in(value)
        and not (hides_credentials and plain not in ("referer", "http-referer", "origin") and _ADDRESS.match(value))
    ]
    if secrets:
        passed = [pair for pair in passed if not holds(pair[1], secrets)]
    if deployment.speaks_azure:
        # A client's own key goes to the header where Azure expects it. A token of Entra is no key, and stays unchanged.
        keys = [bare(value) for _, value in passed]
        passed = [
            (_AZURE_KEY, own_key) if pair[0] == "authorization" and not own_key.startswith(_TOKEN_START) else pair
            for pair, own_key in zip(passed, keys, strict=True)
        ]
    if key is not None and not own & CREDENTIAL_HEADERS:
        # Anthropic's clients send ``x-api-key``, Gemini's ``x-goog-api-key``, and most others a bearer token.
        is_bearer = get(headers, "authorization") is not None
        sent = next((name for name in PLAIN_KEY_HEADERS if not is_bearer and get(headers, name) is not None), "")
        name = _AZURE_KEY if deployment.speaks_azure else sent
        passed.append((name, key) if name else ("authorization", f"Bearer {key}"))
    origins = [value for name, value in headers if name == "origin"]
    spends = deployment.uses_operators_key or deployment.transport is Transport.LITELLM
    if origins and spends and not (principal.virtual or principal.forwards_key):
        _check_site(get(headers, "host") or "", origins)
    if accept_encoding is not None:
        passed.append(("accept-encoding", accept_encoding))
    passed.extend(deployment.headers)
    return passed


def _check_site(host: str, origins: Sequence[str]) -> None:
    if not all(_NEAR_SITE.fullmatch(f"{host} {origin}") for origin in origins):
        raise Forbidden(
            "A page of another site may not use the operator's key. Give this proxy keys"
            " (general_settings.master_key, or stratiform.teams), and the page one of them.",
            code="foreign_origin",
        )


def for_client(headers: Headers, *, keep_length: bool, hides_account: bool = False) -> list[tuple[str, str]]:
    """The answer headers that are sent to the client. The length is kept if the body passes unchanged. The billed
    account is hidden (``hides_account``) from clients that use the operator's key."""
    dropped = _dropped(headers, _ANSWER_DROPPED)
    if hides_account:
        dropped |= ACCOUNT_HEADERS
    return [
        (name, value)
        for name, value in headers
        if (name not in dropped or (keep_length and name == "content-length" and value.isdecimal()))
        and not name.startswith(OWN_PREFIX)
        and not (hides_account and name.startswith(_ACCOUNT_PREFIXES))
        and not control_in(value)
        and _NAME.fullmatch(name)
    ]


def _dropped(headers: Headers, always: frozenset[str]) -> frozenset[str]:
    """The headers that are not forwarded. Each ``connection`` header names further ones that belong to the
    connection."""
    named = [token for name, value in headers if name == "connection" for token in value.split(",")]
    return always | {canonical(token.strip().lower()) for token in named} if named else always


def keys_of(headers: Headers, query: str) -> tuple[str, ...]:
    """Every credential that the client sent, from any issuer. A word that is used in place of a key (``lm-studio``) is
    not a credential, because names of models contain it, too."""
    pairs = (decoded(part).partition("=") for part in (query.split("&") if query else ()))
    in_query = (value for name, _, value in pairs if name.strip().lower() in KEY_PARAMETERS and value)
    sent = (*secrets_in(headers), *in_query)
    return tuple(key for key in sent if len(key) >= _SURE_CHARS or any(char.isdigit() for char in key))


def sent_query(query: str, headers: Headers, deployment: Deployment, principal: Principal) -> str:
    """The query that is sent to the deployment. Parameters that hold a key of this proxy are removed. If the client's
    credentials must not go upstream, the parameters in which providers accept keys are removed, too. All others pass
    unchanged."""
    secrets, hides_credentials = _own_secrets(headers, principal), principal.virtual or deployment.uses_operators_key
    return "&".join(part for part in query.split("&") if not _is_dropped(part, secrets, hides_credentials))


def refuse_key_in_path(path: str, headers: Headers, principal: Principal) -> None:
    """Raises InvalidRequest for a path that holds a key of this proxy, because paths are logged on the way and at their
    destination, and go upstream unchanged."""
    if holds(decoded(path), _own_secrets(headers, principal)):
        raise InvalidRequest(
            "The path holds an API key. Send the key as `Authorization: Bearer KEY` and in no other place.",
            code="key_in_path",
        )


def refuse_key_in_model(model: str, exchange: Exchange) -> None:
    """Raises InvalidRequest for a model whose name holds a key, because a name that matches a wildcard goes
    upstream."""
    principal = exchange.principal
    if (principal.virtual or principal.forwards_key) and holds(model, (KEY_PREFIX, *exchange.arrival.keys)):
        raise InvalidRequest("'model' holds an API key; send the name of a model", param="model", code="key_in_model")


def without_keys_of(exchange: Exchange, user: str) -> str:
    """The user that a client names, without any key. Long runs of letters stay, because they distinguish users."""
    return without_keys(user, exchange.arrival.keys, keeps_runs=True)


def _own_secrets(headers: Headers, principal: Principal) -> tuple[str, ...]:
    """The proxy's own keys in a request, which are never sent upstream. If the request came with such a key, these are
    all of its credentials. If it came with a provider's key, it is the key in the proxy's own header."""
    if not (principal.virtual or principal.forwards_key):
        return ()
    return (KEY_PREFIX, *secrets_in(headers, CREDENTIAL_HEADERS if principal.virtual else (OWN_KEY_HEADER,)))


def decoded(text: str) -> str:
    """The text without percent-encoding, even if it was encoded more than once (up to four times)."""
    for _ in range(_MOST_DECODINGS):
        if "%" not in text:
            break
        text = unquote_plus(text)
    return text


def _is_dropped(part: str, secrets: Sequence[str], hides_credentials: bool) -> bool:
    plain = decoded(part)
    name = plain.partition("=")[0].strip().lower()
    return (hides_credentials and name in KEY_PARAMETERS) or holds(plain, secrets)


def without_credentials(deployment: Deployment) -> Deployment:
    """The deployment without its key, and without headers and parameters that could stand for one."""
    return replace(
        deployment,
        api_key=None,
        headers=tuple((name, value) for name, value in deployment.headers if not _SECRET.search(name.lower())),
        params={name: value for name, value in deployment.params.items() if not _SECRET.search(name.lower())},
    )

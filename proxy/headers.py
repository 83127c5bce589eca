"""Which headers cross the proxy, in either direction.

Everything passes but what belongs to one connection (RFC 9110 section 7.6.1), what the proxy sets itself, and what is
the proxy's own. Names are lower case throughout.
"""

import re

from proxy.ports import Deployment, Headers

OWN_PREFIX = "x-stratiform-"
_HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
# A cookie belongs to the host that set it; here many clients would share the provider's, and it would get theirs.
_REQUEST_DROPPED = _HOP_BY_HOP | {"host", "content-length", "accept-encoding", "expect", "cookie"}
_ANSWER_DROPPED = _HOP_BY_HOP | {"content-length", "date", "server", "set-cookie", "alt-svc"}
_KEY_HEADERS = ("x-api-key", "api-key")
_CREDENTIALS = frozenset({"authorization", *_KEY_HEADERS})
_CONTROL = re.compile("[\\x00-\\x08\\x0a-\\x1f\\x7f]")
# RFC 9110 section 5.1; header names are lower case here.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


def get(headers: Headers, name: str) -> str | None:
    """The first value of a header; ``name`` in lower case."""
    for key, value in headers:
        if key == name:
            return value
    return None


def is_safe(value: str) -> bool:
    """The value can stand in a header: no line break or other control character."""
    return _CONTROL.search(value) is None


def for_upstream(
    headers: Headers, deployment: Deployment, *, is_virtual: bool, accept_encoding: str | None = "identity"
) -> list[tuple[str, str]]:
    """The request headers that a deployment is sent.

    Its own key stands where the client put one, in the client's style; a virtual key (ours) is never sent.
    """
    dropped = _dropped(headers, _REQUEST_DROPPED)
    own = {name.lower() for name, _ in deployment.headers}
    key = deployment.api_key
    hides_credentials = is_virtual or key is not None
    passed = [
        (name, value)
        for name, value in headers
        if name not in dropped
        and name not in own
        and not name.startswith(OWN_PREFIX)
        and not (hides_credentials and name in _CREDENTIALS)
    ]
    if key is not None and not own & _CREDENTIALS:
        passed.append(_credential(headers, key))
    if accept_encoding is not None:
        passed.append(("accept-encoding", accept_encoding))
    passed.extend(deployment.headers)
    return passed


def for_client(headers: Headers, *, keep_length: bool) -> list[tuple[str, str]]:
    """The answer headers that the client is sent. The length stands where the body passes unchanged."""
    dropped = _dropped(headers, _ANSWER_DROPPED)
    return [
        (name, value)
        for name, value in headers
        if (name not in dropped or (keep_length and name == "content-length" and value.isdecimal()))
        and not name.startswith(OWN_PREFIX)
        and is_safe(value)
        and _NAME.fullmatch(name)
    ]


def _dropped(headers: Headers, always: frozenset[str]) -> frozenset[str]:
    """The connection header names further headers that belong to the connection."""
    named = get(headers, "connection")
    if named is None:
        return always
    return always | {token.strip().lower() for token in named.split(",")}


def _credential(headers: Headers, key: str) -> tuple[str, str]:
    """Anthropic's clients send ``x-api-key``, Azure's ``api-key``, all others a bearer token."""
    for name in _KEY_HEADERS:
        if get(headers, "authorization") is None and get(headers, name) is not None:
            return name, key
    return "authorization", f"Bearer {key}"

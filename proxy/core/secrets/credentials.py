"""The places of keys in a request: the one list of headers and query parameters, and how to read them.

The headers are those of the clients that people use: ``authorization`` (OpenAI), ``x-api-key`` (Anthropic),
``api-key`` and ``ocp-apim-subscription-key`` (Azure), ``x-goog-api-key`` (Gemini) and ``x-litellm-api-key`` (LiteLLM's
clients). The proxy reads its own keys from each of them. It sends none of them on if the key is its own.
"""

from collections.abc import Iterable, Iterator, Sequence

Headers = Sequence[tuple[str, str]]

KEY_PREFIX = "sk-strat-"
"""The beginning of every key that the proxy makes."""
KEY_HEADERS = (
    "authorization", "x-api-key", "api-key", "x-litellm-api-key", "x-goog-api-key", "ocp-apim-subscription-key",
)  # fmt: skip
OWN_KEY_HEADER = "x-stratiform-key"
"""The header for the proxy's key in a team whose clients bring the provider's key."""
CREDENTIAL_HEADERS = frozenset({*KEY_HEADERS, OWN_KEY_HEADER, "proxy-authorization", "x-auth-token", "x-api-token"})
# A provider whose API the client follows reads the key from the same header, without a scheme.
PLAIN_KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key")
ACCOUNT_HEADERS = frozenset(
    {
        "openai-organization", "openai-project", "anthropic-organization-id", "anthropic-workspace-id",
        "anthropic-workspace", "x-goog-user-project", "x-goog-project-id", "x-amzn-bedrock-project-id",
        "x-ms-client-principal-id",
    }
)  # fmt: skip
"""Headers that select the account that pays, or a part of it. If the operator's key is used, the operator decides
this."""
KEY_PARAMETERS = frozenset(
    {
        "key", "api_key", "api-key", "apikey", "access_token", "access-token", "accesstoken", "auth_token",
        "authorization", "subscription-key", "subscription_key", *KEY_HEADERS, OWN_KEY_HEADER,
    }
)  # fmt: skip
"""Query parameters in which providers take keys."""
# Shorter values can occur in other places by chance.
_LEAST_CHARS = 8


def canonical(name: str) -> str:
    """The name of a header as a server may read it: CGI and WSGI read ``_`` as ``-``. Names are in lower case."""
    return name.replace("_", "-") if "_" in name else name


def bare(value: str) -> str:
    """The key without its scheme."""
    scheme, _, rest = value.strip().partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else value.strip()


def sent_keys(headers: Headers) -> list[str]:
    """The keys in the headers that hold keys of this proxy, in the order of those headers."""
    found = [(name.lower(), value) for name, value in headers]
    return [bare(value) for wanted in KEY_HEADERS for name, value in found if name == wanted and value.strip()]


def secrets_in(headers: Headers) -> tuple[str, ...]:
    """All texts in headers for credentials, each once. They must not be found anywhere else."""
    return tuple(dict.fromkeys(_long(bare(value) for name, value in headers if canonical(name) in CREDENTIAL_HEADERS)))


def client_key(headers: Headers) -> str | None:
    """A key that every transport can pass on: a bearer token, or a header of Anthropic's or Azure's clients."""
    sent = {name.lower(): value.strip() for name, value in headers}
    scheme, _, rest = sent.get("authorization", "").partition(" ")
    token = rest.strip() if scheme.lower() == "bearer" else ""
    return token or sent.get("x-api-key") or sent.get("api-key") or None


def own_secrets(headers: Headers, *, is_virtual: bool, forwards_key: bool) -> tuple[str, ...]:
    """The proxy's own keys in a request, which are never sent upstream. If the request came with such a key, these are
    all of its credentials. If it came with a provider's key, it is the key in the proxy's own header."""
    if is_virtual:
        return (KEY_PREFIX, *secrets_in(headers))
    if not forwards_key:
        return ()
    return (KEY_PREFIX, *_long(bare(value) for name, value in headers if canonical(name) == OWN_KEY_HEADER))


def holds(text: str, secrets: Iterable[str]) -> bool:
    """Whether the text has one of the secrets."""
    return any(secret in text for secret in secrets)


def _long(values: Iterable[str]) -> Iterator[str]:
    return (value for value in values if len(value) >= _LEAST_CHARS)

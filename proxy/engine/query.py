"""What of a request's path and query goes upstream: no key of this proxy, and no key of the client's beside another."""

from collections.abc import Collection
from urllib.parse import unquote_plus

from proxy.core.secrets.credentials import KEY_PARAMETERS, holds
from proxy.errors import InvalidRequest

_MOST_DECODINGS = 4


def without_keys(query: str, secrets: Collection[str], *, hides_credentials: bool) -> str:
    """The query without the parameters that hold one of the secrets, and, where the client's credentials stay here,
    without those in which providers take keys. All others pass as they were written."""
    if not query or not (secrets or hides_credentials):
        return query
    return "&".join(part for part in query.split("&") if not _is_dropped(part, secrets, hides_credentials))


def keys_in(query: str) -> tuple[str, ...]:
    """The values of the parameters in which clients put keys."""
    if not query:
        return ()
    pairs = (decoded(part).partition("=") for part in query.split("&"))
    return tuple(value for name, _, value in pairs if name.strip().lower() in KEY_PARAMETERS and value)


def refuse_key(path: str, secrets: Collection[str]) -> None:
    """Raises InvalidRequest: paths are logged on the way and at their end, and go upstream as they are."""
    if secrets and holds(decoded(path), secrets):
        raise InvalidRequest(
            "The path holds an API key. Send the key as `Authorization: Bearer KEY` and in no other place.",
            code="key_in_path",
        )


def decoded(text: str) -> str:
    """The text with its percent-encoding undone, also where it was encoded more than once."""
    for _ in range(_MOST_DECODINGS):
        if "%" not in text:
            break
        text = unquote_plus(text)
    return text


def _is_dropped(part: str, secrets: Collection[str], hides_credentials: bool) -> bool:
    plain = decoded(part)
    name = plain.partition("=")[0].strip().lower()
    return (hides_credentials and name in KEY_PARAMETERS) or holds(plain, secrets)

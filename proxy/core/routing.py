"""Routing keys: what keeps the requests of one conversation on the machine that holds their prefix.

How a provider takes one is in its profile (``CacheProfile.routing``). The key is a digest: it names no team, user or
session (OpenAI, Mistral and OpenRouter ask for keys without personal data), and the same session of two scopes has two
keys, so that they never meet.
"""

from dataclasses import dataclass

from proxy.core.digest import digest
from proxy.core.profiles import Routing

_PREFIX = "st-"


@dataclass(frozen=True, slots=True)
class RoutingKey:
    """A key as a request carries it: a member of the body, or a header."""

    member: tuple[str, str] | None = None
    header: tuple[str, str] | None = None


def routing_key(scope: str, session: str) -> str:
    """The key of a session within a scope (team and key, hashed): 35 characters that are safe in headers."""
    return _PREFIX + digest(b"routing", scope.encode(), session.encode()).hex()


def written(routing: Routing | None, key: str) -> RoutingKey:
    """Where the key goes; nowhere for a provider that takes none."""
    if routing is None:
        return RoutingKey()
    pair = (routing.name, key[: routing.max_chars])
    return RoutingKey(member=pair) if routing.place == "body" else RoutingKey(header=pair)

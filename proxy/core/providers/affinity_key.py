"""Routing keys: they keep the requests of one conversation on the machine that holds their prefix.

The provider's profile says how it takes a key (``CacheProfile.routing``). A key is added only if the client did not
send such information itself, if the provider needs a key, and if this server is known to accept it. The key is a
digest. It names no team, user or session (OpenAI, Mistral and OpenRouter ask for keys without personal data). The same
session of two scopes has two different keys, so that they never meet.
"""

from collections.abc import Container

from proxy.core.digest import digest
from proxy.core.providers import CacheProfile, Routing
from proxy.core.value import dataclass

_PREFIX = "st-"


@dataclass(frozen=True, slots=True)
class RoutingKey:
    """A key as a request carries it: a member of the body, or a header."""

    member: tuple[str, str] | None = None
    header: tuple[str, str] | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is a key at all."""
        return self.member is not None or self.header is not None


EMBEDDED = "embedded"
"""The server that can play every profile."""


def routing_key(scope: str, name: bytes) -> str:
    """The routing key for a ``name`` within a scope (team and key, hashed): 35 characters that are safe in headers."""
    return _PREFIX + digest(b"routing", scope.encode(), name).hex()


def may_add(profile: CacheProfile, members: Container[str], server: str, *, is_hinted: bool) -> bool:
    """Whether a key is added. ``members`` are the request's members, ``server`` is the server that is called.
    ``is_hinted``: the client sent a session id in a header."""
    routing = profile.routing
    if routing is None or not routing.is_needed or (is_hinted and routing.reads_hint):
        return False
    is_served = server == EMBEDDED or server in routing.servers
    return is_served and not any(name in members for name in (routing.name, *routing.aliases))


NO_BOUNDARIES = b'{"mode":"explicit"}'
"""The value of ``prompt_cache_options`` in a request whose end should not be stored."""
_TAKES_OPTIONS = frozenset({"openai", "azure", EMBEDDED})


def may_tell_explicit(profile: CacheProfile, members: Container[str], server: str) -> bool:
    """Whether the provider sets boundaries of its own, and may be told not to (OpenAI, Azure: "Prompt caching")."""
    return profile.implicit_marks > 0 and server in _TAKES_OPTIONS and "prompt_cache_options" not in members


def written(routing: Routing | None, key: str) -> RoutingKey:
    """The place to which the key is written. None for a provider that takes no key."""
    if routing is None:
        return RoutingKey()
    pair = (routing.name, key[: routing.max_chars])
    return RoutingKey(member=pair) if routing.place == "body" else RoutingKey(header=pair)

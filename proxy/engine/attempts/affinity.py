"""The key of a session when deployments share the work. It is the same for all of its requests, on every worker.

A provider's cache does not move, so a session's requests go to the deployment that served the earlier ones. The key is
what the client says about its session, or else the beginning of the first user message. The instructions and contexts
before that message may change, and the end of the conversation always changes.

Weighted rendezvous hashing selects one of several equal deployments for a session. Each deployment gets a number from
the digest of the session's key and its own id, and the highest number comes first. Adding or removing a deployment
moves only the sessions that it gains or loses.
"""

import math
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from proxy.core.digest import digest
from proxy.core.request.routing_fields import RequestFields
from proxy.core.wire.json_body import Members, Unreadable, members_of, value
from proxy.ports import Deployment, Principal

# Only so many bytes of the first user message count. Later bytes may change, for example files in the chat.
_LEAD_BYTES = 256


def session_key(principal: Principal, head: RequestFields | None) -> bytes:
    """The key of a request's session within its scope."""
    scope = principal.scope.encode()
    if principal.session_hint:
        return digest(scope, b"hint", principal.session_hint.encode("utf-8", "surrogateescape"))
    members = head.members if head is not None else None
    if head is None or members is None:
        return digest(scope)
    given = members.get("prompt_cache_key")
    if given is not None:
        return digest(scope, b"cache-key", bytes(given))
    return digest(scope, b"lead", _lead(head))


def _lead(head: RequestFields) -> bytes:
    for message in _messages(head):
        try:
            if value(message["role"]) == "user":
                return bytes(message["content"])[:_LEAD_BYTES]
        except (KeyError, Unreadable):
            continue
    return b""


def _messages(head: RequestFields) -> Iterator[Members]:
    parsed = head.parsed
    if parsed is None or "messages" not in parsed.members:
        return
    try:
        for raw in parsed.raws():
            yield members_of(raw)
    except Unreadable:
        return


def ordered(deployments: Sequence[Deployment], key: bytes) -> list[Deployment]:
    """The deployments in the order in which this session tries them. A deployment of weight 0 comes after all
    others."""
    if len(deployments) < 2:
        return list(deployments)
    return sorted(deployments, key=lambda d: _draw(d, key), reverse=True)


def _draw(deployment: Deployment, key: bytes) -> float:
    if deployment.weight <= 0:
        return -math.inf
    number = int.from_bytes(blake2b(deployment.id.encode(), key=key[:64], digest_size=8).digest(), "big")
    return -deployment.weight / math.log((number + 1) / (2**64 + 1))

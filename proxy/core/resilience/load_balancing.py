"""Which of several equal deployments serves a session: the same one each time, on every worker, with no memory of it.

Weighted rendezvous hashing: each deployment draws a number from the digest of the session's key and its own id, and the
highest comes first. A deployment that is added or removed moves only the sessions that it gains or loses.
"""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar


class Weighted(Protocol):
    """One of the equals from which a session draws."""

    @property
    def id(self) -> str:
        """What it is known by, the same on every worker."""
        ...

    @property
    def weight(self) -> float:
        """Its share, in relation to the others'; 0: only when all others have failed."""
        ...


W = TypeVar("W", bound=Weighted)


def ordered(deployments: Sequence[W], key: bytes) -> list[W]:
    """The deployments in the order in which this session tries them."""
    if len(deployments) < 2:
        return list(deployments)
    return sorted(deployments, key=lambda d: _draw(d, key), reverse=True)


def _draw(deployment: Weighted, key: bytes) -> float:
    if deployment.weight <= 0:
        return -math.inf
    number = int.from_bytes(blake2b(deployment.id.encode(), key=key[:64], digest_size=8).digest(), "big")
    return -deployment.weight / math.log((number + 1) / (2**64 + 1))

"""Digests of exactly the bytes that are sent."""

from hashlib import sha256

DIGEST_BYTES = 16


def digest(*parts: bytes) -> bytes:
    """SHA-256 over length-framed parts, cut to 16 bytes."""
    state = sha256()
    for part in parts:
        state.update(b"%d:" % len(part))
        state.update(part)
    return state.digest()[:DIGEST_BYTES]


def chain(previous: bytes, item: bytes) -> bytes:
    """The digest of a prefix that ends with ``item``; both are digests, so no framing is needed."""
    return sha256(previous + item).digest()[:DIGEST_BYTES]

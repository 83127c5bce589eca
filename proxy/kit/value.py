"""Dataclasses whose fields are never set again. mypy checks ``frozen``; at run time ``frozen`` only makes a class
hashable.

A frozen dataclass sets each of its fields by a call of ``object.__setattr__``. A request makes about 300 such values,
and these calls took a twelfth of its CPU time.

``digest`` and ``chain`` are digests of exactly the bytes that are sent. ``in_common`` compares the beginnings of two
lists of values.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import field as field
from dataclasses import replace as replace
from itertools import compress, count
from operator import ne
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, *, frozen=False, eq=True, **options):
        """``dataclasses.dataclass`` without the check at run time."""

        def made(one):
            is_hashable = frozen and eq and "__hash__" not in one.__dict__
            return dataclasses.dataclass(one, eq=eq, unsafe_hash=is_hashable, **options)

        return made if cls is None else made(cls)


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


def in_common(one: Sequence[object], other: Sequence[object]) -> int:
    """How many values at the beginning are the same in both. No step of the comparison is written in Python, because
    each request compares hundreds of digests."""
    return next(compress(count(), map(ne, one, other)), min(len(one), len(other)))

"""Requests as lines of a file: keyed digests and sizes, the provider's report, and no text.

A line is one JSON object. ``record`` is a ``PromptRecord`` as an array in the order of its fields, bytes in base64. All
digests and the hashes of lines are keyed. So nobody without the key can find out whether a guessed text was sent.
Digests with the same key can be compared. The keys of pieces (names of tools and files) are not hashed.
"""

from hashlib import blake2b
from typing import Final

from msgspec import DecodeError, Struct, json, structs

from proxy.core.diagnosis.record import PromptRecord
from proxy.core.digest import DIGEST_BYTES
from proxy.core.response.usage import Usage
from proxy.core.wire.json_body import Unreadable

VERSION: Final = 1
_HASH_BYTES: Final = 4


class Fingerprint(Struct, frozen=True, omit_defaults=True):
    """One request. ``session`` is the conversation's name at the proxy, ``client`` the recogniser that knows its
    client, and ``profile`` the name of the cache's rules. ``tokens`` are the reported ones: prompt, output, cache read,
    and cache write at the shorter and at the longer life; None if the provider reported nothing. ``cost_usd`` is the
    cost of prompt and answer, None if the price is not known."""

    v: int
    session: str
    model: str
    record: PromptRecord
    client: str = ""
    profile: str = ""
    tokens: tuple[int, int, int, int, int] | None = None
    cost_usd: float | None = None

    @property
    def usage(self) -> Usage | None:
        """The provider's report."""
        return None if self.tokens is None else Usage(*self.tokens)


_decoder: Final = json.Decoder(Fingerprint)


def line_of(fingerprint: Fingerprint, key: bytes) -> bytes:
    """The line of a request whose record is not keyed yet. ``key`` has at most 64 bytes."""
    return json.encode(structs.replace(fingerprint, record=_keyed(fingerprint.record, key))) + b"\n"


def read_line(line: bytes) -> Fingerprint:
    """The request of a line. Raises Unreadable if the line is no fingerprint of this version."""
    try:
        found = _decoder.decode(line)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable("no fingerprint") from error
    if found.v != VERSION or not found.record.is_sound:
        raise Unreadable("a fingerprint of another version, or a damaged one")
    return found


def _keyed(record: PromptRecord, key: bytes) -> PromptRecord:
    digests = [_hash(digest, key) for digest in record.each()]
    lines = {
        index: tuple((_hashed(number, key), size) for number, size in text) for index, text in record.lines.items()
    }
    parameters = {name: _hash(value, key) for name, value in record.parameters.items()}
    return structs.replace(record, digests=b"".join(digests), lines=lines, parameters=parameters)


def _hashed(number: int, key: bytes) -> int:
    return int.from_bytes(_hash(number.to_bytes(_HASH_BYTES), key, _HASH_BYTES))


def _hash(value: bytes, key: bytes, size: int = DIGEST_BYTES) -> bytes:
    return blake2b(value, key=key, digest_size=size).digest()

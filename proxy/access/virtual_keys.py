"""Makes virtual keys, and the digests that are kept of them.

A key is a prefix that secret scanners can search for, and 43 random letters and digits (256 bits). Only its SHA-256
digest is kept. With this much randomness, nobody can find the key of a digest by trying, so a slow hash would not make
it safer. Keys that an operator writes into the configuration are kept in the same way, only in memory.
"""

import hashlib
import secrets
import string

from proxy.core.secrets.credentials import KEY_PREFIX

_ALPHABET = string.ascii_letters + string.digits
_KEY_CHARS = 43
_ID_ALPHABET = string.ascii_lowercase + string.digits
_ID_CHARS = 12


def new_key() -> str:
    """A new key, made at random."""
    return KEY_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_KEY_CHARS))


def new_id() -> str:
    """A public id: ``key-`` and 12 random characters."""
    return "key-" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_CHARS))


def digest_of(key: str) -> str:
    """The digest that is kept of a key: its SHA-256, in hex. Surrogates stand for bytes of a header that are not
    UTF-8."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def declared_id(digest: str) -> str:
    """The public id of an existing key, from the configuration or elsewhere. It is computed from the digest."""
    return "key-" + hashlib.blake2b(digest.encode(), digest_size=6, person=b"strat-key-id").hexdigest()

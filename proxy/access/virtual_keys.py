"""Virtual keys: how they are made, and what is kept of them.

A key is 43 random letters and digits (256 bits) behind a prefix that secret scanners can look for. Only its SHA-256
digest is kept. With so much randomness nobody can find the key behind a digest by trying, so a slow hash would add
nothing. Keys that an operator writes into the configuration are kept in the same way, in memory only.
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


def new_id(kind: str) -> str:
    """A public id: ``key-`` or ``bud-`` and 12 random characters."""
    return f"{kind}-" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_CHARS))


def digest_of(key: str) -> str:
    """What is kept of a key: its SHA-256, in hex. Surrogates stand for bytes of a header that are not UTF-8."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def declared_id(digest: str) -> str:
    """The public id of a key that exists already, in the configuration or elsewhere: it follows from the digest."""
    return "key-" + hashlib.blake2b(digest.encode(), digest_size=6, person=b"strat-key-id").hexdigest()

"""Keys and their ids."""

import hashlib
import re

from proxy.access.authentication import declared_id, digest_of, new_id, new_key
from proxy.core.secrets import KEY_PREFIX


def test_keys_are_random_and_can_be_told_by_their_prefix() -> None:
    keys = {new_key() for _ in range(1000)}
    assert len(keys) == 1000
    assert all(re.fullmatch(r"sk-strat-[A-Za-z0-9]{43}", key) for key in keys)
    assert KEY_PREFIX == "sk-strat-"


def test_what_is_kept_is_the_sha_256() -> None:
    assert digest_of("sk-strat-x") == hashlib.sha256(b"sk-strat-x").hexdigest()
    assert len(digest_of("\udcff")) == 64


def test_ids_are_public_and_tell_nothing() -> None:
    assert re.fullmatch(r"key-[a-z0-9]{12}", new_id())
    assert len({new_id() for _ in range(1000)}) == 1000
    digest = digest_of("sk-1")
    assert re.fullmatch(r"key-[0-9a-f]{12}", declared_id(digest))
    assert declared_id(digest) == declared_id(digest)
    assert declared_id(digest)[4:] not in digest

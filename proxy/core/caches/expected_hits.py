"""Chance without dice: whether a request lands where its prefix is held, decided by the prompt's own digest.

Gemini's implicit cache gives no guarantee of a hit; the simulator is run at P = 1 and P = 0.5. The same prompt has the
same luck whenever it is asked, so that a replay can be repeated.
"""

from hashlib import sha256

from proxy.core.caches.prompt import Prompt
from proxy.core.providers import CacheProfile

_BYTES = 4
_DRAWS = 256.0**_BYTES


def is_lucky(prompt: Prompt, profile: CacheProfile) -> bool:
    """Whether this prompt reaches a machine that holds its prefix."""
    drawn = int.from_bytes(sha256(b"chance" + prompt.hashes[-1]).digest()[:_BYTES])
    return drawn < profile.hit_chance * _DRAWS


def share_of(read: int, profile: CacheProfile) -> int:
    """The tokens that are read in expectation. ``read`` is what a request reads that reaches the right machine."""
    return int(read * profile.hit_chance)

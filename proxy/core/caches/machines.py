"""Which machine serves a request: beyond so many requests a minute a prefix spills to the next one, a cold one.

OpenAI up to GPT-5.5 ("Prompt caching"): requests are routed by a hash of their first tokens (about 256) and
``prompt_cache_key``; beyond about 15 a minute some of them reach another machine, where the prefix is not held yet.
"""

from bisect import bisect_left, bisect_right

from proxy.core.caches.prompt import Prompt
from proxy.core.lru import LastUsed

_WINDOW_S = 60.0
_HEAD_TOKENS = 256
_MAX_HEADS = 4096

_Head = tuple[bytes, bytes]


class Machines:
    """Counts requests by what they are routed by. With ``rpm`` 0 there is one machine for all."""

    __slots__ = ("_recent", "_rpm")

    def __init__(self, rpm: int) -> None:
        self._rpm = rpm
        self._recent: LastUsed[_Head, tuple[float, ...]] = LastUsed(_MAX_HEADS)

    def scope(self, prompt: Prompt, now: float) -> bytes:
        """The prompt's scope on the machine that a request would reach now."""
        if not self._rpm or not prompt.ends:
            return prompt.scope
        recent = self._recent.get(_head(prompt), ())
        number = (len(recent) - bisect_right(recent, now - _WINDOW_S)) // self._rpm
        return prompt.scope + b"/machine %d" % number if number else prompt.scope

    def request(self, prompt: Prompt, now: float) -> None:
        """A request was served."""
        if not self._rpm or not prompt.ends:
            return
        head = _head(prompt)
        recent = self._recent.get(head, ())
        self._recent.put(head, (*recent[bisect_right(recent, now - _WINDOW_S) :], now))

    def copy(self) -> "Machines":
        """Counts that go on by themselves."""
        twin = Machines(self._rpm)
        twin._recent.update(self._recent)
        return twin


def _head(prompt: Prompt) -> _Head:
    """What requests are routed by."""
    position = min(bisect_left(prompt.ends, _HEAD_TOKENS), len(prompt.ends) - 1)
    return prompt.scope, prompt.hashes[position]

"""How a model's own count of a prompt compares with the proxy's, learnt from what the provider reports and refuses."""

import math
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

import orjson

LEAST, MOST = 0.7, 2.1
_STEP = 0.05
_LEAST_TOKENS = 500
_MILLION = 1_000_000
_MEMORY = 16


class TokenFactor:
    """``value`` is by what the proxy's count is multiplied: the largest ratio of the last reports, in steps, so that it
    moves up at once and down late, and does not move a conversation's cut with every report. Reports of prompts that
    fill less than half of their budget count only until one fills more: nothing is left out of these, and what a
    provider counts besides the messages makes up more of them. Before the first report the value is 1.

    Where a refusal does not name the prompt's tokens, the value is a guess until the next report; ``measured`` is what
    it was before. ``version`` grows with each change: of two processes the one with the larger version knows more.
    """

    __slots__ = ("_fills", "_ratios", "is_guess", "measured", "name", "version")

    def __init__(self, name: str = "") -> None:
        """``name`` is that under which processes tell each other of it."""
        self.name = name
        self.measured = 1.0
        self.is_guess = False
        self.version = 0
        self._fills = False
        self._ratios: deque[float] = deque(maxlen=_MEMORY)

    @property
    def value(self) -> float:
        """By what the proxy's count is multiplied."""
        return MOST if self.is_guess else self.measured

    def learn(self, counted_tokens: int, reported_tokens: int, *, fills: bool) -> None:
        """A prompt that the proxy and the provider have counted. A short one says little, and is passed over; one that
        differs by more than any tokenizer does was another prompt, and counts as the bound."""
        if (counted_tokens < _LEAST_TOKENS and not fills) or not 0 < reported_tokens < _MILLION * counted_tokens:
            return
        if self.is_guess or (fills and not self._fills):
            self._ratios.clear()
        elif self._fills and not fills:
            return
        self._fills = fills
        self._measure(reported_tokens / counted_tokens)

    def refused(self, counted_tokens: int, named_tokens: int | None) -> None:
        """A prompt that the provider has refused as too large; ``named_tokens`` are those that it says the prompt
        has."""
        if named_tokens is None and counted_tokens > 0:
            self._set(self.measured, is_guess=True)
        elif named_tokens is not None and self.value * counted_tokens < named_tokens < _MILLION * counted_tokens:
            self._fills = True
            self._measure(named_tokens / counted_tokens)

    def packed(self) -> Mapping[str, bytes]:
        """What another process is told."""
        return {self.name: orjson.dumps([self.version, self.measured, self.is_guess, self._fills])}

    def names(self) -> list[str]:
        """What another process is asked for."""
        return [self.name]

    def is_known(self) -> bool:
        """Whether anything has been learnt."""
        return self.version > 0

    def adopt(self, blobs: Mapping[str, bytes]) -> None:
        """Take over what another process knows, if it is newer. What cannot be read is passed over."""
        with suppress(ValueError, TypeError, KeyError):
            version, measured, is_guess, fills = orjson.loads(blobs[self.name])
            if (int(version), float(measured)) > (self.version, self.measured):
                self._ratios = deque([float(measured)], _MEMORY)
                self.version, self.measured = int(version), _bounded(measured)
                self.is_guess, self._fills = bool(is_guess), bool(fills)

    def _measure(self, ratio: float) -> None:
        self._ratios.append(ratio)
        self._set(_bounded(math.ceil(round(max(self._ratios) / _STEP, 6)) * _STEP), is_guess=False)

    def _set(self, measured: float, *, is_guess: bool) -> None:
        if not self.version or (measured, is_guess) != (self.measured, self.is_guess):
            self.measured, self.is_guess, self.version = measured, is_guess, self.version + 1


def _bounded(value: float) -> float:
    return min(MOST, max(LEAST, round(value, 2)))

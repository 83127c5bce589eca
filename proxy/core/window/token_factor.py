"""How a model's own count of a prompt compares with the proxy's, learnt from what the provider reports."""

import math

LEAST, MOST = 0.7, 1.5
_STEP = 0.05
_SLACK = 0.025
_MEMORY = 0.9
_LEAST_TOKENS = 500
_MILLION = 1_000_000


class TokenFactor:
    """``value`` is by what the proxy's count is multiplied. It moves in steps, up at once and down late, so that it
    does not move a conversation's cut with every report. Before the first report it is 1."""

    __slots__ = ("_counted", "_reported", "value")

    def __init__(self) -> None:
        self.value = 1.0
        self._counted = 0.0
        self._reported = 0.0

    def learn(self, counted_tokens: int, reported_tokens: int) -> None:
        """A prompt that the proxy and the provider have counted. A short one says little, and is passed over; one that
        differs by more than any tokenizer does was another prompt, and counts as the bound."""
        if counted_tokens < _LEAST_TOKENS or not 0 < reported_tokens < _MILLION * counted_tokens:
            return
        ratio = min(MOST, max(LEAST, reported_tokens / counted_tokens))
        self._counted = self._counted * _MEMORY + counted_tokens
        self._reported = self._reported * _MEMORY + ratio * counted_tokens
        mean = self._reported / self._counted
        if mean > self.value or mean < self.value - _STEP - _SLACK:
            steps = math.ceil(round(mean / _STEP, 6))
            self.value = min(MOST, max(LEAST, round(steps * _STEP, 2)))

"""Whether a compaction pays: what it costs once against what it saves with every later request."""

from dataclasses import dataclass

WINDOW_SHARE = 0.85
"""A prompt that fills so much of the model's window is compacted whatever that costs."""


@dataclass(frozen=True, slots=True)
class CompactionGain:
    """All amounts are in tokens at the plain input price.

    ``dropped_tokens`` D are left out, ``summary_tokens`` s take their place, ``behind_tokens`` R stand behind them.
    ``read`` r and ``write`` w are what a token costs that is read from the cache, or written to it, in input prices
    (both are 1 where nothing is cached). ``call_tokens`` is what the call costs that writes the summary. ``requests`` h
    is how many further requests the conversation is expected to have.

    What stands behind the gap is written again, and so is the summary: (w - r) R + w s, and the call. Each later
    request reads D - s tokens less, which saves r (D - s). A cached history is nearly free to keep, an uncached one is
    not: the prices decide.
    """

    dropped_tokens: int
    summary_tokens: int
    behind_tokens: int
    read: float
    write: float
    call_tokens: float
    requests: float

    @property
    def once(self) -> float:
        """What it costs, once."""
        return (self.write - self.read) * self.behind_tokens + self.write * self.summary_tokens + self.call_tokens

    @property
    def per_request(self) -> float:
        """What it saves with each later request; negative where the summary is longer than what it stands for."""
        return self.read * (self.dropped_tokens - self.summary_tokens)

    @property
    def pays(self) -> bool:
        """Whether it saves more than it costs."""
        return self.requests * self.per_request > self.once


def is_window_full(prompt_tokens: int, max_input_tokens: int | None) -> bool:
    """Whether a prompt fills nearly all that its model reads; False where that is not known."""
    return bool(max_input_tokens) and prompt_tokens >= WINDOW_SHARE * (max_input_tokens or 0)

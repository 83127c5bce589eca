"""Whether a compaction pays: what it costs once against what it saves with every later request."""

from dataclasses import dataclass

WINDOW_SHARE = 0.85
"""A prompt that fills so much of the model's window is compacted whatever that costs."""


@dataclass(frozen=True, slots=True)
class CompactionPrices:
    """What the decision goes by. ``read`` r and ``write`` w are what a token costs that is read from the cache, or
    written to it, and ``output`` what a token of an answer costs, in input prices (r and w are 1 where nothing is
    cached). ``requests`` is how many the conversation has had: it is expected to have as many again. ``prompt_tokens``
    are those of the whole last request, ``max_input_tokens`` the most that the model reads, where that is known."""

    read: float
    write: float
    output: float
    requests: int
    prompt_tokens: int = 0
    max_input_tokens: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether the last request fills nearly all that the model reads; False where that is not known."""
        return bool(self.max_input_tokens) and self.prompt_tokens >= WINDOW_SHARE * (self.max_input_tokens or 0)

    def pays(self, *, dropped_tokens: int, summary_tokens: int, behind_tokens: int, call_tokens: float) -> bool:
        """Whether a compaction saves more than it costs. All amounts are in tokens at the plain input price.

        ``dropped_tokens`` D are left out, ``summary_tokens`` s take their place, ``behind_tokens`` R stand behind them,
        and ``call_tokens`` is what the call costs that writes the summary. What stands behind the gap is written again,
        and so is the summary: (w - r) R + w s, and the call. Each later request reads D - s tokens less, which saves
        r (D - s). A cached history is nearly free to keep, an uncached one is not: the prices decide.
        """
        once = (self.write - self.read) * behind_tokens + self.write * summary_tokens + call_tokens
        return self.requests * self.read * (dropped_tokens - summary_tokens) > once

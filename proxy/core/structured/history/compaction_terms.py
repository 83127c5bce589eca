"""When and how far a conversation is compacted."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompactionTerms:
    """The operator's terms; the defaults are those of the original of these rules.

    A conversation of fewer than ``min_history_tokens`` is never compacted. Where a summary takes the place of its
    oldest part, the newest ``verbatim_tokens`` stay as they are, and the summary should have at most
    ``summary_tokens``. The last ``keep_exchanges`` user messages stay in any case, with all that follows each of them.
    """

    min_history_tokens: int = 24_000
    verbatim_tokens: int = 4_000
    summary_tokens: int = 500
    keep_exchanges: int = 2

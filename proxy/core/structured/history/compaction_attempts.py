"""How often a conversation is looked at for a compaction."""

from dataclasses import dataclass, replace

MOST_FAILURES = 3
"""So many failures in a row end it for the conversation."""
_GROWTH_PERCENT = 10


@dataclass(frozen=True, slots=True)
class CompactionAttempts:
    """What came of earlier looks. After a decision against it, and after a call, the conversation has to grow by a
    tenth first. ``declined_tokens`` and ``tried_tokens`` are how long the conversation was then; ``failures`` counts
    those since the last success."""

    declined_tokens: int = 0
    tried_tokens: int = 0
    failures: int = 0

    def allow(self, history_tokens: int, *, is_full: bool = False) -> bool:
        """Whether a conversation of this length may be looked at. ``is_full``: the model's window is nearly full, so
        that an earlier decision about the price says nothing."""
        if self.failures >= MOST_FAILURES or not _has_grown(self.tried_tokens, history_tokens):
            return False
        return is_full or _has_grown(self.declined_tokens, history_tokens)

    def declined(self, history_tokens: int) -> "CompactionAttempts":
        """A compaction did not pay, or was not possible."""
        return replace(self, declined_tokens=history_tokens)

    def put_off(self, history_tokens: int) -> "CompactionAttempts":
        """A call was not allowed to cost anything."""
        return replace(self, tried_tokens=history_tokens)

    def succeeded(self, history_tokens: int) -> "CompactionAttempts":
        """The conversation was compacted, and has so many tokens left."""
        return CompactionAttempts(tried_tokens=history_tokens)

    def failed(self, history_tokens: int) -> "CompactionAttempts":
        """The call failed, or nothing could be done with its answer."""
        return replace(self, tried_tokens=history_tokens, failures=self.failures + 1)


def _has_grown(before: int, now: int) -> bool:
    return 100 * now >= (100 + _GROWTH_PERCENT) * before

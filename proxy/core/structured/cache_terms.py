"""What the cache of a conversation's upstream costs, and how long it holds the conversation."""

from dataclasses import dataclass

UNKNOWN_LIFE_S = 3_600.0
"""After such a pause no provider is expected to hold a prompt still: the longest life that is sold for a single prompt
is an hour (Anthropic, "Prompt caching")."""


@dataclass(frozen=True, slots=True)
class CacheTerms:
    """``read`` and ``write`` are what a token costs that is read or written, in input prices. The cache holds the
    conversation for ``life_s`` seconds from its last request on; 0 where it is rewritten from its beginning in any
    case. ``is_full``: the last prompt has filled nearly all that the model reads. ``ends_at_answers``: an entry of the
    cache may end with an answer."""

    read: float
    write: float
    life_s: float = UNKNOWN_LIFE_S
    is_full: bool = False
    ends_at_answers: bool = False

    @property
    def anew(self) -> float:
        """What it costs more to write a token than to read it."""
        return self.write - self.read

"""Compactions: the oldest part of a conversation is left out, and perhaps a summary stands in its place.

A compaction belongs to the messages that it was made of. As long as a conversation begins with exactly these, the same
messages are left out and the same words take their place, so that the prefix stays the same from request to request.
If the client has rewritten any of them, nothing is left out, and the words reach nobody.
"""

from collections.abc import Sequence

from proxy.core.digest import digest
from proxy.core.reasons import Edit
from proxy.core.structured.history.groups import MADE, cuts
from proxy.core.structured.history.rules import RuledHistory
from proxy.core.structured.messages import Conversation, Turn, pair
from proxy.core.value import dataclass, replace


@dataclass(frozen=True, slots=True)
class CompactionTexts:
    """``prompt`` asks a model for the boundary of the newest topic and for a summary; in it ``{summary_tokens}`` stands
    for how long the summary may be. ``header`` stands above a summary in the conversation, and ``ok`` is the
    assistant's answer to it."""

    prompt: str
    header: str
    ok: str

    def pair(self, summary: str) -> tuple[Turn, ...]:
        """The messages in the place of those that a compaction has left out: none, where there is no
        summary."""
        if not summary:
            return ()
        return tuple(map(Turn.of, pair(f"{self.header}\n{summary}", self.ok)))


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


MOST_FAILURES = 3
"""Failures in a row after which the conversation is compacted no more."""
_GROWTH_PERCENT = 10


@dataclass(frozen=True, slots=True)
class CompactionAttempts:
    """Results of earlier looks. After a decision against it, and after a call, the conversation has to grow by a
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

    def failed(self, history_tokens: int) -> "CompactionAttempts":
        """The call failed, or nothing could be done with its answer."""
        return replace(self, tried_tokens=history_tokens, failures=self.failures + 1)


def _has_grown(before: int, now: int) -> bool:
    return 100 * now >= (100 + _GROWTH_PERCENT) * before


WINDOW_SHARE = 0.85
"""A prompt that fills so much of the model's window is compacted whatever that costs."""


@dataclass(frozen=True, slots=True)
class CompactionPrices:
    """Prices by which the decision is made. ``read`` r and ``write`` w are what a token costs that is read from the
    cache, or written to it, and ``output`` what a token of an answer costs, in input prices (r and w are 1 where
    nothing is cached). ``requests`` is how many the conversation has had: it is expected to have as many again.
    ``prompt_tokens`` are those of the whole last request, ``max_input_tokens`` the most that the model reads, where
    that is known."""

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


@dataclass(frozen=True, slots=True)
class Compaction:
    """The first ``covered`` messages of the client's conversation are left out, not counting the leading system
    messages. The first ``known`` ones, which are at least as many, the model had read that wrote the ``summary``;
    ``digest`` is that of the known messages, without markers, as the other rules leave them. Where the summary is
    empty, nothing takes the place of the covered messages."""

    covered: int
    known: int
    digest: bytes
    summary: str = ""


def compacted(
    ruled: RuledHistory, compaction: Compaction | None, texts: CompactionTexts, keep_exchanges: int = 2
) -> RuledHistory:
    """The conversation with its oldest part left out; as it is, where it does not begin with the messages that the
    compaction knows, or where fewer user exchanges than ``keep_exchanges`` would stay.

    System messages stay, in front of the summary. The time is that of hashing the known messages.
    """
    if compaction is None or not 0 < compaction.covered <= compaction.known:
        return ruled
    conversation, origins = ruled.conversation, ruled.origins
    turns = conversation.turns
    at = place_of(origins, compaction.covered)
    if at == 0 or digest_of_known(ruled, compaction.known) != compaction.digest:
        return ruled
    places = [cut for cut in cuts(turns) if cut >= at]
    if len(places) < max(1, keep_exchanges) or places[0] != at:
        return ruled
    pair = texts.pair(compaction.summary)
    kept = [index for index in range(at) if turns[index].is_system]
    history = (*(turns[index] for index in kept), *pair, *conversation.history[at:])
    return RuledHistory(
        Conversation(conversation.system, history, conversation.prompt),
        (*(origins[index] for index in kept), *(MADE for _ in pair), *origins[at:]),
        {**ruled.edits, Edit.HISTORY_COMPACTED: at - len(kept)},
    )


def place_of(origins: Sequence[int], count: int) -> int:
    """Place of the first message that is none of the client's first ``count``; behind the end where there is none."""
    return next((place for place, origin in enumerate(origins) if origin >= count), len(origins))


def digest_of_known(ruled: RuledHistory, known: int) -> bytes:
    """The digest of the client's first so many messages, without markers, as the rules leave them."""
    return digest(*(turn.bare for turn in ruled.conversation.turns[: place_of(ruled.origins, known)]))

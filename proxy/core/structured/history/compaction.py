"""Compactions: the oldest part of a conversation is left out, and perhaps a summary stands in its place.

A compaction belongs to the messages from which it was made. As long as a conversation begins with exactly these
messages, the same messages are left out and the same words take their place. So the prefix stays the same from request
to request. If the client has rewritten any of these messages, nothing is left out, and the words are not sent.
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
    """``prompt`` asks a model for the boundary of the newest topic and for a summary; its placeholder
    ``{summary_tokens}`` stands for the largest length of the summary. ``header`` stands above a summary in the
    conversation, and ``ok`` is the assistant's answer to it."""

    prompt: str
    header: str
    ok: str

    def pair(self, summary: str) -> tuple[Turn, ...]:
        """The messages in the place of those that a compaction has left out. There are none without a summary."""
        if not summary:
            return ()
        return tuple(map(Turn.of, pair(f"{self.header}\n{summary}", self.ok)))


@dataclass(frozen=True, slots=True)
class CompactionTerms:
    """The operator's terms; the defaults are those of the original of these rules.

    A conversation with fewer than ``min_history_tokens`` is never compacted. If a summary takes the place of its oldest
    part, the newest ``verbatim_tokens`` stay as they are, and the summary should have at most ``summary_tokens``. The
    last ``keep_exchanges`` user messages stay in any case, with everything that follows each of them.
    """

    min_history_tokens: int = 24_000
    verbatim_tokens: int = 4_000
    summary_tokens: int = 500
    keep_exchanges: int = 2


MOST_FAILURES = 3
"""After this many failures in a row the conversation is no longer compacted."""
_GROWTH_PERCENT = 10


@dataclass(frozen=True, slots=True)
class CompactionAttempts:
    """The results of earlier attempts to compact a conversation. After a decision against a compaction, and after a
    call, the conversation must grow by a tenth before the next attempt. ``declined_tokens`` and ``tried_tokens`` are
    the lengths of the conversation at that decision and at that call; ``failures`` counts the failures since the last
    success."""

    declined_tokens: int = 0
    tried_tokens: int = 0
    failures: int = 0

    def allow(self, history_tokens: int, *, is_full: bool = False) -> bool:
        """Whether a compaction of a conversation of this length may be tried. ``is_full``: the model's window is nearly
        full, so that an earlier decision about the price does not count."""
        if self.failures >= MOST_FAILURES or not _has_grown(self.tried_tokens, history_tokens):
            return False
        return is_full or _has_grown(self.declined_tokens, history_tokens)

    def failed(self, history_tokens: int) -> "CompactionAttempts":
        """The attempts after a failure: the call failed, or its answer could not be used."""
        return replace(self, tried_tokens=history_tokens, failures=self.failures + 1)


def _has_grown(before: int, now: int) -> bool:
    return 100 * now >= (100 + _GROWTH_PERCENT) * before


WINDOW_SHARE = 0.85
"""A prompt that fills this share of the model's window is compacted whatever that costs."""


@dataclass(frozen=True, slots=True)
class CompactionPrices:
    """The prices by which the decision is made. ``read`` (r) and ``write`` (w) are the costs of a cache read and of a
    cache write of one token, and ``output`` is the cost of one output token, all in input prices (r and w are 1 if
    nothing is cached). ``requests`` is the number of requests that the conversation has had: it is expected to have as
    many again. ``prompt_tokens`` are those of the whole last request. ``max_input_tokens`` is the size of the model's
    window, or None if it is not known."""

    read: float
    write: float
    output: float
    requests: int
    prompt_tokens: int = 0
    max_input_tokens: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether the last request nearly fills the model's window; False if the window is not known."""
        return bool(self.max_input_tokens) and self.prompt_tokens >= WINDOW_SHARE * (self.max_input_tokens or 0)

    def pays(self, *, dropped_tokens: int, summary_tokens: int, behind_tokens: int, call_tokens: float) -> bool:
        """Whether a compaction saves more than it costs. All amounts are in tokens at the plain input price.

        ``dropped_tokens`` (D) are left out, ``summary_tokens`` (s) take their place, and ``behind_tokens`` (R) stand
        behind them. ``call_tokens`` is the cost of the call that writes the summary. The messages behind the gap are
        written again, and the summary is written: this costs (w - r) R + w s, and the call. After that, each later
        request reads D - s tokens less, which saves r (D - s). A cached history is nearly free to keep, and an uncached
        one is not, so the prices decide.
        """
        once = (self.write - self.read) * behind_tokens + self.write * summary_tokens + call_tokens
        return self.requests * self.read * (dropped_tokens - summary_tokens) > once


@dataclass(frozen=True, slots=True)
class Compaction:
    """The first ``covered`` messages of the client's conversation are left out, not counting the leading system
    messages. The model that wrote the ``summary`` had read the first ``known`` messages, which are at least as many.
    ``digest`` is that of the known messages, without markers, as the other rules leave them. If the summary is empty,
    nothing takes the place of the covered messages."""

    covered: int
    known: int
    digest: bytes
    summary: str = ""


def compacted(
    ruled: RuledHistory, compaction: Compaction | None, texts: CompactionTexts, keep_exchanges: int = 2
) -> RuledHistory:
    """The conversation with its oldest part left out. It is returned unchanged if it does not begin with the messages
    that the compaction knows, or if fewer user exchanges than ``keep_exchanges`` would stay.

    System messages stay, in front of the summary. Hashing the known messages takes most of the time.
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
    """The place of the first message that is not one of the client's first ``count``. If there is none, it is behind
    the end."""
    return next((place for place, origin in enumerate(origins) if origin >= count), len(origins))


def digest_of_known(ruled: RuledHistory, known: int) -> bytes:
    """The digest of the client's first ``known`` messages, without markers, as the rules leave them."""
    return digest(*(turn.bare for turn in ruled.conversation.turns[: place_of(ruled.origins, known)]))

"""The decision to compact a conversation, and what comes of it.

A proposal is made of a conversation that is long enough, whose oldest part can be left out, and where that pays. It
holds the question for a model; the model's finding makes a compaction of it, or nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from proxy.core.structured.history.compaction import Compaction, compacted, digest_of_known
from proxy.core.structured.history.compaction_finding import CompactionFinding
from proxy.core.structured.history.compaction_gain import CompactionPrices
from proxy.core.structured.history.compaction_question import CompactionQuestion, question_of
from proxy.core.structured.history.compaction_terms import CompactionTerms
from proxy.core.structured.history.compaction_texts import CompactionTexts
from proxy.core.structured.history.cuts import cuts
from proxy.core.structured.history.groups import MADE
from proxy.core.structured.history.rules import RuledHistory
from proxy.core.structured.messages.turn import Turn

LEAST_CONFIDENCE = 0.5
"""A boundary of less confidence is none."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A place where a conversation may be cut: an index of it, how many of the client's messages stand in front of it,
    and how many tokens behind it."""

    place: int
    covered: int
    behind_tokens: int


@dataclass(frozen=True, slots=True)
class CompactionProposal:
    """A compaction that would pay, or that is needed. It holds no message but those of the question.

    ``known`` and ``digest`` are those of the compaction. ``cuts`` are the places where the conversation may be cut, in
    their order; ``window`` is where the newest tokens begin that stay beside a summary, as an index of the conversation
    as it is sent now. ``dropped_bytes`` is how long the messages are that a summary would stand for; the summary
    should have ``summary_tokens``."""

    question: CompactionQuestion
    known: int
    digest: bytes
    cuts: tuple[Cut, ...]
    window: int
    dropped_bytes: int
    summary_tokens: int

    def outcome(self, finding: CompactionFinding) -> Compaction | None:
        """What follows from a finding; None where nothing does.

        Where the newest topic begins within the newest tokens, all in front of it is left out. Else the summary takes
        the place of all in front of the newest tokens.
        """
        boundary = self.question.starts[finding.boundary]
        if finding.boundary > 0 and boundary >= self.window and finding.confidence >= LEAST_CONFIDENCE:
            return self._cut(boundary, "")
        size = len(finding.summary.encode())
        if not finding.summary or size >= self.dropped_bytes:
            return None
        return self._cut(self.window, finding.summary)

    def _cut(self, limit: int, summary: str) -> Compaction | None:
        """The compaction at the last place that is not behind ``limit``."""
        possible = [cut for cut in self.cuts if cut.place <= limit]
        return Compaction(possible[-1].covered, self.known, self.digest, summary) if possible else None

    def left_tokens(self, compaction: Compaction) -> int:
        """About how many tokens the conversation has with this compaction."""
        behind = next(cut.behind_tokens for cut in self.cuts if cut.covered == compaction.covered)
        return behind + (self.summary_tokens if compaction.summary else 0)


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """What holds for every conversation: the operator's terms, and the words."""

    terms: CompactionTerms
    texts: CompactionTexts


def history_tokens(ruled: RuledHistory, tokens: Callable[[Turn], int]) -> int:
    """The length of a conversation without its leading system messages."""
    return sum(map(tokens, ruled.conversation.turns))


def proposal_of(
    ruled: RuledHistory,
    former: Compaction | None,
    tokens: Callable[[Turn], int],
    rules: CompactionRules,
    prices: CompactionPrices,
) -> CompactionProposal | None:
    """The proposal for a conversation, whose ``former`` compaction holds where it can; None where the conversation is
    too short, where nothing of it can be left out, or where that would not pay. ``ruled`` is without any compaction,
    ``tokens`` counts those of one message."""
    terms, texts = rules.terms, rules.texts
    sent = compacted(ruled, former, texts, terms.keep_exchanges)
    turns = sent.conversation.turns
    sizes = [tokens(turn) for turn in turns]
    if sum(sizes) < terms.min_history_tokens:
        return None
    question = question_of(sent.conversation.history, texts, terms.summary_tokens)
    window = _window(sizes, terms.verbatim_tokens)
    places = _places(sent, question.end, terms.keep_exchanges)
    at = max((place for place in places if place <= window), default=0)
    if at == 0:
        return None
    gone = [index for index in range(at) if not turns[index].is_system]
    dropped = sum(sizes[index] for index in gone)
    pays = prices.pays(
        dropped_tokens=dropped,
        summary_tokens=terms.summary_tokens,
        behind_tokens=sum(sizes[at:]),
        call_tokens=question.prompt_tokens + prices.output * terms.summary_tokens,
    )
    is_needed = prices.is_full and dropped > terms.summary_tokens
    if not (pays or is_needed):
        return None
    known = _known(sent, ruled, former, question.end)
    return CompactionProposal(
        question=question,
        known=known,
        digest=digest_of_known(ruled, known),
        cuts=tuple(Cut(place, sent.origins[place], sum(sizes[place:])) for place in places),
        window=window,
        dropped_bytes=sum(len(turns[index].raw) for index in gone),
        summary_tokens=terms.summary_tokens,
    )


def _window(sizes: Sequence[int], verbatim_tokens: int) -> int:
    """Where the newest messages begin that have no more tokens than these together."""
    behind = accumulate(reversed(sizes))
    return len(sizes) - sum(1 for _ in takewhile(lambda total: total <= verbatim_tokens, behind))


def _places(sent: RuledHistory, end: int, keep_exchanges: int) -> tuple[int, ...]:
    """Where the conversation may be cut: so that something is left out, that all of it was shown to the model, and that
    the last user exchanges stay."""
    turns = sent.conversation.turns
    found = cuts(turns)
    keep = max(1, keep_exchanges)
    if len(found) < keep:
        return ()
    own = sum(1 for _ in takewhile(lambda index: _is_ours(sent, turns, index), range(len(turns))))
    last = min(found[-keep], end)
    return tuple(place for place in found if own < place <= last)


def _is_ours(sent: RuledHistory, turns: Sequence[Turn], index: int) -> bool:
    """Whether a message at the beginning is no message that a cut leaves out for the first time."""
    return turns[index].is_system or sent.origins[index] == MADE


def _known(sent: RuledHistory, ruled: RuledHistory, former: Compaction | None, end: int) -> int:
    """How many of the client's messages the model reads, itself or by the summary of what it read before."""
    read = next(origin for origin in sent.origins[end:] if origin != MADE)
    return read if former is None or sent is ruled else max(read, former.known)

"""How likely a piece of a prompt is to be unchanged in the next request. The estimates are learnt from priors.

There are four sources: where a client's conversation breaks (``turn_survival``: most clients only append, some rewrite
the last message, some clear old tool results), how often a context piece changes (``change_hazard``), how often answers
edit any file (``CalibrationCounter``), and how likely retrieved documents are to be retrieved again (``DocumentOdds``).
The survival of a prefix is the product over the pieces in it.

A retriever makes its query from the last message, from the last two or from the whole conversation. It ranks by
similarity or not at all, and some documents suit every question. Clients differ in this, so only the starting point of
learning is fixed here. The log odds are linear in the signs of each request, and their coefficients are learnt one by
one (logistic regression, each coefficient with its own certainty).
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct, field

from proxy.kit.value import dataclass
from proxy.planner.edit_signals import EditSignals, shown, text_of
from proxy.protocol.recognition import FileClaim, PieceKind
from proxy.protocol.request.transcript import RecognisedRequest

Counts = tuple[float, float]
"""How many observations there were, and in how many of them the event happened. Both numbers decay."""

RATE_STEP = 0.3
"""The weight of the newest request: the last four or five requests make most of a rate."""

FIRST_RATE = 0.1
"""The rate of change of a piece that was never seen before."""


@dataclass(frozen=True, slots=True)
class DecayedRate:
    """The rule by which a chance is estimated.

    ``prior`` is the chance before anything was seen, and it counts as ``weight`` observations. With each observation
    the earlier ones count ``decay`` times as much as before.
    """

    prior: float
    weight: float
    decay: float = 1.0

    def share(self, happened: float, seen: float) -> float:
        """The chance of an event, if it ``happened`` in this number of the ``seen`` observations."""
        return (happened + self.prior * self.weight) / (seen + self.weight)

    def added(self, counts: Counts, *, happened: bool) -> Counts:
        return self.decay * counts[0] + 1.0, self.decay * counts[1] + happened

    def of(self, observations: Iterable[bool]) -> float:
        """The chance after these observations, the oldest first."""
        decay, seen, count = self.decay, 0.0, 0.0
        for happened in observations:  # this is what ``added`` does, without a call for each observation
            seen, count = decay * seen + 1.0, decay * count + happened
        return (count + self.prior * self.weight) / (seen + self.weight)


# Log odds that the answer to a request changes a file, fitted to recorded editing sessions (logistic regression; each
# session predicted from the others: log loss 0.35, by age alone 0.48). The terms for the number of requests since the
# file's last change, and for its size:
_FILE_BASE = -2.6
_FILE_BY_AGE = (1.4, 0.5, 0.6, 0.6, 0.0, 0.0, -0.4)
_FILE_PER_SIZE = 0.4
_USUAL_TOKENS = 2000
# The terms for what the request says about the file (``proxy.planner.edit_signals``).
_HINTED = 1.0
_ANSWERED = 2.7
_SYMBOLS = 1.5
_BESIDE = -1.3
# Fitted on prompts and commit messages that real edits followed: 1.1 to 2.6, log loss 1 to 10 % less.
_WORDS = 1.3
# The log odds for a later request, whose prompt is not known yet.
_LATER_BASE = -2.0
# The log odds for a later request, if the share of recent requests that changed the file is known.
_RATED_BASE = -2.45
_RATED_BY_AGE = (0.4, 0.45, 0.25, 0.0, 0.0, 0.0, -0.7)
_PER_RATE = 4.0
_LEAST_SHARE = 0.5

# The share of requests that change a repository map, by the number of requests since its last change.
_MAP_BY_AGE = (0.85, 0.70, 0.40, 0.35, 0.30)
_READ_ONLY = 0.02
_DOCUMENT = 0.60
RATE_WEIGHT = 0.6
# P(change) before anything was seen: for fixed text, and for a system message with volatile lines (the time).
STATIC_CHANGE = 0.02
CLOCK_CHANGE = 0.9

_BREAK_DECAY = 0.93
_OTHER_KIND = 0.15
# A clearing of tool results is looked for among this number of the newest breaks.
_CLEARING_BREAKS = 2
# This share of the requests that do not append, divided by a message's distance from the end, breaks at the message or
# in front of it.
_BREAKS_DEEPER = 0.35
# P(a client that has just cleared tool results keeps all of them next time), before anything was seen.
_PRIOR_CLEARING = 0.2


def file_hazard(age: int, tokens: int, sign: EditSignals) -> float:
    """-ln P(unchanged by the answer) of a file that has ``tokens`` tokens and last changed ``age`` requests ago.
    ``sign`` is what the request says about it."""
    odds = _size_odds(tokens) + _FILE_BASE + _FILE_BY_AGE[min(age, len(_FILE_BY_AGE) - 1)]
    odds += _HINTED * sign.is_hinted + _ANSWERED * sign.is_answered + _BESIDE * sign.is_beside
    odds += _WORDS * sign.words
    if sign.symbols >= _LEAST_SHARE:
        odds += _SYMBOLS * sign.symbols
    return _hazard(odds)


def later_hazard(age: int, tokens: int, rate: float | None = None) -> float:
    """The same for a later request, which may say anything about the file. ``rate`` is the share of recent requests
    that changed the file."""
    odds = _size_odds(tokens)
    if rate is None:
        return _hazard(odds + _LATER_BASE)
    return _hazard(odds + _RATED_BASE + _RATED_BY_AGE[min(age, len(_RATED_BY_AGE) - 1)] + _PER_RATE * rate)


def _size_odds(tokens: int) -> float:
    return _FILE_PER_SIZE * math.log(max(tokens, 100) / _USUAL_TOKENS)


def _hazard(odds: float) -> float:
    """-ln(1 - p) for log odds, p at most 0.95."""
    return min(math.log1p(math.exp(odds)), 3.0)


def change_hazard(kind: PieceKind, claim: FileClaim, age: int, rate: float | None = None) -> float:
    """-ln P(unchanged in the next request) of a context piece other than an editable file, last changed ``age``
    requests ago. ``rate`` is the share of recent requests that changed it."""
    if claim is FileClaim.READ_ONLY:
        probability = _READ_ONLY
    elif kind is PieceKind.SYMBOL:
        probability = _MAP_BY_AGE[min(age, len(_MAP_BY_AGE) - 1)]
    else:
        probability = _DOCUMENT
    if rate is not None:
        probability += RATE_WEIGHT * (rate - probability)
    return -math.log1p(-min(probability, 0.95))


def fixed_hazard(seen: int, changes: int, prior: float) -> float:
    """-ln P(unchanged) of a fixed piece (tools, a system message) that changed in ``changes`` of ``seen`` requests."""
    # The prior counts as one request.
    return -math.log1p(-min((changes + prior) / (seen + 1), 0.98))


class HistoryDivergence(NamedTuple):
    """The point where a conversation broke: how many of the earlier request's messages, counted from its end, the next
    request did not repeat (0: it only appended; 1: the last message was rewritten; large: the client trimmed or
    summarised).

    ``results`` is how many of these messages are tool results, if the first of these messages is a tool result;
    otherwise it is 0. A client that clears old results keeps the same number of them, however many messages are between
    them.
    """

    messages: int
    results: int = 0

    def distance(self, results: Sequence[int]) -> int:
        """The distance from the end at which the same break stands in another request. ``results`` are the distances of
        that request's tool results from its end, the nearest first."""
        return results[self.results - 1] if 0 < self.results <= len(results) else self.messages


def turn_survival(
    seen: Sequence[HistoryDivergence], prior_append: float, turns: int, results: Sequence[int] = ()
) -> list[float]:
    """P(the next request repeats everything up to this message), for each of ``turns`` messages in order.

    ``seen`` are the breaks of a cohort's conversations, oldest first. ``results`` are the distances of the tool results
    from the end, the nearest (1: the last message) first.

    The prior counts as one observation: the request appends with the probability ``prior_append``, otherwise it
    rewrites the last message or, rarely, anything before it. A client that has just cleared results is likely to clear
    the next one. A break counts less if the break before it was of another kind than the newest break.
    """
    counts = [0.0] * (turns + 1)
    weight = 1.0
    total = 1.0
    never_cleared = not any(one.results > 0 for one in seen)
    clears = not never_cleared and _is_clearing(seen, len(seen))
    for place in range(len(seen) - 1, -1, -1):
        one = seen[place]
        is_alike = place == len(seen) - 1 or (place > 0 and (never_cleared or _is_clearing(seen, place) == clears))
        share = weight if is_alike else weight * _OTHER_KIND
        counts[min(one.messages if never_cleared else one.distance(results), turns)] += share
        total += share
        weight *= _BREAK_DECAY
    newest_clearing = next((one for one in reversed(seen) if one.results > 0), None) if clears else None
    cleared = min(newest_clearing.distance(results), turns) if newest_clearing is not None else 0
    priors = _priors(prior_append, turns.bit_length())[:turns]
    priors = (*(min(prior, _PRIOR_CLEARING) for prior in priors[:cleared]), *priors[cleared:])
    # The message at a distance from the end (1: the last) survives if the break is nearer to the end.
    result = [(nearer + prior) / total for nearer, prior in zip(accumulate(counts[:turns]), priors, strict=True)]
    return result[::-1]


@lru_cache(maxsize=64)
def _priors(prior_append: float, bits: int) -> tuple[float, ...]:
    """P(the message at a distance from the end survives), before any break was seen, from distance 1 up to the largest
    number with ``bits`` bits. A long conversation needs hundreds of them, and its next request needs the same ones."""
    rest = 1 - prior_append
    return prior_append, *(prior_append + rest * (1 - _BREAKS_DEEPER / distance) for distance in range(2, 1 << bits))


def _is_clearing(seen: Sequence[HistoryDivergence], place: int) -> bool:
    """Whether tool results were being cleared before this break. An answer without a call in between clears nothing,
    but it does not end the habit."""
    return any(one.results > 0 for one in seen[max(0, place - _CLEARING_BREAKS) : place])


_MENTION_DECAY = 0.95
# The weight of the general estimate, as a number of answers seen.
_MENTION_WEIGHT = 6.0


class CalibrationCounter(Struct, array_like=True):
    """Counts of answers that may edit files: how many there were, how many were expected to edit any file, and how many
    did. Older answers count less."""

    seen: float = 0.0
    expected: float = 0.0
    changed: float = 0.0

    def add(self, chance: float, *, is_changed: bool) -> None:
        """Count one more answer."""
        self.seen = self.seen * _MENTION_DECAY + 1.0
        self.expected = self.expected * _MENTION_DECAY + chance
        self.changed = self.changed * _MENTION_DECAY + is_changed

    def shifted(self, chance: float) -> float:
        """The ``chance`` that is expected in general, corrected by the answers that were seen here: by how much larger
        the log odds of a change are here."""
        usual, more = self.expected / self.seen if self.seen else 0.0, 0.0
        if self.seen:
            here = (_MENTION_WEIGHT * usual + self.changed) / (_MENTION_WEIGHT + self.seen)
            more = _log_odds(here) - _log_odds(usual)
        return 1.0 / (1.0 + math.exp(-_log_odds(chance) - more))


def _log_odds(chance: float) -> float:
    return math.log(max(chance, 1e-4) / max(1.0 - chance, 1e-4))


# The starting coefficients, fitted to generated sessions of five kinds of query (BM25 over three manuals). Each
# coefficient's spread over the five kinds is its uncertainty. The coefficients in order: for a document in its first
# request, in its second, and from the third on; for its rank; for its words from the last question, and from the
# question before.
_PRIOR = (-0.78, -0.46, 1.0, -0.36, 1.16, -0.07)
_SPREAD = (1.46, 1.61, 1.40, 1.40, 0.63, 0.63)
# The documents of one request come and go together, so each of them counts as less than one observation.
_WEIGHT = 0.7
_MOST = 0.97
# P(all of a request's documents stay), before anything was seen, and the number of requests as which it counts. Most
# documents are retrieved for one question, but documents that belong to a prompt are written in the same form. On
# generated sessions, 0.15 costs prompts whose documents never change up to 20 %, and 0.45 costs prompts with retrieved
# documents 1 %.
_WHOLE = DecayedRate(prior=0.45, weight=0.6, decay=0.9)
# The share of each document's own hazard that counts among several documents, if not all of them stay.
_TOGETHER = 0.7
# The number of a request's documents that are remembered.
MAX_DOCUMENTS = 24
# The part of a question that is read, and the part of all documents together (the beginning of each). Reading more
# takes longer than the rest of planning.
_READ_CHARS = 4_000
_MAX_WORDS = 60
_DOCUMENTS_CHARS = 40_000
# A shorter word is rarely what a text is about.
_WORD = re.compile(r"[^\W\d_]\w{3,}")


class DocumentSign(NamedTuple):
    """The signs that a request gives of one of its documents.

    ``place`` is its rank, from -0.5 (the first) to 0.5 (the last). ``run`` is the number of requests in a row that have
    had it by now. ``asked`` is its share of the last question's words, minus the average share of the documents.
    ``before`` is the same for the question before.
    """

    place: float
    run: int
    asked: float = 0.0
    before: float = 0.0

    def later(self) -> "DocumentSign":
        """The signs as the next request will show them. The question of that request is not known yet."""
        return DocumentSign(self.place, self.run + 1, 0.0, self.asked)

    def values(self) -> tuple[float, ...]:
        """The values that the coefficients are multiplied with."""
        runs = float(self.run == 1), float(self.run == 2), float(self.run > 2)
        return *runs, self.place, 2.0 * self.asked, 2.0 * self.before


class DocumentOdds(Struct, array_like=True):
    """The odds that were learnt from one client's requests. ``whole`` has two pairs of counts: one for requests whose
    documents had just changed, and one for requests whose documents were all in the request before. Each pair counts
    the requests that were seen, and those of them whose documents the next request repeated. Raises ValueError for
    numbers that cannot be used in a calculation."""

    means: list[float] = field(default_factory=lambda: list(_PRIOR))
    precisions: list[float] = field(default_factory=lambda: [1 / spread**2 for spread in _SPREAD])
    whole: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0), (0.0, 0.0)])

    def __post_init__(self) -> None:
        numbers = [*self.means, *self.precisions, *(number for pair in self.whole for number in pair)]
        is_whole = len(self.means) == len(self.precisions) == len(_PRIOR) and len(self.whole) == 2
        if not is_whole or not all(map(math.isfinite, numbers)) or min(self.precisions) <= 0:
            raise ValueError("no odds of documents")

    def chance(self, sign: DocumentSign) -> float:
        """P(the next request has the document, if it does not have all of them). An uncertain estimate is nearer to one
        half."""
        values = sign.values()
        odds = sum(value * mean for value, mean in zip(values, self.means, strict=True))
        doubt = sum(value * value / precision for value, precision in zip(values, self.precisions, strict=True))
        return min(max(_share(odds / math.sqrt(1 + math.pi / 8 * doubt)), 1 - _MOST), _MOST)

    def stays(self, signs: Iterable[DocumentSign]) -> float:
        """P(the next request has all of a request's documents)."""
        seen, kept = self.whole[_is_old(signs)]
        return _WHOLE.share(kept, seen)

    def hazard(self, sign: DocumentSign) -> float:
        """-ln P(the next request has the document, if it does not have all of them), scaled by its weight among other
        documents."""
        return -_TOGETHER * math.log(self.chance(sign))

    def learn(self, signs: Sequence[DocumentSign], kept: Sequence[bool]) -> None:
        """Learn from the signs of a request's documents and from which of them the next request has (``kept``)."""
        weight = _WEIGHT
        if all(kept):
            # If documents that all stayed did so as a whole, they say nothing about each single document.
            stays = self.stays(signs)
            weight *= 1 - stays / (stays + (1 - stays) * math.prod(map(self.chance, signs)))
        for sign, stayed in zip(signs, kept, strict=True):
            values = sign.values()
            share = _share(sum(value * mean for value, mean in zip(values, self.means, strict=True)))
            for place, value in enumerate(values):
                if value:
                    self.precisions[place] += weight * value * value * share * (1 - share)
                    self.means[place] += weight * value * (stayed - share) / self.precisions[place]
        if signs:
            which = _is_old(signs)
            self.whole[which] = _WHOLE.added(self.whole[which], happened=all(kept))


def _is_old(signs: Iterable[DocumentSign]) -> bool:
    return all(sign.run > 1 for sign in signs)


def _share(odds: float) -> float:
    return 1 / (1 + math.exp(-max(min(odds, 30.0), -30.0)))


def are_lasting(last: Mapping[bytes, DocumentSign], documents: Sequence[bytes]) -> bool:
    """Whether the last two requests had all of these documents, as far as is remembered. ``last`` are the last
    request's documents."""
    return all(one in last and last[one].run > 1 for one in documents[:MAX_DOCUMENTS])


def document_signs(
    last: Mapping[bytes, DocumentSign], documents: Sequence[bytes], asked: Sequence[tuple[float, float]]
) -> list[DocumentSign]:
    """The signs of a request's documents, if the request before had the documents ``last``. ``asked`` has the values of
    ``DocumentSign.asked`` and ``DocumentSign.before`` for each document."""
    highest = max(1, len(documents) - 1)
    return [
        DocumentSign(rank / highest - 0.5, last[one].run + 1 if one in last else 1, *words)
        for rank, (one, words) in enumerate(zip(documents, asked, strict=True))
    ]


def followed(
    last: Mapping[bytes, DocumentSign], documents: Sequence[bytes], signs: Sequence[DocumentSign], odds: DocumentOdds
) -> dict[bytes, DocumentSign]:
    """Record a request that counts. The ``odds`` learn which of the documents ``last`` it has. Its own documents are
    returned, to be remembered."""
    now = set(documents)
    odds.learn(list(last.values()), [one in now for one in last])
    return dict(zip(documents[:MAX_DOCUMENTS], signs, strict=False))


def read_words(recognised: RecognisedRequest) -> list[tuple[float, float]]:
    """For each document: its share of the last question's words, minus the average share of the documents, and the same
    for the question before."""
    retrieved = recognised.retrieved
    if not retrieved:
        return []
    most = _DOCUMENTS_CHARS // len(retrieved)
    documents = [item.text[:most].lower() for item in retrieved]
    last = recognised.last_user
    before = next((i for i in range(last - 1, -1, -1) if recognised.messages[i].is_asked), None)
    asked = _beyond_average(shown(recognised.messages[last]), documents)
    earlier = _beyond_average(text_of(recognised.messages[before]) if before is not None else "", documents)
    return list(zip(asked, earlier, strict=True))


def _beyond_average(question: str, documents: Sequence[str]) -> list[float]:
    words = list(dict.fromkeys(_WORD.findall(question[:_READ_CHARS].lower())))[:_MAX_WORDS]
    if not words:
        return [0.0] * len(documents)
    shares = [sum(word in document for word in words) / len(words) for document in documents]
    average = sum(shares) / len(shares)
    return [share - average for share in shares]

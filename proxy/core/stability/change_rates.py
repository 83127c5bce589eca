"""How likely a piece of a prompt is to be unchanged in the next request. The estimates are learnt, and start from
priors.

There are three sources: where a client's conversation breaks (``turn_survival``: most clients only append, some rewrite
the last message, some clear old tool results), how often a context piece changes (``change_hazard``), and how often
answers edit any file (``CalibrationCounter``). The survival of a prefix is the product over the pieces in it.

"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct

from proxy.core.recognition.fixed_texts import FileClaim
from proxy.core.recognition.pieces import PieceKind
from proxy.core.stability.edit_signals import EditSignals
from proxy.core.value import dataclass

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
        return self.share(count, seen)


# Log odds that the answer to a request changes a file, fitted to recorded editing sessions (logistic regression; each
# session predicted from the others: log loss 0.35, by age alone 0.48). The terms for the number of requests since the
# file's last change, and for its size:
_FILE_BASE = -2.6
_FILE_BY_AGE = (1.4, 0.5, 0.6, 0.6, 0.0, 0.0, -0.4)
_FILE_PER_SIZE = 0.4
_USUAL_TOKENS = 2000
# The terms for what the request says about the file (``proxy.core.stability.edit_signals``).
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
    return -math.log1p(-min(DecayedRate(prior, 1.0).share(changes, seen), 0.98))


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
    clears = _is_clearing(seen, len(seen))
    never_cleared = not any(one.results > 0 for one in seen)
    for place in range(len(seen) - 1, -1, -1):
        one = seen[place]
        is_alike = place == len(seen) - 1 or (place > 0 and (never_cleared or _is_clearing(seen, place) == clears))
        share = weight if is_alike else weight * _OTHER_KIND
        counts[min(one.distance(results), turns)] += share
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

    def odds(self) -> float:
        """How much larger the log odds of a change are here than expected in general."""
        if not self.seen:
            return 0.0
        usual = self.expected / self.seen
        return _log_odds((_MENTION_WEIGHT * usual + self.changed) / (_MENTION_WEIGHT + self.seen)) - _log_odds(usual)

    def shifted(self, chance: float) -> float:
        """The ``chance`` that is expected in general, corrected by the answers that were seen here."""
        return 1.0 / (1.0 + math.exp(-_log_odds(chance) - self.odds()))


def _log_odds(chance: float) -> float:
    return math.log(max(chance, 1e-4) / max(1.0 - chance, 1e-4))

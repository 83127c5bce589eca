"""How likely a piece of a prompt is to be found unchanged in the next request: learnt, with priors.

Two sources: where a client's conversation breaks (``BreakRanks``: most only append, some rewrite the last message, some
clear old tool results), and how often a context piece changes (``change_hazard``). Survival of a prefix is the product
over what stands in it.
"""

import math
from collections import deque
from collections.abc import Iterable

from proxy.core.recognition import PieceKind
from proxy.core.words import Claim

# Share of requests that change a context piece, by requests since its last change (measured on recorded editing
# sessions: just after an edit it is three times as likely to be edited again).
_FILE_BY_AGE = (0.22, 0.065, 0.065, 0.065, 0.05)
_MAP_BY_AGE = (0.75, 0.55, 0.45, 0.40, 0.30)
_READ_ONLY = 0.02
_DOCUMENT = 0.60
# A file that the user's prompt names is about to be edited.
NAMED_IN_PROMPT = 0.75
RATE_WEIGHT = 0.6
NAMED_RECENTLY = 0.60
# P(change) before anything was seen: of fixed text, and of a system message that tells the time or holds documents.
STATIC_CHANGE = 0.02
CLOCK_CHANGE = 0.9

_REMEMBERED_BREAKS = 32


def change_hazard(kind: PieceKind, claim: Claim, age: int, named: float = 0.0, rate: float | None = None) -> float:
    """-ln P(unchanged in the next request) of a context piece last changed ``age`` requests ago.

    ``named`` is a floor for the probability of change, where the prompt speaks of the piece.
    """
    if claim is Claim.READ_ONLY:
        probability = _READ_ONLY
    elif kind is PieceKind.SYMBOL:
        probability = _MAP_BY_AGE[min(age, len(_MAP_BY_AGE) - 1)]
    elif kind is PieceKind.DOCUMENT:
        probability = _DOCUMENT
    else:
        probability = _FILE_BY_AGE[min(age, len(_FILE_BY_AGE) - 1)]
    if rate is not None:
        probability += RATE_WEIGHT * (rate - probability)
    if claim is not Claim.READ_ONLY:
        probability = max(probability, named)
    return -math.log1p(-min(probability, 0.95))


def fixed_hazard(seen: int, changes: int, prior: float) -> float:
    """-ln P(unchanged) of a fixed piece (tools, a system message) that changed ``changes`` times of ``seen``."""
    return -math.log1p(-min((changes + prior) / (seen + 1), 0.98))


class BreakRanks:
    """Counted from the end, how many of a request's conversation messages the next request did not repeat.

    0: it only appended. 1: the last message was rewritten. Large: the client trimmed or summarised.
    """

    __slots__ = ("_prior", "_ranks")

    def __init__(self, prior_append: float) -> None:
        self._prior = prior_append
        self._ranks: deque[int] = deque(maxlen=_REMEMBERED_BREAKS)

    def __len__(self) -> int:
        return len(self._ranks)

    def add(self, rank: int) -> None:
        """One pair of consecutive requests."""
        self._ranks.append(rank)

    def restore(self, ranks: Iterable[int]) -> None:
        """Remember these, oldest first, and no others."""
        self._ranks = deque(ranks, maxlen=_REMEMBERED_BREAKS)

    def ranks(self) -> list[int]:
        """What is remembered, oldest first."""
        return list(self._ranks)

    def survival(self, turns: int, newest: int | None = None) -> list[float]:
        """P(the next request repeats everything up to this message), for each of ``turns`` messages in order.

        ``newest`` is a rank that was just seen and is not added yet.

        The prior counts as one observation: it appends with ``prior_append``, else rewrites the last message or,
        rarely, anything before it.
        """
        counts = [0.0] * (turns + 1)
        weight = 1.0
        total = 1.0
        for rank in ([] if newest is None else [newest]) + list(reversed(self._ranks)):
            counts[min(rank, turns)] += weight
            total += weight
            weight *= 0.93
        result = [0.0] * turns
        kept = 0.0
        for distance in range(1, turns + 1):
            # The message at this distance from the end (1: the last) survives when the break is nearer to the end.
            kept += counts[distance - 1]
            prior = self._prior if distance == 1 else self._prior + (1 - self._prior) * (1 - 0.35 / distance)
            result[turns - distance] = (kept + prior) / total
        return result

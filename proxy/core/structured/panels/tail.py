"""The choice of the panels without a place of their own. They stand last in every request, where their changes break
nothing.

A panel at a place is read from the cache, and everything behind it is written anew when it changes. A panel in the tail
is sent anew with every request, and so is everything behind the tail, but its changes cost nothing. The sizes, the
rates of change and the prices decide which is cheaper.
"""

from collections.abc import Iterable, Mapping, Sequence

from proxy.core.structured.panels.panel import Panel
from proxy.core.structured.panels.placing import LEAST_CHANGE, CacheTerms, PanelMemory, change_rate, size_of, turn_size
from proxy.core.structured.panels.progress import Progress
from proxy.core.value import dataclass

_AHEAD = 20
"""A conversation is expected to have this many more requests, plus as many again as it has had."""
_MOST_TRIES = 32
"""At most this many sizes of the tail are compared, so that the time does not grow with the square of the number
of panels."""


@dataclass(frozen=True, slots=True)
class _Stake:
    """A panel: its size in bytes, and the probability that it changes before the next request."""

    id: str
    size: int
    change: float

    def kept(self, terms: CacheTerms) -> float:
        """The cost of the panel at a place in one request, without the messages behind it."""
        return self.size * (terms.read + self.change * terms.anew)


def in_tail(
    shown: Iterable[Panel], memories: Mapping[str, PanelMemory], progress: Progress, terms: CacheTerms | None
) -> frozenset[str]:
    """The ids of the panels that stand in the tail; none if the prices are not known, or if a tool loop holds the tail
    at its place."""
    if terms is None or terms.anew <= 0.0 or not progress.has_tail:
        return frozenset()
    share = progress.prompt_share
    stakes = [_stake(panel, memories[panel.id], share) for panel in shown if not panel.is_frozen]
    # Small panels that change often go to the tail first.
    stakes.sort(key=lambda each: (each.size - each.kept(terms)) / each.change)
    turn, requests = turn_size(progress.sizes), _AHEAD + max((each.seen for each in memories.values()), default=0)
    # The prompt stands behind the tail. The answer in front of it is sent anew, too, if no cache entry can end with an
    # answer.
    behind = (1.0 - terms.read) * share * (progress.prompt_size if terms.ends_at_answers else turn)

    def cost(count: int) -> float:
        kept, tail = stakes[count:], stakes[:count]
        again = terms.anew * turn * _rewrites([each.change for each in kept], requests)
        sent = behind + sum(each.size for each in tail) if tail else 0.0
        return sent + sum(each.kept(terms) for each in kept) + again

    best = min(range(0, len(stakes) + 1, 1 + len(stakes) // _MOST_TRIES), key=cost)
    return frozenset(each.id for each in stakes[:best])


def _stake(panel: Panel, memory: PanelMemory, prompt_share: float) -> _Stake:
    """In a conversation with tool loops the tail moves with each call. So a panel that changes only with prompts is
    cheaper at a place."""
    change = change_rate(panel, memory)
    if prompt_share < 1.0:
        change = min(change, max(LEAST_CHANGE, memory.in_loops / (memory.seen * (1.0 - prompt_share))))
    return _Stake(panel.id, size_of(panel), change)


def _rewrites(changes: Sequence[float], requests: int) -> float:
    """How often, in all later requests, a message is written anew because a panel in front of it changes. That panel
    then stands behind the message, and so does every panel that stood between the two. The panels that change least
    stand in front. Panels are assumed to change at the same time as far as their rates allow it."""
    found, most, still = 0.0, max(changes, default=1.0), 1.0
    for change in sorted(changes):
        own = change / most
        ever = 1.0 - (1.0 - (1.0 - change) ** requests) / (change * requests)
        found += ever * own * still / (1.0 - (1.0 - own) * still)
        still *= 1.0 - own
    return found

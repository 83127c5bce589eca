"""What a conversation with live panels remembers, and how two processes that have served it come to the same."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from proxy.core.structured.history.compaction import Compaction
from proxy.core.structured.panels.board import Board
from proxy.core.structured.panels.placing import PanelMemory


@dataclass(frozen=True, slots=True)
class LiveState:
    """``board`` is what is known of the panels, with the costs of all requests that were settled up to ``charged_s``.
    ``compaction`` leaves out the oldest part of the conversation since ``compacted_s``; None: nothing is left out.
    Times are in unix seconds, and 0 where there is nothing yet."""

    board: Board = Board()
    charged_s: float = 0.0
    compaction: Compaction | None = None
    compacted_s: float = 0.0


def merged(one: LiveState, two: LiveState) -> LiveState:
    """What both know; the order of the two makes no difference.

    The board is the later one: it has the panels and the prompts that the provider has seen last. A panel that has
    changed in a request that the later one did not know of, which happens where two of them run at the same time, keeps
    its newer stamp and place. The costs and the compaction are the newer ones.
    """
    later, earlier = _newer_first(one, two, lambda each: (each.board.is_begun, each.board.last_s), _board_text)
    panels = {id_: _newer(memory, earlier.board.panels.get(id_)) for id_, memory in later.board.panels.items()}
    costs, _ = _newer_first(
        one, two, lambda each: (bool(each.board.costs.entries), each.charged_s), lambda each: repr(each.board.costs)
    )
    compacted, _ = _newer_first(
        one, two, lambda each: (each.compaction is not None, each.compacted_s), lambda each: repr(each.compaction)
    )
    return LiveState(
        board=replace(later.board, panels=panels, costs=costs.board.costs),
        charged_s=costs.charged_s,
        compaction=compacted.compaction,
        compacted_s=compacted.compacted_s,
    )


def _newer(memory: PanelMemory, other: PanelMemory | None) -> PanelMemory:
    return other if other is not None and other.changed_s > memory.changed_s else memory


_Order = tuple[bool, float]


def _newer_first(
    one: LiveState, two: LiveState, order: Callable[[LiveState], _Order], text: Callable[[LiveState], str]
) -> tuple[LiveState, LiveState]:
    """Of two of the same moment it does not matter which one counts, as long as every process takes the same."""
    first, second = order(one), order(two)
    if first == second:
        return (one, two) if text(one) >= text(two) else (two, one)
    return (one, two) if first > second else (two, one)


def _board_text(state: LiveState) -> str:
    board = state.board
    return repr((sorted(board.panels.items(), key=lambda item: item[0]), sorted(board.prompts.items())))

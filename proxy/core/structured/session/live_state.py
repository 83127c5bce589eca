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
    later, earlier = _newer_first(one, two, _seen, _board_text)
    panels = {id_: _newer(memory, earlier.board.panels.get(id_)) for id_, memory in later.board.panels.items()}
    charged, _ = _newer_first(one, two, _charged, _costs_text)
    compacted, _ = _newer_first(one, two, _compacted, _compaction_text)
    return LiveState(
        board=replace(later.board, panels=panels, costs=charged.board.costs),
        charged_s=charged.charged_s,
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


def _seen(state: LiveState) -> _Order:
    return state.board.is_begun, state.board.last_s


def _charged(state: LiveState) -> _Order:
    return bool(state.board.costs.entries), state.charged_s


def _compacted(state: LiveState) -> _Order:
    return state.compaction is not None, state.compacted_s


def _board_text(state: LiveState) -> str:
    board = state.board
    return repr((sorted(board.panels.items(), key=lambda item: item[0]), sorted(board.prompts.items())))


def _costs_text(state: LiveState) -> str:
    return repr(state.board.costs)


def _compaction_text(state: LiveState) -> str:
    return repr(state.compaction)

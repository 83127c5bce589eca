"""Memory of a conversation with live panels, its bytes in a store, and its merge from two processes."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, msgpack

from proxy.core.structured.history.compaction import Compaction
from proxy.core.structured.panels.board import MOST_PROMPTS, Board
from proxy.core.structured.panels.costs import PanelCost, PanelCosts
from proxy.core.structured.panels.placing import Count, Digest, Entry, PanelId, PanelMemory, Time, Usd
from proxy.core.value import dataclass, replace


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
    """The knowledge of both; the order of the two makes no difference.

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
    """The newer one first. Of two of the same moment either may count, if every process takes the same one."""
    first, second = order(one), order(two)
    if first == second:
        return (one, two) if text(one) >= text(two) else (two, one)
    return (one, two) if first > second else (two, one)


def _board_text(state: LiveState) -> str:
    board = state.board
    return repr((sorted(board.panels.items(), key=lambda item: item[0]), sorted(board.prompts.items())))


VERSION: Final = 1
MOST_BYTES: Final = 1 << 20
"""A larger blob is neither written nor read."""

_MOST_PANELS = 10_000
"""Those of the form, and the frozen parts of a conversation."""


class _PackedBoard(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``Board`` without its costs."""

    version: int
    last_s: Time
    panels: Annotated[list[PanelMemory], Meta(max_length=_MOST_PANELS)]
    prompts: Annotated[list[tuple[Count, Digest, Time]], Meta(max_length=MOST_PROMPTS)]


class _PackedCosts(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``PanelCosts``."""

    version: int
    charged_s: Time
    entries: Annotated[list[Entry], Meta(max_length=_MOST_PANELS)]
    last: Annotated[list[PanelCost], Meta(max_length=_MOST_PANELS)]
    totals: Annotated[list[tuple[PanelId, Usd]], Meta(max_length=2 * _MOST_PANELS)]


class _PackedCompaction(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``Compaction``."""

    version: int
    compacted_s: Time
    covered: Count
    known: Count
    digest: Digest
    summary: str


class Part(StrEnum):
    """A part of the state, with a blob of its own."""

    BOARD = "board"
    COSTS = "costs"
    COMPACTION = "compaction"


def packed(state: LiveState, part: Part) -> bytes:
    """The blob of a part; empty where there is nothing to write, or too much."""
    board, costs, made = state.board, state.board.costs, state.compaction
    found: _Packed
    match part:
        case Part.BOARD if board.is_begun:
            prompts = [(at, *prompt) for at, prompt in board.prompts.items()]
            found = _PackedBoard(VERSION, board.last_s, list(board.panels.values()), prompts)
        case Part.COSTS if costs.entries:
            entries, last, totals = list(costs.entries), list(costs.last), list(costs.totals.items())
            found = _PackedCosts(VERSION, state.charged_s, entries, last, totals)
        case Part.COMPACTION if made is not None:
            found = _PackedCompaction(VERSION, state.compacted_s, made.covered, made.known, made.digest, made.summary)
        case _:
            return b""
    blob = msgpack.encode(found)
    return blob if len(blob) <= MOST_BYTES else b""


def unpacked(blobs: Mapping[Part, bytes]) -> LiveState:
    """The state in these blobs. A blob that cannot be read says nothing."""
    state = LiveState()
    for part, blob in blobs.items():
        found = _decoded(part, blob) if len(blob) <= MOST_BYTES else None
        state = merged(state, _state_of(found)) if found is not None else state
    return state


def _decoded(part: Part, blob: bytes) -> "_Packed | None":
    try:
        found: _Packed = _DECODERS[part].decode(blob)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.version == VERSION else None


def _state_of(found: "_Packed") -> LiveState:
    match found:
        case _PackedBoard():
            panels = {panel.id: panel for panel in found.panels}
            prompts = {at: (digest, time_s) for at, digest, time_s in found.prompts}
            return LiveState(Board(panels, prompts, is_begun=True, last_s=found.last_s))
        case _PackedCosts():
            costs = PanelCosts(tuple(found.entries), tuple(found.last), dict(found.totals))
            return LiveState(Board(costs=costs), charged_s=found.charged_s)
        case _PackedCompaction():
            compaction = Compaction(found.covered, found.known, found.digest, found.summary)
            return LiveState(compaction=compaction, compacted_s=found.compacted_s)


_Packed = _PackedBoard | _PackedCosts | _PackedCompaction
_DECODERS: Mapping[Part, msgpack.Decoder[Any]] = MappingProxyType(
    {
        Part.BOARD: msgpack.Decoder(_PackedBoard),
        Part.COSTS: msgpack.Decoder(_PackedCosts),
        Part.COMPACTION: msgpack.Decoder(_PackedCompaction),
    }
)

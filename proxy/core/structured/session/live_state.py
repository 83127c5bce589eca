"""The state of a conversation with live panels, its bytes in a store, and its merge from two processes."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, msgpack

from proxy.core.structured.history.compaction import Compaction
from proxy.core.structured.panels.board import MOST_PROMPTS, Board
from proxy.core.structured.panels.costs import PanelCost, PanelCosts
from proxy.core.structured.panels.placing import Count, Digest, Entry, PanelId, PanelMemory, Time, Usd
from proxy.core.value import dataclass, replace


@dataclass(frozen=True, slots=True)
class LiveState:
    """``board`` is the board of the panels, with the costs of all requests that were settled up to ``charged_s``.
    ``compaction`` leaves out the oldest part of the conversation since ``compacted_s``; None: nothing is left out.
    Times are in unix seconds, and 0 if there is nothing yet."""

    board: Board = Board()
    charged_s: float = 0.0
    compaction: Compaction | None = None
    compacted_s: float = 0.0


def merged(one: LiveState, two: LiveState) -> LiveState:
    """The merge of both states. The order of the two makes no difference.

    The board is the later one: it has the panels and the prompts that the provider has seen last. If two requests run
    at the same time, the later one may not know of a panel's change in the other. Such a panel keeps its newer stamp
    and place. The costs and the compaction are the newer ones.
    """
    later, earlier = _newer_first(one, two, _moment, _shown)
    panels = {id_: _newer(id_, later, earlier) for id_ in later.board.panels}
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


def _newer(id_: str, later: LiveState, earlier: LiveState) -> PanelMemory:
    """The merged memory of a panel that the later board has. If both memories are of the same change, that of the later
    board counts. If both boards are of the same moment, either memory may count, as long as every process takes the
    same one."""
    known = [(each.board.panels[id_], _moment(each)) for each in (later, earlier) if id_ in each.board.panels]
    return max(known, key=lambda one: (one[0].changed_s, one[1], repr(one[0])))[0]


_Order = tuple[bool, float]


def _newer_first(
    one: LiveState, two: LiveState, order: Callable[[LiveState], _Order], text: Callable[[LiveState], str]
) -> tuple[LiveState, LiveState]:
    """The two states, the newer one first. If both are of the same moment, either may be first, as long as every
    process takes the same one."""
    first, second = order(one), order(two)
    if first == second:
        return (one, two) if text(one) >= text(two) else (two, one)
    return (one, two) if first > second else (two, one)


def _moment(state: LiveState) -> _Order:
    return state.board.is_begun, state.board.last_s


def _shown(state: LiveState) -> str:
    """A text that names what the board shows. The memories of its panels are left out, because they may come from
    either of two boards."""
    return repr((sorted(state.board.panels), sorted(state.board.prompts.items())))


VERSION: Final = 1
MOST_BYTES: Final = 1 << 20
"""A larger blob is neither written nor read."""

_MOST_PANELS = 10_000
"""The panels of the form, and the frozen parts of a conversation."""


_Panels = Annotated[list[PanelMemory], Meta(max_length=_MOST_PANELS)]
_Prompts = Annotated[list[tuple[Count, Digest, Time]], Meta(max_length=MOST_PROMPTS)]
_Entries = Annotated[list[Entry], Meta(max_length=_MOST_PANELS)]
_Costs = Annotated[list[PanelCost], Meta(max_length=_MOST_PANELS)]
_Totals = Annotated[list[tuple[PanelId, Usd]], Meta(max_length=2 * _MOST_PANELS)]
# A blob is an array: the version, the time of the last change, and the fields. A blob of another version is not read.
_BOARDS = msgpack.Decoder(tuple[Literal[1], Time, _Panels, _Prompts])
_COSTS = msgpack.Decoder(tuple[Literal[1], Time, _Entries, _Costs, _Totals])
_COMPACTIONS = msgpack.Decoder(tuple[Literal[1], Time, Count, Count, Digest, str])


class Part(StrEnum):
    """A part of the state, with a blob of its own."""

    BOARD = "board"
    COSTS = "costs"
    COMPACTION = "compaction"


def packed(state: LiveState, part: Part) -> bytes:
    """The blob of a part; empty if there is nothing to write, or if the blob would be too large."""
    board, costs, made = state.board, state.board.costs, state.compaction
    found: tuple[object, ...]
    match part:
        case Part.BOARD if board.is_begun:
            prompts = [(at, *prompt) for at, prompt in board.prompts.items()]
            found = (VERSION, board.last_s, list(board.panels.values()), prompts)
        case Part.COSTS if costs.entries:
            found = (VERSION, state.charged_s, costs.entries, costs.last, list(costs.totals.items()))
        case Part.COMPACTION if made is not None:
            found = (VERSION, state.compacted_s, made.covered, made.known, made.digest, made.summary)
        case _:
            return b""
    blob = msgpack.encode(found)
    return blob if len(blob) <= MOST_BYTES else b""


def unpacked(blobs: Mapping[Part, bytes]) -> LiveState:
    """The state in these blobs. A blob that cannot be read is ignored."""
    state = LiveState()
    for part, blob in blobs.items():
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            state = merged(state, _read(part, blob)) if len(blob) <= MOST_BYTES else state
    return state


def _read(part: Part, blob: bytes) -> LiveState:
    match part:
        case Part.BOARD:
            _, last_s, memories, prompts = _BOARDS.decode(blob)
            panels = {memory.id: memory for memory in memories}
            times = {at: (digest, time_s) for at, digest, time_s in prompts}
            return LiveState(Board(panels, times, is_begun=True, last_s=last_s))
        case Part.COSTS:
            _, charged_s, entries, last, totals = _COSTS.decode(blob)
            return LiveState(Board(costs=PanelCosts(tuple(entries), tuple(last), dict(totals))), charged_s=charged_s)
        case Part.COMPACTION:
            _, compacted_s, covered, known, digest, summary = _COMPACTIONS.decode(blob)
            return LiveState(compaction=Compaction(covered, known, digest, summary), compacted_s=compacted_s)

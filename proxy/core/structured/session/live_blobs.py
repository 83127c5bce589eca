"""What a conversation with live panels remembers, as bytes: so that other processes go on where this one stopped.

There is a blob for each of its parts, because they are written at different times: a process that settles a request
must not write over the panels of the next request, which another process may have assembled in the meantime. A board
and its costs consist of ids, digests, times, indices and counts; of a compaction the summary is a text.

A blob carries a version: one that this program does not know says nothing, and the part is begun anew. Nothing here
trusts what it reads: what does not fit says nothing either.
"""

from collections.abc import Mapping
from enum import StrEnum
from itertools import chain
from math import isfinite
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct, msgpack

from proxy.core.digest import DIGEST_BYTES
from proxy.core.structured.history.compaction import Compaction
from proxy.core.structured.panels.board import MOST_PROMPTS, Board
from proxy.core.structured.panels.costs import PanelCost, PanelCosts
from proxy.core.structured.panels.placing import PanelMemory, Place
from proxy.core.structured.session.live_state import LiveState, merged

VERSION: Final = 1
MOST_BYTES: Final = 1 << 20
"""A larger blob is neither written nor read."""

_MOST_PANELS = 10_000
"""Those of the form, and the frozen parts of a conversation."""
_MOST_INDEX = 1 << 31
_MOST_TIME_S = 253_402_300_799
"""The last second of the year 9999."""
_MOST_USD = 1e12

_Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
_Before = Annotated[bytes, Meta(max_length=DIGEST_BYTES)]
_Id = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]
_Entry = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}:[0-9a-f]{0,32}\Z")]
_Count = Annotated[int, Meta(ge=0, le=_MOST_INDEX)]
_Time = Annotated[float, Meta(ge=0, le=_MOST_TIME_S)]
_Usd = Annotated[float, Meta(ge=0, le=_MOST_USD)]


class _PackedPanel(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``PanelMemory``."""

    id: _Id
    digest: _Digest
    stamp_s: _Time
    place: tuple[_Count, _Before] | None
    rank: _Count
    placed_s: _Time
    seen: _Count
    changes: _Count
    taken: _Count


class _PackedBoard(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``Board`` without its costs."""

    version: int
    last_s: _Time
    panels: Annotated[list[_PackedPanel], Meta(max_length=_MOST_PANELS)]
    prompts: Annotated[list[tuple[_Count, _Digest, _Time]], Meta(max_length=MOST_PROMPTS)]


class _PackedCosts(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``PanelCosts``."""

    version: int
    charged_s: _Time
    entries: Annotated[list[_Entry], Meta(max_length=_MOST_PANELS)]
    last: Annotated[list[tuple[_Id, _Count, bool, _Usd, _Usd]], Meta(max_length=_MOST_PANELS)]
    totals: Annotated[list[tuple[_Id, _Usd]], Meta(max_length=2 * _MOST_PANELS)]


class _PackedCompaction(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``Compaction``."""

    version: int
    compacted_s: _Time
    covered: _Count
    known: _Count
    digest: _Digest
    summary: str


class Part(StrEnum):
    """A part of the state, with a blob of its own."""

    BOARD = "board"
    COSTS = "costs"
    COMPACTION = "compaction"


def packed(state: LiveState, part: Part) -> bytes:
    """The blob of a part; empty where there is nothing to write, or too much."""
    found = _PACKED[part](state)
    blob = msgpack.encode(found) if found is not None else b""
    return blob if len(blob) <= MOST_BYTES else b""


def unpacked(blobs: Mapping[Part, bytes]) -> LiveState:
    """What these blobs know. What cannot be read, says nothing."""
    state = LiveState()
    for part, blob in blobs.items():
        if len(blob) <= MOST_BYTES:
            state = merged(state, _READ[part](blob))
    return state


def _packed_board(state: LiveState) -> _PackedBoard | None:
    board = state.board
    if not board.is_begun:
        return None
    panels = [_packed_panel(id_, memory) for id_, memory in board.panels.items()]
    return _PackedBoard(VERSION, board.last_s, panels, [(at, *prompt) for at, prompt in board.prompts.items()])


def _packed_panel(id_: str, memory: PanelMemory) -> _PackedPanel:
    place = (memory.place.index, memory.place.before) if memory.place is not None else None
    counts = (memory.rank, memory.placed_s, memory.seen, memory.changes, memory.taken)
    return _PackedPanel(id_, memory.digest, memory.stamp_s, place, *counts)


def _packed_costs(state: LiveState) -> _PackedCosts | None:
    costs = state.board.costs
    if not costs.entries:
        return None
    last = [(one.id, one.tokens, one.is_hit, one.cost_usd, one.total_usd) for one in costs.last]
    return _PackedCosts(VERSION, state.charged_s, list(costs.entries), last, list(costs.totals.items()))


def _packed_compaction(state: LiveState) -> _PackedCompaction | None:
    found = state.compaction
    if found is None:
        return None
    return _PackedCompaction(VERSION, state.compacted_s, found.covered, found.known, found.digest, found.summary)


def _board_of(blob: bytes) -> LiveState:
    found = _decoded(_BOARDS, blob)
    if found is None or found.version != VERSION:
        return LiveState()
    stamps = chain.from_iterable((panel.stamp_s, panel.placed_s) for panel in found.panels)
    if not all(map(isfinite, chain((found.last_s,), stamps, (time_s for _, _, time_s in found.prompts)))):
        return LiveState()
    panels = {panel.id: _memory(panel) for panel in found.panels}
    prompts = {at: (digest, time_s) for at, digest, time_s in found.prompts}
    return LiveState(Board(panels, prompts, is_begun=True, last_s=found.last_s))


def _memory(panel: _PackedPanel) -> PanelMemory:
    place = Place(*panel.place) if panel.place is not None else None
    counts = (panel.rank, panel.placed_s, panel.seen, panel.changes, panel.taken)
    return PanelMemory(panel.digest, panel.stamp_s, place, *counts)


def _costs_of(blob: bytes) -> LiveState:
    found = _decoded(_COSTS, blob)
    if found is None or found.version != VERSION:
        return LiveState()
    sums = chain((found.charged_s,), *(one[3:] for one in found.last), (usd for _, usd in found.totals))
    if not all(map(isfinite, sums)):
        return LiveState()
    costs = PanelCosts(tuple(found.entries), tuple(PanelCost(*one) for one in found.last), dict(found.totals))
    return LiveState(Board(costs=costs), charged_s=found.charged_s)


def _compaction_of(blob: bytes) -> LiveState:
    found = _decoded(_COMPACTIONS, blob)
    if found is None or found.version != VERSION or not isfinite(found.compacted_s):
        return LiveState()
    compaction = Compaction(found.covered, found.known, found.digest, found.summary)
    return LiveState(compaction=compaction, compacted_s=found.compacted_s)


P = TypeVar("P")


def _decoded(decoder: msgpack.Decoder[P], blob: bytes) -> P | None:
    try:
        return decoder.decode(blob)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_BOARDS = msgpack.Decoder(_PackedBoard)
_COSTS = msgpack.Decoder(_PackedCosts)
_COMPACTIONS = msgpack.Decoder(_PackedCompaction)
_PACKED = {Part.BOARD: _packed_board, Part.COSTS: _packed_costs, Part.COMPACTION: _packed_compaction}
_READ = {Part.BOARD: _board_of, Part.COSTS: _costs_of, Part.COMPACTION: _compaction_of}

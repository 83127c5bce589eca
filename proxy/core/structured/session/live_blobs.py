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

from proxy.core.structured.history.compaction import Compaction
from proxy.core.structured.panels.board import MOST_PROMPTS, Board
from proxy.core.structured.panels.costs import PanelCost, PanelCosts
from proxy.core.structured.panels.placing import PanelMemory
from proxy.core.structured.panels.stored import Count, Digest, Entry, PanelId, Time, Usd
from proxy.core.structured.session.live_state import LiveState, merged

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
    prompts = [(at, *prompt) for at, prompt in board.prompts.items()]
    return _PackedBoard(VERSION, board.last_s, list(board.panels.values()), prompts)


def _packed_costs(state: LiveState) -> _PackedCosts | None:
    costs = state.board.costs
    if not costs.entries:
        return None
    return _PackedCosts(VERSION, state.charged_s, list(costs.entries), list(costs.last), list(costs.totals.items()))


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
    panels = {panel.id: panel for panel in found.panels}
    prompts = {at: (digest, time_s) for at, digest, time_s in found.prompts}
    return LiveState(Board(panels, prompts, is_begun=True, last_s=found.last_s))


def _costs_of(blob: bytes) -> LiveState:
    found = _decoded(_COSTS, blob)
    if found is None or found.version != VERSION:
        return LiveState()
    costs_usd = chain.from_iterable((one.cost_usd, one.total_usd) for one in found.last)
    sums = chain((found.charged_s,), costs_usd, (usd for _, usd in found.totals))
    if not all(map(isfinite, sums)):
        return LiveState()
    costs = PanelCosts(tuple(found.entries), tuple(found.last), dict(found.totals))
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

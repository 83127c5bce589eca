"""What two processes know of one conversation with live panels comes together."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.history.compaction import Compaction
from proxy.context.panels import PanelMemory, PanelPlace
from proxy.context.panels.board import MOST_PROMPTS, Board, PanelCost, PanelCosts
from proxy.context.session import MOST_BYTES, VERSION, LiveState, StatePart, merged, packed, unpacked
from tests.examples import for_every
from tests.live_states import STATES

OLD, NEW = b"o" * 16, b"n" * 16
PLACE = PanelPlace(4, OLD)


def state(last_s: float, **panels: PanelMemory) -> LiveState:
    return LiveState(Board(panels, {0: (OLD, last_s)}, is_begun=True, last_s=last_s))


@given(STATES, STATES)
def test_the_order_of_the_two_makes_no_difference(one: LiveState, two: LiveState) -> None:
    assert merged(one, two) == merged(two, one)


@given(STATES, STATES)
def test_what_was_brought_together_stays_as_it_is(one: LiveState, two: LiveState) -> None:
    both = merged(one, two)
    assert merged(both, both) == both
    assert merged(both, one) == merged(both, two) == both


@given(STATES)
def test_a_process_that_knows_nothing_learns_everything(one: LiveState) -> None:
    assert merged(LiveState(), one) == one


@given(STATES, STATES)
def test_nothing_is_made_up(one: LiveState, two: LiveState) -> None:
    both = merged(one, two)
    for name, memory in both.board.panels.items():
        assert memory in (one.board.panels.get(name), two.board.panels.get(name))
    assert both.board.prompts in (one.board.prompts, two.board.prompts)
    assert (both.board.costs, both.charged_s) in [(each.board.costs, each.charged_s) for each in (one, two)]
    assert (both.compaction, both.compacted_s) in [(each.compaction, each.compacted_s) for each in (one, two)]


def test_the_later_board_counts_and_what_it_shows_no_longer_is_forgotten() -> None:
    same, gone = PanelMemory("same", OLD, 1.0, PLACE), PanelMemory("gone", NEW, 2.0)
    later = state(5.0, same=same)
    both = merged(state(4.0, same=same, gone=gone), later)
    assert both == later


def test_a_panel_keeps_the_newer_stamp_of_a_request_at_the_same_time() -> None:
    seen, moved = PanelMemory("seen", NEW, 4.0, PLACE), PanelMemory("moved", OLD, 1.0, PLACE, 0, 4.0)
    old = state(5.0, seen=PanelMemory("seen", OLD, 1.0), moved=PanelMemory("moved", OLD, 1.0))
    both = merged(state(4.0, seen=seen, moved=moved), old)
    assert both.board.panels == {"seen": seen, "moved": moved}
    assert both.board.prompts == {0: (OLD, 5.0)}


def test_costs_and_compaction_are_the_newer_ones_whichever_board_is() -> None:
    costs, compaction = PanelCosts(("a:00",)), Compaction(2, 3, OLD, "They met.")
    other = replace(compaction, covered=9, known=9)
    one = LiveState(Board(is_begun=True, last_s=3.0, costs=costs), 4.0, compaction, 8.0)
    two = LiveState(Board(is_begun=True, last_s=5.0, costs=PanelCosts(("b:00",))), 2.0, other, 7.0)
    assert merged(one, two) == LiveState(Board(is_begun=True, last_s=5.0, costs=costs), 4.0, compaction, 8.0)
    assert merged(replace(two, compaction=None, compacted_s=9.0), one).compaction == compaction


# What a conversation with live panels remembers survives as bytes, and no bytes do harm.


D = b"d" * 16
NOTHING = LiveState()
STATE = LiveState(
    Board(
        {"todo": PanelMemory("todo", D, 1.5, PanelPlace(3, D), 1, 1.5, 9, 2), "tree": PanelMemory("tree", D, 1.0)},
        {0: (D, 1.0), 4: (D, 7.0)},
        is_begun=True,
        last_s=8.0,
        costs=PanelCosts(("todo:" + D.hex(),), (PanelCost("todo", 9, True, 0.1, 0.2),), {"old": 0.5, "todo": 0.2}),
    ),
    9.0,
    Compaction(2, 3, D, "They met."),
    10.0,
)


def blobs(state: LiveState) -> dict[StatePart, bytes]:
    return {part: packed(state, part) for part in StatePart}


@given(STATES)
def test_everything_comes_back(state: LiveState) -> None:
    assert unpacked({part: blob for part, blob in blobs(state).items() if blob}) == state


def test_each_part_comes_back_alone() -> None:
    found = {part: unpacked({part: packed(STATE, part)}) for part in StatePart}
    assert found[StatePart.BOARD] == LiveState(replace(STATE.board, costs=PanelCosts()))
    assert found[StatePart.COSTS] == LiveState(Board(costs=STATE.board.costs), 9.0)
    assert found[StatePart.COMPACTION] == LiveState(compaction=STATE.compaction, compacted_s=10.0)


def test_where_there_is_nothing_to_write_there_is_no_blob() -> None:
    assert blobs(NOTHING) == dict.fromkeys(StatePart, b"")


@pytest.mark.parametrize("part", StatePart)
def test_state_of_another_version_says_nothing(part: StatePart) -> None:
    found = msgspec.msgpack.decode(packed(STATE, part))
    assert found[0] == VERSION
    for version in (VERSION - 1, VERSION + 1, -1, str(VERSION), None):
        assert unpacked({part: msgspec.msgpack.encode([version, *found[1:]])}) == NOTHING


@pytest.mark.parametrize("part", StatePart)
@given(st.data())
def test_damaged_blobs_never_raise(part: StatePart, data: st.DataObject) -> None:
    blob = bytearray(packed(STATE, part))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(blob) - 1))
        blob[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not blob:
            break
    assert_sound(unpacked({part: bytes(blob)}))


@given(st.binary(max_size=200), st.sampled_from(StatePart))
def test_any_bytes_never_raise(blob: bytes, part: StatePart) -> None:
    assert_sound(unpacked({part: blob}))


def assert_sound(state: LiveState) -> None:
    """It can be gone on with, and written again."""
    assert unpacked({part: blob for part, blob in blobs(state).items() if blob}) == state
    assert all(0 <= memory.stamp_s < 1e12 and len(memory.digest) == 16 for memory in state.board.panels.values())


PANEL: list[Any] = ["todo", D, 1.0, None, 0, 0.0, 1, 0, 0, 0]
ILL: Mapping[str, tuple[StatePart, list[Any]]] = {
    "no finite time": (StatePart.BOARD, [float("nan"), [], []]),
    "a time without an end": (StatePart.BOARD, [float("inf"), [], []]),
    "a time behind all calendars": (StatePart.BOARD, [1e15, [], []]),
    "a panel without a finite time": (StatePart.BOARD, [1.0, [[*PANEL[:2], float("nan"), *PANEL[3:]]], []]),
    "a prompt without a finite time": (StatePart.BOARD, [1.0, [], [[0, D, float("nan")]]]),
    "an id that no panel has": (StatePart.BOARD, [1.0, [["a b", *PANEL[1:]]], []]),
    "an id with a line break": (StatePart.BOARD, [1.0, [["todo\n", *PANEL[1:]]], []]),
    "a long id": (StatePart.BOARD, [1.0, [["a" * 65, *PANEL[1:]]], []]),
    "a short digest": (StatePart.BOARD, [1.0, [["todo", b"d", *PANEL[2:]]], []]),
    "an index below 0": (StatePart.BOARD, [1.0, [[*PANEL[:3], [-1, D], *PANEL[4:]]], []]),
    "a member too many": (StatePart.BOARD, [1.0, [[*PANEL, 1]], []]),
    "too many prompts": (StatePart.BOARD, [1.0, [], [[n, D, 1.0] for n in range(MOST_PROMPTS + 1)]]),
    "too many panels": (StatePart.BOARD, [1.0, [[f"p{n}", *PANEL[1:]] for n in range(10_001)], []]),
    "a cost below 0": (StatePart.COSTS, [1.0, ["todo:00"], [], [["todo", -1.0]]]),
    "no finite cost": (StatePart.COSTS, [1.0, ["todo:00"], [], [["todo", float("nan")]]]),
    "a count of tokens below 0": (StatePart.COSTS, [1.0, ["todo:00"], [["todo", -1, True, 0.0, 0.0]], []]),
    "an entry without a digest": (StatePart.COSTS, [1.0, ["todo"], [], []]),
    "a compaction without a time": (StatePart.COMPACTION, [float("nan"), 1, 1, D, ""]),
    "a summary that is no text": (StatePart.COMPACTION, [1.0, 1, 1, D, b"\xff"]),
}


@for_every(ILL)
def test_what_does_not_fit_says_nothing(name: str) -> None:
    part, members = ILL[name]
    assert unpacked({part: msgspec.msgpack.encode([VERSION, *members])}) == NOTHING


def test_deep_blobs_say_nothing() -> None:
    for part in StatePart:
        assert unpacked({part: b"\x91" * 100_000}) == NOTHING


def test_a_damaged_part_leaves_the_others() -> None:
    found = unpacked({**blobs(STATE), StatePart.BOARD: b"\0"})
    assert found == LiveState(Board(costs=STATE.board.costs), 9.0, STATE.compaction, 10.0)


def test_what_is_too_large_is_neither_written_nor_read() -> None:
    large = replace(STATE, compaction=Compaction(2, 3, D, "x" * MOST_BYTES))
    assert packed(large, StatePart.COMPACTION) == b""
    assert packed(large, StatePart.BOARD) == packed(STATE, StatePart.BOARD)
    blob = msgspec.msgpack.encode([VERSION, 1.0, 2, 3, D, "x" * MOST_BYTES])
    assert unpacked({StatePart.COMPACTION: blob}) == NOTHING


def test_the_longest_board_has_room() -> None:
    panels = {
        f"history_{n}": PanelMemory(f"history_{n}", D, 1e9, PanelPlace(n, D), n, 1e9, n, n, n) for n in range(1_000)
    }
    board = Board(panels, {n: (D, 1e9) for n in range(MOST_PROMPTS)}, is_begun=True, last_s=1e9)
    assert unpacked({StatePart.BOARD: packed(LiveState(board), StatePart.BOARD)}).board == board


def test_no_part_but_a_compaction_has_a_text() -> None:
    for part in (StatePart.BOARD, StatePart.COSTS):
        assert b"They met." not in packed(STATE, part)

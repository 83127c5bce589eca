"""What two processes know of one conversation with live panels comes together."""

from dataclasses import replace

from hypothesis import given

from proxy.core.structured.history.compaction import Compaction
from proxy.core.structured.panels.board import Board
from proxy.core.structured.panels.costs import PanelCosts
from proxy.core.structured.panels.placing import PanelMemory, Place
from proxy.core.structured.session.live_state import LiveState, merged
from tests.live_states import STATES

OLD, NEW = b"o" * 16, b"n" * 16
PLACE = Place(4, OLD)


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

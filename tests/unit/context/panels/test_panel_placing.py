"""Which panels move, and in which order they stand where they come to."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.context.panels import (
    FRAME_BYTES,
    Panel,
    PanelMemory,
    PanelPlace,
    first_broken,
    put,
    taken_along,
    weight,
)  # fmt: skip

A, B, C = (Panel(name, "file", "", "x" * 100) for name in "ABC")


def memory(rank: int, index: int | None = None, **fields: int) -> PanelMemory:
    return PanelMemory(A.id, A.digest, 1.0, None if index is None else PanelPlace(index), rank, **fields)


def test_the_kind_counts_as_long_as_the_session_has_shown_little() -> None:
    console = Panel("A", "console", "", A.content)
    assert weight(console, memory(0)) < weight(A, memory(0))
    assert weight(console, memory(0, seen=1_000)) > weight(A, memory(0, seen=1_000, changes=100))


def test_a_panel_that_changes_every_time_weighs_next_to_nothing_and_never_less() -> None:
    assert 0 <= weight(A, memory(0, seen=1, changes=5)) < 1


def test_a_new_panel_breaks_nothing_unless_it_is_a_frozen_part_of_the_conversation() -> None:
    old = {"A": memory(0), "C": memory(0, 0)}
    same = {"A": A.digest, "C": C.digest}
    assert first_broken(old, same, [B]) is None
    broken = first_broken(old, same, [Panel("history_1", "conversation_history", "", "x")])
    assert broken is not None
    assert old["A"].position < broken < old["C"].position


@given(st.lists(st.integers(0, 20), unique=True, min_size=1, max_size=8))
def test_what_comes_to_a_place_stands_behind_what_is_there(ranks: list[int]) -> None:
    standing = {f"p{rank}": memory(rank, 3) for rank in ranks}
    found = put({**standing, "A": memory(0), "B": memory(1)}, [A, B], PanelPlace(3), 9.0)
    assert {key: found[key] for key in standing} == standing
    assert sorted([found["A"].rank, found["B"].rank]) == [max(ranks) + 1, max(ranks) + 2]
    assert {found["A"].placed_s, found["B"].placed_s} == {9.0}


def along(moved: str, broken: tuple[float, float], sizes: list[int], **old: PanelMemory) -> list[str]:
    panels = {panel.id: panel for panel in (A, B, C)}
    return taken_along(old, panels, [moved], broken, sizes)


EACH = FRAME_BYTES + 100
ENOUGH = 5 * EACH
"""So many bytes behind a panel, of which a request of this size has added 2 * EACH, so that the others are three times
the panel: one of three panels that change as often as each other is then worth moving."""


def test_a_panel_in_front_of_much_that_is_written_anew_is_taken_along() -> None:
    old = {"A": memory(0), "B": memory(1), "C": memory(0, 4)}
    assert along("C", (4, 0), [0, 0, 0, 0, ENOUGH], **old) == ["B", "A"]
    assert along("C", (4, 0), [0, 0, 0, 0, ENOUGH - 9], **old) == []


def test_what_stands_between_counts_and_the_first_that_is_too_dear_ends_it() -> None:
    old = {"A": memory(0), "B": memory(0, 2), "C": memory(0, 4)}
    assert along("C", (4, 0), [0, 0, 50, 50, 2 * ENOUGH], **old) == ["B", "A"]
    assert along("C", (4, 0), [2_000, 0, 50, 50, 2 * ENOUGH], **old) == ["B"]
    assert along("C", (4, 0), [0, 0, 2_000, 50, 2 * ENOUGH], **old) == []


def test_a_panel_stays_that_hardly_ever_changes_and_one_that_stands_in_front_of_what_always_does() -> None:
    old = {"A": memory(0, 3), "C": memory(0, 4)}
    sizes = [0, 0, 0, 0, 2 * ENOUGH]
    assert along("C", (4, 0), sizes, **old) == ["A"]
    assert along("C", (4, 0), sizes, **old | {"A": memory(0, 3, seen=100)}) == []
    assert along("C", (4, 0), sizes, **old | {"C": memory(0, 4, seen=100, changes=100)}) == []


def test_frozen_parts_and_new_panels_are_never_taken_along() -> None:
    frozen = Panel("history_1", "conversation_history", "", "x")
    panels = {panel.id: panel for panel in (frozen, A, C)}
    old = {"history_1": memory(0), "C": memory(0, 4)}
    assert taken_along(old, panels, ["C"], (4, 0), [0, 0, 0, 0, 90_000]) == []


@given(
    st.lists(st.integers(0, 5_000), min_size=6, max_size=6),
    st.lists(st.integers(0, 6), min_size=4, max_size=4),
    st.lists(st.integers(1, 3_000), min_size=4, max_size=4),
)
def test_what_is_added_to_what_is_written_anew_is_less_than_what_was_written_anew(
    sizes: list[int], places: list[int], lengths: list[int]
) -> None:
    panels = {f"p{n}": Panel(f"p{n}", "file", "", "x" * length) for n, length in enumerate(lengths)}
    old = {f"p{n}": memory(n, place) for n, place in enumerate(places)}
    last = max(old, key=lambda key: old[key].position)
    again = sum(sizes[places[int(last[1:])] :])
    for key in taken_along(old, panels, [last], old[last].position, sizes):
        size = FRAME_BYTES + len(panels[key].content)
        assert size < again
        again += sum(sizes[places[int(key[1:])] : places[int(last[1:])]]) + size
        last = key

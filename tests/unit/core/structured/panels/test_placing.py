"""Which panels move, and in which order they stand where they come to."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.panels.panel import Panel
from proxy.core.structured.panels.placing import PanelMemory, Place, first_broken, put, weight

A, B, C = (Panel(name, "file", "", "x" * 100) for name in "ABC")


def memory(rank: int, index: int | None = None, **fields: int) -> PanelMemory:
    return PanelMemory(A.digest, 1.0, None if index is None else Place(index), rank, **fields)


def test_what_is_large_weighs_more_than_what_is_small() -> None:
    assert weight(Panel("A", "file", "", "x" * 200), memory(0)) == 2 * weight(A, memory(0))


def test_what_has_changed_often_weighs_less_than_what_never_did() -> None:
    assert weight(A, memory(0, seen=10, changes=5)) < weight(A, memory(0, seen=10, changes=1))
    assert weight(A, memory(0, seen=10)) < weight(A, memory(0, seen=20))


def test_the_kind_counts_as_long_as_the_session_has_shown_little() -> None:
    console = Panel("A", "console", "", A.content)
    assert weight(console, memory(0)) < weight(A, memory(0))
    assert weight(console, memory(0, seen=1_000)) > weight(A, memory(0, seen=1_000, changes=100))


def test_a_panel_that_changes_every_time_weighs_next_to_nothing_and_never_less() -> None:
    assert 0 <= weight(A, memory(0, seen=1, changes=5)) < 1


def test_the_first_change_breaks_all_that_stands_behind_it() -> None:
    old = {"A": memory(0), "B": memory(1), "C": memory(0, 4)}
    same = {"A": A.digest, "B": B.digest, "C": C.digest}
    assert first_broken(old, same, ()) is None
    assert first_broken(old, same | {"C": b"other"}, ()) == (4, 0)
    assert first_broken(old, same | {"C": b"other", "B": b"other"}, ()) == (-1, 1)
    assert first_broken(old, {"B": B.digest, "C": C.digest}, ()) == (-1, 0)


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
    found = put({**standing, "A": memory(0), "B": memory(1)}, [A, B], Place(3), 9.0)
    assert {key: found[key] for key in standing} == standing
    assert sorted([found["A"].rank, found["B"].rank]) == [max(ranks) + 1, max(ranks) + 2]
    assert {found["A"].placed_s, found["B"].placed_s} == {9.0}

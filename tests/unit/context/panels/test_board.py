"""What a session remembers of its panels. When and where each panel is shown, the vectors of the inlay hold."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from proxy.context import Conversation
from proxy.context.panels import CacheTerms, Panel, PanelMemory, PanelPlace, Progress
from proxy.context.panels.board import MOST_PROMPTS, Board, PanelCosts, refreshed
from proxy.context.session import LiveState, merged
from tests.panels import message


def progress(talk: str) -> Progress:
    return Progress.of(Conversation.of([message(name) for name in talk.split()]))


def a_panel(content: str = "1", name: str = "A") -> Panel:
    return Panel(name, "own", "", content)


def test_a_board_is_a_value_and_an_unchanged_panel_keeps_its_memory() -> None:
    first = refreshed(Board(), [a_panel()], progress("u0"), 100)
    second = refreshed(first, [a_panel()], progress("u0 a0 u1"), 200)

    assert Board() == Board(panels={}, prompts={}, is_begun=False)
    assert first.panels == {"A": PanelMemory("A", a_panel().digest, 100.0, None, placed_s=100.0)}
    assert second.panels == {"A": PanelMemory("A", a_panel().digest, 100.0, None, placed_s=100.0, seen=2)}
    assert first.is_begun
    assert len(first.prompts) == 1
    assert list(second.prompts) == [0, 2]
    assert second.prompts[0] == first.prompts[0]
    assert second.prompts[2][1] == 200.0


def test_a_place_is_checked_by_the_message_in_front_of_it() -> None:
    talk = progress("u0 a0 u1")
    first = refreshed(Board(), [a_panel()], progress("u0"), 100)
    second = refreshed(first, [a_panel("2")], talk, 200)

    assert second.panels["A"].place == PanelPlace(2, talk.digests[1])


def test_a_change_in_the_first_turn_of_a_known_session_has_a_place_at_its_beginning() -> None:
    first = refreshed(Board(), [a_panel()], progress("u0"), 100)
    second = refreshed(first, [a_panel("2")], progress("u0"), 200)
    third = refreshed(second, [a_panel("2")], progress("u5 a0 u1"), 300)

    assert second.panels["A"].place == third.panels["A"].place == PanelPlace(0)


def test_a_place_follows_the_nearest_message_that_is_equal() -> None:
    board = refreshed(refreshed(Board(), [a_panel()], progress("u0"), 1), [a_panel("2")], progress("u0 a0 u1 a0 u2"), 2)
    place = board.panels["A"].place
    assert place.index == 4

    def moved(talk: str) -> int | None:
        found = refreshed(board, [a_panel("2")], progress(talk), 3).panels["A"].place
        return None if found is None else found.index

    assert moved("a0 u1 a0 u2") == 3
    assert moved("u7 a0 u0 a0 u1 a0 u2") == 4  # the message at the old index is equal
    assert moved("a0 u7 u7 u7 a0 u2") == 5
    assert moved("a0 u7 u7 u7 u7 u7 a0") == 1
    assert moved("u0 a0 u1 u2 a0 u3") == 5  # of two that are equally near, the one behind is none: only one is left
    assert moved("u0 u1 a0 u1 a0 u2") == 3  # of two that are equally near, the one in front
    assert moved("u0 u1") == 1  # its message is gone: it moves to where the conversation stands


def test_a_frozen_part_stands_in_front_even_when_it_changes() -> None:
    first = refreshed(Board(), [], progress("u0"), 100)
    second = refreshed(first, [a_panel(name="history_1"), a_panel()], progress("u0 a0 u1"), 200)
    third = refreshed(second, [a_panel("2", "history_1")], progress("u0 a0 u1"), 300)

    assert second.panels["history_1"].place is None
    assert second.panels["A"].place is not None
    changed = third.panels["history_1"]
    assert (changed.digest, changed.stamp_s, changed.place) == (a_panel("2").digest, 300.0, None)


def test_frozen_parts_keep_their_order_when_one_of_them_changes() -> None:
    def parts(*contents: str) -> list[Panel]:
        return [a_panel(content, f"history_{number}") for number, content in enumerate(contents, 1)]

    def order(board: Board) -> list[str]:
        return sorted(board.panels, key=lambda key: board.panels[key].position)

    first = refreshed(Board(), [*parts("one", "two" * 9, "three" * 99), a_panel()], progress("u0"), 100)
    second = refreshed(first, [*parts("eins", "two" * 9, "three" * 99), a_panel()], progress("u0 a0 u1"), 200)
    third = refreshed(second, [*parts("eins", "two" * 9, "drei"), a_panel()], progress("u0 a0 u1"), 300)

    assert order(first)[:3] == order(second)[:3] == order(third)[:3] == ["history_1", "history_2", "history_3"]
    assert [second.panels[f"history_{n}"].stamp_s for n in (1, 2, 3)] == [200.0] * 3
    assert [third.panels[f"history_{n}"].stamp_s for n in (1, 2, 3)] == [200.0, 200.0, 300.0]


def test_the_conversation_is_not_remembered_and_what_is_not_sent_is_forgotten() -> None:
    first = refreshed(Board(), [a_panel(name="chat"), a_panel(), a_panel(name="B")], progress("u0"), 100)
    assert set(first.panels) == {"A", "B"}
    assert set(refreshed(first, [a_panel(name="B")], progress("u0"), 200).panels) == {"B"}


def test_a_panel_that_the_board_has_never_seen_stands_in_front_since_an_unknown_time() -> None:
    assert Board().memory(a_panel()) == PanelMemory("A", b"", 0.0, None)


def test_the_times_of_prompts_are_bounded_and_half_of_them_go_at_once() -> None:
    talk = progress(" ".join(f"u{n}" for n in range(MOST_PROMPTS + 1)))
    board = Board(prompts={n: (talk.digests[n], float(n)) for n in range(MOST_PROMPTS)}, is_begun=True)

    board = refreshed(board, [a_panel()], talk, 9e9)

    assert list(board.prompts) == list(range(MOST_PROMPTS // 2 + 1, MOST_PROMPTS + 1))


def test_two_prompts_that_move_to_one_message_are_one() -> None:
    talk = progress("u0 a0 u0 a1 u1")
    board = Board(prompts={0: (talk.digests[0], 1.0), 2: (talk.digests[0], 2.0)}, is_begun=True)

    assert refreshed(board, [], progress("u5 a5 u0"), 3).prompts == {2: (talk.digests[0], 2.0)}
    assert refreshed(board, [], progress("u5 u0 a0"), 3).prompts == {1: (talk.digests[0], 1.0)}


def test_a_question_that_is_asked_anew_at_another_place_gets_the_time_of_now() -> None:
    first = refreshed(Board(), [a_panel()], progress("u0"), 100)
    second = refreshed(first, [a_panel()], progress("u5 a0 u0"), 200)
    again = refreshed(second, [a_panel()], progress("u5 a0 u0"), 300)

    assert {at: time_s for at, (_, time_s) in second.prompts.items()} == {2: 200.0}
    assert again.prompts == second.prompts


def test_times_of_prompts_that_changed_places_ascend() -> None:
    talk = progress("u0 a0 u1 a1 u2")
    board = Board(prompts={at: (talk.digests[at], 1.0 + at) for at in (0, 2, 4)}, is_begun=True)

    def times(names: str) -> dict[int, float]:
        return {at: time_s for at, (_, time_s) in refreshed(board, [], progress(names), 9).prompts.items()}

    assert times("u7 a0 u0 a1 u1 a2 u2 a3") == {2: 1.0, 4: 3.0, 6: 5.0}
    assert times("u2 a0 u1 a1 u0 a3") == {2: 3.0}
    assert times("u1 a0 u0 a1 u2 a3") == {0: 3.0, 4: 5.0}


def test_a_panel_joins_the_tail_where_it_leaves_its_place_anyway_or_where_only_the_newest_turn_is_behind_it() -> None:
    terms, begun = CacheTerms(read=0.1, write=1.25, ends_at_answers=True), "u0 a0 u1 a1 u2"
    often = Panel("A", "console", "", "1" * 40)
    board = refreshed(Board(), [often], progress(begun), 1, CacheTerms(1.0, 1.0))
    assert board.tail == frozenset()

    talk = progress(f"{begun} a2 u3")
    changed = replace(often, content="2" * 40)
    stays, moves = (refreshed(board, [one], talk, 2, terms) for one in (often, changed))
    assert (stays.tail, stays.panels["A"].place) == (frozenset(), None)
    assert (moves.tail, moves.panels["A"].place) == ({"A"}, PanelPlace(6, talk.digests[5]))

    talk = progress(f"{begun} a2 u3 a3 u4")
    often_seen = structs.replace(moves.panels["A"], seen=50, changes=50)
    for tail in (moves.tail, frozenset[str]()):
        follows = refreshed(replace(moves, panels={"A": often_seen}, tail=tail), [changed], talk, 3, terms)
        assert (follows.tail, follows.panels["A"].place) == ({"A"}, PanelPlace(8, talk.digests[7]))


def test_the_size_grows_with_what_is_remembered() -> None:
    board = refreshed(Board(), [a_panel()], progress("u0"), 100)
    assert Board().size_bytes == 0
    costs = PanelCosts(("A:",))
    assert 2 * 300 < board.size_bytes < replace(board, costs=costs).size_bytes


def test_a_panel_is_taken_along_by_one_behind_it_and_keeps_its_time() -> None:
    short, long = progress("u0 a0 u1"), progress("u0 a0 u1 a1 u2")
    long = replace(long, sizes=(40, 40, 9_000, 40, 40))
    first = refreshed(Board(), [a_panel(), a_panel("1", "B")], progress("u0"), 100)
    second = refreshed(first, [a_panel(), a_panel("2", "B")], short, 200)
    third = refreshed(second, [a_panel(), a_panel("3", "B")], long, 300)

    assert (second.panels["A"].place, second.panels["A"].taken) == (None, 0)
    moved = third.panels["A"]
    assert moved.place == third.panels["B"].place is not None
    assert (moved.stamp_s, moved.taken, moved.changes) == (100, 1, 0)


TURNS = ["u0", "u0 a0 u1", "u0 a0 u1 a1 u2", "u0 a0 u1 a1 u2 a2 u3"]


@given(
    st.lists(st.tuples(st.floats(-60.0, 60.0), st.sets(st.sampled_from("ABC"))), min_size=2, max_size=4),
    st.floats(0.0, 60.0),
)
def test_a_worker_whose_clock_is_behind_does_not_lose_a_request(
    requests: list[tuple[float, set[str]]], pause_s: float
) -> None:
    """Another worker has the board of the request before, and takes over the later one."""
    board = Board()
    for number, (off_s, names) in enumerate(requests):
        before, panels = board, [a_panel(str(number), name) for name in sorted(names)]
        board = refreshed(before, panels, progress(TURNS[number]), 1000.0 + pause_s * number + off_s)
        assert merged(LiveState(before), LiveState(board)).board == board
        assert merged(LiveState(board), LiveState(before)).board == board

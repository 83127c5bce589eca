"""The cut stays while the conversation fits, and moves on to the next anchor where it does not."""

from itertools import pairwise

import pytest

from proxy.prompts.window.fitting import Room, Steps, cut_of, steps_of
from proxy.protocol.request.message import Message
from tests.examples import for_every
from tests.growth import assert_linear
from tests.windows import kept, said


def talk(turns: int, tokens: int = 10) -> list[Message]:
    return [said(role, tokens // 2) for _ in range(turns) for role in ("user", "assistant")]


def test_nothing_is_left_out_while_everything_fits() -> None:
    assert cut_of(steps_of(talk(10)), Room(100)) == 0


def test_a_cut_leaves_out_as_many_tokens_as_a_multiple_of_about_a_quarter_of_the_room() -> None:
    # The anchors of a room of 100 tokens are 24 tokens apart, and each turn has ten.
    cuts = {turns: cut_of(steps_of(talk(turns)), Room(100)) for turns in (11, 12, 13, 14, 15, 17, 18)}
    assert cuts == {11: 3, 12: 3, 13: 5, 14: 5, 15: 8, 17: 8, 18: 10}


def test_where_the_newest_message_takes_nearly_all_of_the_room_the_anchors_are_closer() -> None:
    cuts = [cut_of(steps_of([*talk(10, 4), said("user", tokens)]), Room(100)) for tokens in (60, 80, 85, 97, 500)]
    assert cuts == [0, 6, 9, 10, 10]


def test_a_cut_that_would_part_a_late_result_from_its_call_is_passed_over() -> None:
    call, late = said("assistant", 5, ("late",)), said("tool", 5, (), ("late",))
    messages = [*talk(2, 20), said("user", 5), call, said("user", 5), late, said("assistant", 5), *talk(8)]
    steps = steps_of([*messages, said("user", 10)])
    # With three steps gone the result would be there and its call would not.
    assert steps.legal[:5] == [0, 1, 2, 2, 4]
    assert [cut_of(steps, Room(room)) for room in (155, 150, 130, 115)] == [0, 2, 2, 4]
    assert all(cut_of(steps, Room(room)) != 3 for room in range(200))


def test_a_limit_of_messages_is_kept_with_half_of_them_to_spare() -> None:
    steps = steps_of([*talk(10), said("user", 10)])
    assert cut_of(steps, Room(1_000, 19)) == 5
    assert cut_of(steps, Room(1_000, 20)) == 0


@pytest.mark.slow
def test_the_cut_moves_seldom_while_a_conversation_grows() -> None:
    cuts = [cut_of(steps_of(talk(turns)), Room(1_000)) for turns in range(1, 400)]
    moved = [number for number, (one, other) in enumerate(pairwise(cuts)) if one != other]
    assert len(moved) == 12
    assert all(later - earlier >= 24 for earlier, later in pairwise(moved))


def test_the_time_is_linear_where_a_late_result_forbids_nearly_every_cut() -> None:
    def make(turns: int) -> list[Message]:
        return [said("assistant", 1, ("late",)), *talk(turns), said("tool", 1, (), ("late",)), said("user", 1)]

    assert_linear(lambda messages: cut_of(steps_of(messages), Room(50)), make, 2_500)


def spoken(notation: str) -> list[Message]:
    """``u`` a user, ``a`` an answer, ``c1`` a call, ``r1`` its result, ``s`` a notice; each has one token."""
    found = []
    for word in notation.split():
        role = {"u": "user", "a": "assistant", "c": "assistant", "r": "tool", "s": "system"}[word[0]]
        found.append(said(role, 1, (word[1:],) if word[0] == "c" else (), (word[1:],) if word[0] == "r" else ()))
    return found


def rests(notation: str) -> list[str]:
    """What is kept after each step."""
    words = notation.split()
    steps = steps_of(spoken(notation))
    return [" ".join(words[i] for i in kept(cut, steps)) for cut in range(len(steps.tokens_before))]


@for_every(
    [
        ("u", ["u"]),
        ("u a u", ["u a u", "u"]),
        ("u a u a", ["u a u a", "u a"]),
        ("u u u", ["u u u", "u u", "u"]),
        ("u c1 r1 a u", ["u c1 r1 a u", "u a u", "u"]),
        ("u c1 r1 c2 r2", ["u c1 r1 c2 r2", "u c2 r2"]),
        ("a a u", ["a a u", "u"]),
        ("c1 r1 c2 r2", ["c1 r1 c2 r2", "c2 r2"]),
        ("u c1 s r1 a u", ["u c1 s r1 a u", "u a u", "u"]),
        ("r9 a u", ["r9 a u", "u"]),
    ]
)
def test_groups_go_one_by_one_and_a_turn_of_a_user_with_its_last_group(talk: str, after: list[str]) -> None:
    assert rests(talk) == after


def test_nothing_at_all_has_no_steps() -> None:
    assert steps_of([]) == Steps([], [0], [0], [0], 0, 0)


def test_a_result_that_comes_later_than_its_call_keeps_both_together() -> None:
    steps = steps_of(spoken("u a u c1 c2 r2 u r1 a u"))
    legal = [cut for cut in range(len(steps.legal)) if steps.legal[cut] == cut]
    assert [rests("u a u c1 c2 r2 u r1 a u")[cut] for cut in legal] == [
        "u a u c1 c2 r2 u r1 a u",
        "u c1 c2 r2 u r1 a u",
        "u",
    ]


def test_the_newest_turn_is_not_counted_among_the_older_messages() -> None:
    steps = steps_of(spoken("u c1 r1 a u c2 r2"))
    assert (steps.tokens, steps.older_messages, steps.tokens_before) == (7, 4, [0, 2, 4])

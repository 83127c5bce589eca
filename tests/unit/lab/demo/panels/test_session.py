"""The turns of a session with panels."""

from itertools import pairwise

import pytest

from proxy.lab.demo.panels import Pace, PanelTurn, turns

PACES = [Pace(30), Pace(45, pause_every=20), Pace(8, has_calls=True)]


def is_in_a_loop(turn: PanelTurn) -> bool:
    return bool(turn.conversation[-1]["role"] != "user")


@pytest.mark.parametrize("pace", PACES, ids=str)
def test_a_conversation_only_grows_and_time_goes_on(pace: Pace) -> None:
    steps = list(turns(pace))
    assert sum(not is_in_a_loop(turn) for turn in steps) == pace.turns
    for one, two in pairwise(steps):
        assert two.at > one.at
        assert two.conversation[: len(one.conversation)] == one.conversation
        assert len(two.conversation) > len(one.conversation)


def changed(one: PanelTurn, two: PanelTurn) -> set[str]:
    return {a.id for a, b in zip(one.panels, two.panels, strict=True) if a != b}


def test_two_panels_change_in_each_turn_and_each_of_the_others_now_and_then() -> None:
    changes = [changed(one, two) for one, two in pairwise(turns(Pace(60)))]
    assert all({"git", "console"} <= each for each in changes)
    assert [number for number, each in enumerate(changes, 2) if any(name.startswith("file") for name in each)] == [
        8, 16, 24, 32, 40, 48, 56,
    ]  # fmt: skip
    assert {name: sum(name in each for each in changes) for name in ("todo", "tree", "memory")} == {
        "todo": 12,
        "tree": 2,
        "memory": 2,
    }


def test_only_the_pauses_that_are_asked_for_are_longer_than_an_entry_lives() -> None:
    def pauses(pace: Pace) -> list[int]:
        steps = list(turns(pace))
        return [number for number, (one, two) in enumerate(pairwise(steps), 1) if two.at - one.at > 300]

    assert pauses(Pace(45)) == []
    assert pauses(Pace(45, pause_every=20)) == [20, 40]


def test_calls_are_answered_before_the_next_request_and_panels_change_between_them() -> None:
    steps = list(turns(Pace(8, has_calls=True)))
    loops = [turn for turn in steps if is_in_a_loop(turn)]
    assert all(turn.conversation[-1]["role"] == "tool" for turn in loops)
    assert any(changed(one, two) for one, two in pairwise(steps) if is_in_a_loop(two))
    assert any(not changed(one, two) for one, two in pairwise(steps) if is_in_a_loop(two))

"""What an upstream wants of an inlay is added to it, is constant, and changes no panel."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import Conversation, Turn
from proxy.context.panels import FOOTER, MOST_ID_CHARS, Panel, Progress, call_id, panel_pair, with_plain_ids
from proxy.context.panels.board import Board, Inlay, UpstreamNeeds, fitted, inlay_of, refreshed
from tests.panels import START_S, TEXTS, message, unchanged, wire

A, B = Panel("A", "own", "a", "1"), Panel("B", "own", "b", "1")
ALL = UpstreamNeeds(begins_with_user=True, answers_results=True, plain_ids=True)


def turns_of(*names: str) -> tuple[Turn, ...]:
    conversation = Conversation.of([message(name) for name in names])
    return conversation.turns


def inlaid(*names: str, is_chronological: bool = True, repeat: str = "") -> tuple[Inlay, tuple[Turn, ...]]:
    """The inlay of the last request of a session in which B changes with each message, and A never."""
    board = Board()
    for index in range(1, len(names) + 1):
        progress = Progress.of(Conversation.of([message(name) for name in names[:index]]))
        board = refreshed(board, [A, replace(B, content=str(index))], progress, START_S + 30 * index)
    turns = turns_of(*names)
    panels = [A, replace(B, content=str(len(names)))]
    return inlay_of(panels, board, *unchanged(turns), TEXTS, repeat, is_chronological=is_chronological), turns


def said(inlay: Inlay, turns: Sequence[Turn]) -> list[str]:
    """Each message by its role, what is added in capitals."""
    bodies = [json.loads(raw) for raw in wire(inlay, unchanged(turns))]
    return [body["role"].upper() if body["content"] == TEXTS.ok else body["role"] for body in bodies]


def test_where_nothing_is_wanted_the_inlay_is_the_same() -> None:
    inlay, turns = inlaid("u0", "a0", "u1")
    assert fitted(inlay, turns, UpstreamNeeds(), "ok") is inlay


def test_a_user_speaks_first_in_front_of_panels() -> None:
    inlay, turns = inlaid("u0", is_chronological=False)
    assert said(fitted(inlay, turns, UpstreamNeeds(begins_with_user=True), "ok"), turns)[:2] == ["USER", "assistant"]
    assert said(fitted(Inlay(), turns, UpstreamNeeds(begins_with_user=True), "ok"), turns) == ["user"]


@pytest.mark.parametrize(
    ("names", "end"),
    [
        (("u0",), ["tool", "ASSISTANT", "user", "user"]),
        (("u0", "a0", "u1"), ["tool", "ASSISTANT", "user", "user"]),
        (("u0", "c0", "r0"), ["assistant", "tool"]),
        (("u0", "c0", "r0", "a0"), ["assistant"]),
    ],
)
def test_the_assistant_answers_a_panel_where_the_user_speaks_next(names: tuple[str, ...], end: list[str]) -> None:
    inlay, turns = inlaid(*names)
    assert said(fitted(inlay, turns, UpstreamNeeds(answers_results=True), "ok"), turns)[-len(end) :] == end


@pytest.mark.parametrize("is_chronological", [False, True])
def test_the_assistant_answers_panels_in_front_of_the_repeated_system_text(is_chronological: bool) -> None:
    inlay, turns = inlaid("u0", is_chronological=is_chronological, repeat="rules")
    roles = said(fitted(inlay, turns, UpstreamNeeds(answers_results=True), "ok"), turns)
    assert roles[-6:] == ["tool", "ASSISTANT", "user", "assistant", "user", "user"]


talks = st.lists(st.sampled_from([("u", "a"), ("u", "c", "r", "a"), ("u", "c", "r", "c", "r", "a")]), max_size=4)


@given(talks, st.sampled_from([("u",), ("u", "c", "r")]), st.booleans())
def test_no_user_speaks_behind_a_panel_and_all_else_stays(
    talk: list[tuple[str, ...]], end: tuple[str, ...], is_chronological: bool
) -> None:
    names = [f"{letter}{n}" for n, turn in enumerate([*talk, end]) for letter in turn]
    inlay, turns = inlaid(*names, is_chronological=is_chronological)
    sent = unchanged(turns)
    bodies = [json.loads(raw) for raw in wire(fitted(inlay, turns, ALL, "ok"), sent)]
    own = {json.loads(turn.raw).get("tool_call_id") for turn in turns}
    for before, after in zip(bodies, bodies[1:], strict=False):
        if before["role"] == "tool" and before["tool_call_id"] not in own:
            assert after["role"] == "assistant"
    plain = with_plain_ids(wire(inlay, sent, has_talk=False))
    added = [raw for raw in wire(fitted(inlay, turns, ALL, "ok"), sent, has_talk=False) if b'"content":"ok"' not in raw]
    assert added == list(plain)


@given(st.from_regex(r"[A-Za-z0-9_-]{1,56}", fullmatch=True), st.text(max_size=30))
def test_plain_ids_are_nine_letters_and_digits_and_nothing_else_changes(panel_id: str, text: str) -> None:
    text += '"id":"panel_x"'
    pair = panel_pair(panel_id, text, text)
    call, result = (json.loads(raw) for raw in with_plain_ids(pair))
    found = call["tool_calls"][0]["id"]
    assert (len(found), found.isalnum(), found) == (9, True, result["tool_call_id"])
    before = [json.loads(raw) for raw in pair]
    call["tool_calls"][0]["id"] = result["tool_call_id"] = before[1]["tool_call_id"]
    assert [call, result] == before
    assert found != json.loads(with_plain_ids(panel_pair(FOOTER, "", ""))[1])["tool_call_id"]


@given(st.from_regex(r"[A-Za-z0-9_-]{1,56}", fullmatch=True))
def test_ids_of_calls_are_never_longer_than_openai_takes(panel_id: str) -> None:
    found = call_id(panel_id)
    assert len(found) <= MOST_ID_CHARS
    assert (found == f"panel_{panel_id}") is (len(panel_id) <= MOST_ID_CHARS - len("panel_"))
    assert call_id("x" + panel_id) != found

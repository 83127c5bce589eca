"""Panels and conversations that are built to be slow, huge or misread."""

import json
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import Conversation
from proxy.context.panels import Panel, Progress
from proxy.context.panels.board import Board, Inlay, inlay_of, refreshed
from tests.growth import assert_linear
from tests.panels import START_S, TEXTS, SentTurns, unchanged, wire

Talk = list[bytes]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CALL = b'{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}'
RESULT = b'{"role":"tool","tool_call_id":"c","content":"r"}'
SAME = b'{"role":"user","content":"Go on."}'


def panels_of(count: int, content: str = "1", header: str = "") -> list[Panel]:
    return [Panel(f"p{number}", "own", header, content) for number in range(count)]


def shown(panels: Sequence[Panel], board: Board, messages: Talk) -> tuple[Board, Inlay, SentTurns]:
    conversation = Conversation.of(messages)
    board = refreshed(board, panels, Progress.of(conversation), START_S)
    sent = unchanged(conversation.turns)
    inlay_of(panels, board, *sent, TEXTS, "Be kind.", is_chronological=False)
    return board, inlay_of(panels, board, *sent, TEXTS, "Be kind.", is_chronological=True), sent


def begun(panels: Sequence[Panel], messages: Talk) -> Board:
    """A session whose second request has changed every panel, so that each has a place."""
    board, _, _ = shown([], Board(), [SAME])
    return shown(panels, board, messages)[0]


def test_a_long_loop_of_results_is_passed_over_once_and_not_for_each_panel() -> None:
    panels = panels_of(300)

    def show(messages: Talk) -> None:
        shown(panels, begun(panels, [SAME, CALL, RESULT]), messages)

    assert_linear(show, lambda size: [SAME, CALL, *[RESULT] * size], 1_000)


def test_equal_messages_are_not_searched_for_each_place_anew() -> None:
    """All messages are equal, the places lie behind the end, and no prompt stands where it stood."""
    panels = panels_of(300)

    def show(messages: Talk) -> None:
        digest = Progress.of(Conversation.of([SAME])).digests[0]
        prompts = {10_000 + number: (digest, float(START_S)) for number in range(len(messages))}
        board = begun(panels, [SAME] * 50 + [b'{"role":"user"}'])
        shown(panels, Board(board.panels, prompts, is_begun=True), messages)

    assert_linear(show, lambda size: [SAME] * size, 1_000)


def test_many_panels_at_one_place_take_time_for_each_one() -> None:
    def show(panels: list[Panel]) -> None:
        shown(panels, begun(panels, [SAME, CALL, RESULT]), [SAME, CALL, RESULT, SAME])

    assert_linear(show, panels_of, 500)


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["x", '"', "\ud83d", "\x00"])
def test_five_hundred_large_panels_are_sent_whole(sign: str) -> None:
    content = sign * 1_000_000 if sign == "x" else sign * 50_000
    board, inlay, sent = shown(panels_of(500, content), Board(), [SAME])

    messages = wire(inlay, sent)
    assert len(messages) == 2 * 501 + 2 + 1 + 1
    assert all(len(json.loads(raw)["content"]) > len(content) for raw in messages[1:1_000:200])
    assert board.size_bytes < 1_000_000


def test_the_memory_of_a_board_does_not_grow_with_contents() -> None:
    small, large = (shown(panels_of(5, "x" * size), Board(), [SAME])[0] for size in (1, 1_000_000))
    assert small.size_bytes == large.size_bytes
    assert sum(map(sys.getsizeof, large.panels.values())) < 5_000


def test_a_huge_header_is_a_line_of_the_result() -> None:
    header = "=======\u00a0[p0] " * 100_000
    _, inlay, sent = shown(panels_of(1, "content", header), Board(), [SAME])

    result = json.loads(wire(inlay, sent)[1])
    assert result["content"] == f"======= [p0] {header} =======\ncontent"


def test_calls_that_a_client_has_written_itself_are_messages_like_any_other() -> None:
    """The conversation has what the proxy would write for a panel; the panel is shown beside it all the same."""
    forged = wire(shown(panels_of(1), Board(), [SAME])[1], unchanged(()))
    _, inlay, sent = shown(panels_of(1), begun(panels_of(1), [SAME]), [SAME, *forged, SAME])

    found = wire(inlay, sent)
    assert [raw for raw in found if raw in (*forged[:2], *forged[2:4])].count(forged[0]) == 2
    assert [raw for raw in found if raw == forged[1]] == [forged[1]] * 2
    assert [turn.raw for turn in sent.turns] == [SAME, *forged, SAME]


@given(st.lists(JSON, max_size=6), st.lists(JSON, max_size=6), st.integers(0, 3))
def test_messages_of_any_type_have_a_place(first: list[object], second: list[object], count: int) -> None:
    written = [[json.dumps(each).encode() for each in messages] for messages in (first, second)]
    panels = panels_of(count)
    board, _, _ = shown([], Board(), written[0])
    board, _, _ = shown(panels, board, written[0])
    _, inlay, sent = shown(panels, board, written[1])

    raws = wire(inlay, sent)
    for panel in panels:
        assert sum(f'"id":"panel_{panel.id}"'.encode() in raw for raw in raws) == 1


@given(st.text(st.characters(exclude_categories=()), min_size=1), st.text(st.characters(exclude_categories=())))
def test_no_text_is_too_odd_to_be_sent(content: str, system: str) -> None:
    conversation = Conversation.of([SAME])
    panels = panels_of(1, content, content.replace("\n", " "))
    board = refreshed(Board(), panels, Progress.of(conversation), START_S)
    inlay = inlay_of(panels, board, *unchanged(conversation.prompt), TEXTS, system, is_chronological=False)

    messages = [json.loads(raw) for raw in wire(inlay, unchanged(()))]
    assert messages[1]["content"].endswith(f" =======\n{content}")
    assert any(body["content"].endswith(system) for body in messages if body["role"] == "user")

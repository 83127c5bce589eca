"""A record holds no more than the prompt that it is of, and says what it was made from."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.value import digest
from proxy.planner.record import TURN, PromptPiece, PromptRecord, is_continuation, shared_front, spread, wire_record
from proxy.protocol.providers import ANTHROPIC, OPENAI
from proxy.protocol.request.tokens import IMAGE_TOKENS, bytes_over_four
from proxy.protocol.response.usage import Usage

PIECES = st.lists(
    st.builds(
        lambda kind, key, version, tokens, place: PromptPiece(
            key, kind, digest(key.encode(), bytes([version])), tokens, place
        ),
        kind=st.sampled_from(["tool", "system", TURN, "file"]),
        key=st.sampled_from("abcdefgh"),
        version=st.integers(0, 3),
        tokens=st.integers(1, 500),
        place=st.integers(-1, 40),
    ),
    max_size=12,
)


@given(front=PIECES, behind=PIECES, shared=st.integers(0, 12))
def test_a_record_that_takes_over_a_front_is_the_one_that_is_made_anew(
    front: list[PromptPiece], behind: list[PromptPiece], shared: int
) -> None:
    shared = min(shared, len(front))
    before = PromptRecord(at=1.0).holding(front)
    grown = PromptRecord(at=2.0).holding(behind, before, shared)
    assert grown == PromptRecord(at=2.0).holding([*front[:shared], *behind])
    assert grown.pieces() == [*front[:shared], *behind]
    assert grown.is_sound
    assert shared_front(before, grown) >= shared


def test_names_that_are_gone_are_forgotten() -> None:
    """Else a session whose context has new names in each request would hold all of them."""
    record = PromptRecord()
    for turn in range(50):
        pieces = [PromptPiece(f"file:{turn}-{n}", "file", digest(b"%d-%d" % (turn, n)), 5) for n in range(20)]
        record = PromptRecord(at=float(turn)).holding(pieces, record)
        assert len(record.names) == 20


def test_many_and_long_names_are_taken() -> None:
    pieces = [PromptPiece(f"{n:06}" + "x" * 1000, "tool", digest(b"%d" % n), 1) for n in range(70_000)]
    record = PromptRecord().holding(pieces)
    assert (len(record.names), record.total, record.is_sound) == (70_000, 70_000, True)
    assert max(len(key) for _, key in record.names) == 200


def marked(ttl: str | None) -> dict[str, Any]:
    mark = {"type": "ephemeral"} | ({"ttl": ttl} if ttl else {})
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "Go. " * 99, "cache_control": mark}]}]}


def test_a_marker_and_its_life_are_told() -> None:
    for ttl, is_long in ((None, False), ("5m", False), ("1h", True)):
        record = wire_record(marked(ttl), bytes_over_four, at=0.0)
        assert (list(record.stops), record.long) == ([record.total], record.total * is_long)
        assert [piece.mark for piece in record.pieces()] == ["1h" if is_long else "5m"]
    assert not wire_record({"messages": [{"role": "user", "content": "Go."}]}, bytes_over_four, at=0.0).stops


def test_markers_in_front_of_a_continued_conversation_stay() -> None:
    first = wire_record(marked("1h"), bytes_over_four, at=0.0)
    then = wire_record(marked("1h"), bytes_over_four, at=9.0).continuing(first)
    assert (then.stops, then.long) == ([first.total, 2 * first.total], 2 * first.total)


def test_what_the_provider_holds_is_told_in_our_tokens() -> None:
    record = PromptRecord().holding([PromptPiece("user", TURN, digest(b"x"), 100)])
    assert record.answered(Usage(200, 1, read=50, write_5m=100), ANTHROPIC).stored == 75
    for usage, profile in ((None, ANTHROPIC), (Usage(0, 1), ANTHROPIC), (Usage(200, 1, read=50), OPENAI)):
        assert record.answered(usage, profile).stored == -1


@given(st.integers(0, 500), st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_the_tokens_of_a_text_go_to_its_parts_by_their_lengths(tokens: int, lengths: list[int]) -> None:
    """Up to the end of each part, the tokens are the same share as the letters, rounded down."""
    shares = spread(tokens, lengths)
    total = max(1, sum(lengths))
    for count in range(len(lengths) + 1):
        assert sum(shares[:count]) == tokens * sum(lengths[:count]) // total


def test_an_item_without_a_role_belongs_to_the_speaker_of_its_type() -> None:
    """As items of the Responses API, and as parts of a message. A part of another type belongs to its message."""
    spoken = {
        "assistant": ("function_call", "custom_tool_call", "reasoning", "tool_use"),
        "tool": ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_result"),
        "user": ("input_image", "item_reference"),
    }
    expected = [(TURN, speaker) for speaker, types in spoken.items() for _ in types]
    items = [{"type": one, "id": one} for types in spoken.values() for one in types]
    for body in ({"input": items}, {"messages": [{"role": "user", "content": items}]}):
        assert list(wire_record(body, bytes_over_four, at=0.0).named()) == expected


def test_the_conversation_is_kept_by_the_provider_where_a_request_names_what_it_continues() -> None:
    bodies = ({"previous_response_id": "r1"}, {"thread": {"type": "continue"}}, {"thread": {"type": "new"}}, {})
    assert [is_continuation(body) for body in bodies] == [True, True, False, False]


def test_a_tool_is_named_by_its_function_or_its_type() -> None:
    tools = [{"function": {"name": "a"}}, {"name": "b"}, {"type": "web_search"}, {}, "odd"]
    record = wire_record({"tools": tools, "messages": []}, bytes_over_four, at=0.0)
    assert [key for _, key in record.named()] == ["a", "b", "web_search", "tool", "tool"]


@pytest.mark.parametrize(
    "shown",
    [
        lambda data: {"type": "image_url", "image_url": {"url": data}},
        lambda data: {"type": "input_image", "image_url": data},
        lambda data: {
            "type": "tool_result",
            "content": [{"type": "image", "source": {"type": "base64", "data": data}}],
        },
    ],
)
def test_the_data_of_an_image_has_no_tokens_and_is_compared(shown: Callable[[str], dict[str, Any]]) -> None:
    small, large = (
        wire_record({"messages": [{"role": "user", "content": [shown("A" * size)]}]}, bytes_over_four, at=0.0)
        for size in (10, 1_000_000)
    )
    assert IMAGE_TOKENS <= small.total == large.total < IMAGE_TOKENS + 40
    assert small.digests != large.digests

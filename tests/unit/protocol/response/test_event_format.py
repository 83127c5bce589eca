"""Server-sent events, however they are cut."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.protocol.response.event_format import MAX_EVENT_BYTES, EventCutter, EventPart

TEXT = st.lists(st.sampled_from([b"data: x", b"\n", b"\r\n", b"\r", b"a", b": c"]), max_size=20).map(b"".join)


def cut(parts: list[bytes]) -> list[tuple[bytes, EventPart]]:
    cutter = EventCutter()
    found = [event for part in parts for event in cutter.feed(part)]
    return found + cutter.close()


def whole_events(parts: list[tuple[bytes, EventPart]]) -> list[bytes]:
    return [part for part, kind in parts if kind is EventPart.EVENT]


@given(TEXT, st.integers(1, 5))
@example(b"data: x\r\n\r\ndata: x\r\r\ny", 1)
def test_events_are_the_same_however_they_are_cut(text: bytes, size: int) -> None:
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    assert whole_events(cut(parts)) == whole_events(cut([text]))
    assert b"".join(event for event, _ in cut(parts)) == text


@pytest.mark.parametrize("size", [MAX_EVENT_BYTES, 100_000])
def test_a_long_event_is_given_out_in_parts_that_are_not_whole(size: int) -> None:
    text = b"data: 1\n\n" + b"data: " + b"x" * (2 * MAX_EVENT_BYTES) + b"\n\ndata: 2\n\n"
    found = cut([text[at : at + size] for at in range(0, len(text), size)])
    assert b"".join(event for event, _ in found) == text
    assert whole_events(found) == [b"data: 1\n\n", b"data: 2\n\n"]
    assert [kind for _, kind in found].count(EventPart.LAST_PIECE) == 1

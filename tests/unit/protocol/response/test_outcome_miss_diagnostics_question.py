"""The question to a provider for the cause of a miss, and the answer without what only the proxy has asked for."""

from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.response.outcome import QUESTIONS, AnswerWithout
from proxy.protocol.wire.json_body import parse_members

MESSAGES, RESPONSES = QUESTIONS["/messages"], QUESTIONS["/responses"]


@pytest.mark.parametrize(
    ("path", "body", "previous", "added"),
    [
        ("/messages", {}, "", {"diagnostics": {"previous_message_id": None}}),
        ("/messages", {}, "msg_1", {"diagnostics": {"previous_message_id": "msg_1"}}),
        ("/messages", {"diagnostics": None}, "m", {"diagnostics": {"previous_message_id": "m"}}),
        ("/messages", {"diagnostics": {"x": 1}}, "m", {}),
        ("/messages", {"diagnostics": {"previous_message_id": None}}, "m", {}),
        ("/messages", {"diagnostics": {"previous_message_id": "theirs"}}, "m", {}),
        ("/messages", {"diagnostics": 7}, "m", {}),
        ("/responses", {}, "", {}),
        ("/responses", {}, "resp_1", {"prompt_cache_options": {"comparison_response_id": "resp_1"}}),
        (
            "/responses", {"prompt_cache_options": {"mode": "explicit"}}, "r",
            {"prompt_cache_options": {"mode": "explicit", "comparison_response_id": "r"}},
        ),
        ("/responses", {"prompt_cache_options": {"comparison_response_id": "theirs"}}, "r", {}),
    ],
)  # fmt: skip
def test_what_asks(path: str, body: dict[str, object], previous: str, added: dict[str, object]) -> None:
    found = QUESTIONS[path].changes(parse_members(orjson.dumps(body)), previous)
    assert {name: orjson.loads(raw) for name, raw in found.items()} == added


CAUSE = {"cache_miss_reason": {"type": "tools_changed"}}
TEXTS = st.one_of(
    st.text(max_size=30), st.sampled_from(['"diagnostics"', '{"diagnostics": {}}', 'data: {"diagnostics": 1}\n\n'])
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, list[object]]:
    """An answer of Anthropic's as a stream, with the cause in some of its events, and the events without it."""
    line_end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    stream, bare = b"", list[object]()
    for text in draw(st.lists(TEXTS, max_size=6)):
        start = {"type": "message_start", "message": {"id": "msg", "content": [], "x": {"diagnostics": 3}}}
        event = draw(st.sampled_from([start, {"type": "content_block_delta", "delta": {"text": text}}, {"x": text}]))
        bare.append(event)
        if draw(st.booleans()):
            holder = event.get("message")
            event = {**event, "message": {**holder, "diagnostics": CAUSE}} if isinstance(holder, dict) else event
            event = event if isinstance(holder, dict) else {**event, "diagnostics": CAUSE}
        name = draw(st.sampled_from([b"", b"event: x" + line_end]))
        stream += name + b"data: " + orjson.dumps(event) + line_end * 2
    return stream, bare


def fed(answer: AnswerWithout, text: bytes, cuts: Sequence[int]) -> bytes:
    """What comes out where the text is cut at these places."""
    places = sorted({0, *(cut % (len(text) + 1) for cut in cuts)})
    pieces = [text[a:b] for a, b in zip(places, [*places[1:], len(text)], strict=True)]
    return b"".join([*(answer.feed(piece) for piece in pieces[:-1]), answer.end(pieces[-1])])


@given(answers(), st.lists(st.integers(min_value=0), max_size=8))
def test_however_a_stream_is_cut_only_the_cause_is_taken_out(made: tuple[bytes, list[object]], cuts: list[int]) -> None:
    stream, bare = made
    found = fed(AnswerWithout("diagnostics", is_stream=True), stream, cuts)
    data = [line[6:] for line in found.splitlines() if line.startswith(b"data: ")]
    assert [orjson.loads(line) for line in data] == bare
    assert found.count(b"event: x") == stream.count(b"event: x")
    assert fed(AnswerWithout("other", is_stream=True), stream, cuts) == stream


@given(st.dictionaries(st.sampled_from(["id", "content", "diagnostics", "usage"]), TEXTS), st.lists(st.integers(0)))
def test_however_a_body_is_cut_only_the_cause_is_taken_out(body: dict[str, object], cuts: list[int]) -> None:
    found = fed(AnswerWithout("diagnostics", is_stream=False), orjson.dumps(body), cuts)
    assert orjson.loads(found) == {name: value for name, value in body.items() if name != "diagnostics"}


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_is_longer_than_anything_that_is_kept_passes_as_it_came(is_stream: bool) -> None:
    long = b'data: {"diagnostics": "' + b"x" * (9 << 20) + b'"}\n\n'
    answer = AnswerWithout("diagnostics", is_stream=is_stream)
    found = [answer.feed(long[start : start + 65_536]) for start in range(0, len(long), 65_536)]
    assert max(map(len, found)) < 9 << 20, "no more than 8 MiB are kept"
    if is_stream:
        found.append(answer.feed(b'data: {"diagnostics": 1}\n\n'))
        assert found[-1] == b"data: {}\n\n", "the next event is read again"
    assert b"".join([*found, answer.end(b"")]).startswith(long)


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"diagnostics": ', b'{"diagnostics": 1} x', b"\xff"])
def test_what_cannot_be_read_passes_as_it_came(body: bytes) -> None:
    assert AnswerWithout("diagnostics", is_stream=False).end(body) == body
    assert AnswerWithout("diagnostics", is_stream=True).end(b"data: " + body) == b"data: " + body


def test_an_event_passes_with_its_last_byte_however_small_the_pieces_are() -> None:
    answer, out = AnswerWithout("diagnostics", is_stream=True), list[bytes]()
    for byte in b'data: {"diagnostics":1}\r\n\r\n':
        out += [answer.feed(bytes([byte])), answer.feed(b"")]
    assert [piece for piece in out if piece] == [b"data: {}\r\n\r\n"]
    assert answer.end(b"") == b""


def test_an_answer_stands_in_an_event_and_not_in_another_answer() -> None:
    told = {"message": {"diagnostics": 1, "message": {"diagnostics": 2}}}
    found = AnswerWithout("diagnostics", is_stream=False).end(orjson.dumps(told))
    assert orjson.loads(found) == {"message": {"message": {"diagnostics": 2}}}

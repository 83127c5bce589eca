"""Any cut of a stream gives the same stream; no bytes make the fold fail."""

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.protocol.response import StreamFold

DELTAS = st.fixed_dictionaries({}, optional={"content": st.text(max_size=12), "role": st.just("assistant")})
CHOICES = st.lists(
    st.fixed_dictionaries({"delta": DELTAS, "finish_reason": st.sampled_from([None, "stop"])}), max_size=2
)
USAGES = st.none() | st.fixed_dictionaries({"prompt_tokens": st.integers(0, 99), "completion_tokens": st.just(1)})
PAYLOADS = st.fixed_dictionaries({"choices": CHOICES}, optional={"usage": USAGES, "error": st.just({"message": "x"})})
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """One event: a payload in one data line or several, perhaps with other fields, in one style of line ends."""
    end = draw(ENDS)
    data = orjson.dumps(draw(PAYLOADS), option=draw(st.sampled_from([0, orjson.OPT_INDENT_2])))
    lines = [b"data: " + line for line in data.split(b"\n")]
    if draw(st.booleans()):
        lines.insert(0, draw(st.sampled_from([b": a comment", b"event: message", b"id: 1", b"\xef\xbb\xbf"])))
    return end.join(lines) + end + draw(ENDS)


STREAMS = st.lists(events() | st.sampled_from([b"data: [DONE]\n\n", b"\n", b"\r", b": ping\n\n"]), max_size=8).map(
    b"".join
)
NOISE = st.lists(
    st.sampled_from([b"\r", b"\n", b"data:", b" ", b'{"choices":[],"usage":{}}', b'"usage"', b"x", b"\xff", b":"]),
    max_size=40,
).map(b"".join)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    """The stream, cut at the given places."""
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[a:b] for a, b in zip(places, places[1:], strict=False)]


def folded(chunks: list[bytes], *, drop_usage: bool) -> tuple[bytes, object]:
    """All bytes that a fold passes on, and its outcome."""
    fold = StreamFold(drop_usage=drop_usage)
    out = b"".join(map(fold.feed, chunks)) + fold.close()
    return out, fold.outcome()


@given(STREAMS | NOISE, st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
@example(b'data: {"choices":[],"usage":{"total_tokens":1}}\n\r\ndata: x\n\n', [47], True)
@example(b'data: {"choices":[],"usage":{"total_tokens":1}}\r\r\ndata: x\n\n', [48], True)
@example(b'\n\n\ndata: {"choices":[],"usage":{"total_tokens":1}}\n\n', [2], True)
def test_any_cut_gives_the_same_stream(stream: bytes, cuts: list[int], drop_usage: bool) -> None:
    whole = folded([stream], drop_usage=drop_usage)
    assert folded(pieces(stream, cuts), drop_usage=drop_usage) == whole
    assert folded([bytes([byte]) for byte in stream], drop_usage=drop_usage) == whole


@given(STREAMS | NOISE | st.binary(max_size=200), st.lists(st.integers(0, 10_000), max_size=12))
def test_what_is_not_dropped_is_not_changed(stream: bytes, cuts: list[int]) -> None:
    assert folded(pieces(stream, cuts), drop_usage=False)[0] == stream


@given(st.lists(events(), max_size=6))
def test_only_usage_events_are_dropped(stream: list[bytes]) -> None:
    out, _ = folded(stream, drop_usage=True)
    position = 0
    for event in stream:
        is_next = out.startswith(event, position)
        assert is_next or (b'"usage"' in event and b'"prompt_tokens"' in event)
        position += len(event) if is_next else 0
    assert position == len(out)

"""A streamed answer without the calls of our own tool, however it is cut."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.response.panel_calls import MOST_ARGUMENT_CHARS, MOST_CALLS
from proxy.core.response.panel_stream import Opening, PanelStream
from tests.examples import examples, for_every

NAMES = {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m-1"}
DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}


def event(payload: object) -> bytes:
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    return event({**NAMES, "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more})


def call(index: int | None, name: str | None = None, arguments: str | None = None, call_id: str = "") -> dict[str, Any]:
    """A piece of a call."""
    function = {"name": name, "arguments": arguments}
    piece: dict[str, Any] = {"function": {key: text for key, text in function.items() if text is not None}}
    piece |= {"id": call_id, "type": "function"} if call_id else {}
    return {"index": index, **piece} if index is not None else piece


def calls(*pieces: dict[str, Any], **more: Any) -> bytes:
    return chunk({"tool_calls": list(pieces)}, **more)


def ours(index: int | None = 0, arguments: str = '{"id":"P1"}', call_id: str = "a") -> dict[str, Any]:
    return call(index, "dynamic_panel", arguments, call_id)


def theirs(index: int | None = 0, name: str = "grep", arguments: str = "{}", call_id: str = "b") -> dict[str, Any]:
    return call(index, name, arguments, call_id)


def folded(*events: bytes, may_follow: bool = True, opening: Opening | None = None) -> tuple[bytes, PanelStream]:
    stream = PanelStream(may_follow=may_follow, opening=opening)
    out = b"".join([stream.feed(one) for one in events])
    return out + (b"" if stream.is_over else stream.close()), stream


def payloads(out: bytes) -> list[dict[str, Any]]:
    lines = [one.removeprefix(b"data: ") for one in out.split(b"\n\n") if one]
    return [orjson.loads(line) for line in lines if line != b"[DONE]"]


def assembled(out: bytes, choice: int = 0) -> dict[int | None, tuple[str, str]]:
    """Name and arguments by index, as a client puts them together."""
    found: dict[int | None, tuple[str, str]] = {}
    for payload in payloads(out):
        for one in payload["choices"]:
            for piece in one["delta"].get("tool_calls", ()) if one["index"] == choice else ():
                name, arguments = found.get(piece.get("index"), ("", ""))
                function = piece["function"]
                found[piece.get("index")] = (
                    name + function.get("name", ""),
                    arguments + function.get("arguments", ""),
                )
    return found


def calls_in(stream: PanelStream) -> list[tuple[str, Any]]:
    """Ids and arguments of the calls that go back to the model."""
    message: Any = stream.message()
    return [(one["id"], orjson.loads(one["function"]["arguments"])) for one in message["tool_calls"]]


def finishes(out: bytes) -> list[str]:
    return [one["finish_reason"] for payload in payloads(out) for one in payload["choices"] if one["finish_reason"]]


END = (chunk({}, "tool_calls"), event({**NAMES, "choices": [], "usage": USAGE}), DONE)


def test_an_answer_without_our_tool_passes_byte_for_byte_and_at_once() -> None:
    stream = PanelStream(may_follow=True)
    for one in (chunk({"role": "assistant"}), chunk({"content": "x"}), b": ping\n\n", calls(theirs()), *END):
        assert stream.feed(one) == one
    assert (stream.is_over, stream.wanted, stream.taken) == (True, 0, 0)


def test_the_end_of_an_answer_with_our_call_alone_is_kept_back() -> None:
    out, stream = folded(chunk({"content": "x"}), calls(ours()), *END)
    assert out == chunk({"content": "x"})
    assert stream.wanted == 1
    assert calls_in(stream) == [("a", {"id": "P1"})]
    assert stream.end() == chunk({}, "stop") + END[1] + END[2]
    assert stream.end() == b""


def test_words_in_the_event_that_finishes_pass_at_once() -> None:
    out, stream = folded(calls(ours()), chunk({"content": "last"}, "tool_calls", usage=USAGE), DONE)
    assert out == chunk({"content": "last"})
    assert payloads(stream.end()) == payloads(chunk({}, "stop", usage=USAGE))


@pytest.mark.parametrize("name", ["dynamic_panels", "dynamic_pane", "d", ""])
def test_a_name_that_is_only_like_ours_is_the_clients(name: str) -> None:
    events = (calls(call(0, name, "", "b")), calls(call(0, None, "{}")))
    out, stream = folded(*events, *END)
    assert (out, stream.wanted) == (b"".join((*events, *END)), 0)


def test_a_name_that_is_repeated_in_each_piece_is_read_once() -> None:
    _, stream = folded(calls(call(0, "dynamic_panel", "", "a")), calls(call(0, "dynamic_panel", "{}")), *END)
    assert stream.wanted == 1


def test_indices_of_the_clients_calls_are_dense_again() -> None:
    out, stream = folded(calls(ours(0)), calls(theirs(1)), calls(ours(2, call_id="c")), calls(theirs(3, "ls")), *END)
    assert assembled(out) == {0: ("grep", "{}"), 1: ("ls", "{}")}
    assert (finishes(out), stream.wanted, stream.taken) == (["tool_calls"], 0, 2)
    assert out.endswith(END[1] + END[2])


def test_calls_that_come_interleaved_are_told_apart() -> None:
    pieces = [call(0, "dynamic_panel", "", "a"), call(1, "grep", "", "b"), call(0, None, "{}"), call(1, None, "[1]")]
    out, _ = folded(*map(calls, pieces), *END)
    assert assembled(out) == {0: ("grep", "[1]")}
    out, _ = folded(calls(*pieces), *END)
    assert assembled(out) == {0: ("grep", "[1]")}


@pytest.mark.parametrize("index", [0, 1, None])
def test_calls_of_one_index_are_told_apart_by_their_ids(index: int | None) -> None:
    out, stream = folded(calls(ours(index, call_id="a")), calls(theirs(index, call_id="b")), *END)
    assert assembled(out) == {index and 0: ("grep", "{}")}
    assert stream.taken == 1


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_an_answer_that_was_cut_off_keeps_its_reason_and_is_not_continued(finish: str) -> None:
    out, stream = folded(chunk({"content": "x"}), calls(ours()), chunk({}, finish), *END[1:])
    assert stream.wanted == 0
    assert finishes(out) == [finish]
    assert out.endswith(DONE)


def test_where_nothing_may_follow_our_calls_are_taken_out_and_the_answer_stops() -> None:
    out, stream = folded(chunk({"content": "x"}), calls(ours()), *END, may_follow=False)
    assert (finishes(out), stream.wanted, stream.taken) == (["stop"], 0, 1)
    assert out.endswith(END[1] + END[2])


def test_a_second_choice_makes_an_answer_one_that_nothing_follows() -> None:
    out, stream = folded(calls(ours()), chunk({}, "tool_calls"), chunk({"content": "b"}, "stop", index=1), *END[1:])
    assert stream.wanted == 0
    assert finishes(out) == ["stop", "stop"]
    assert out.endswith(DONE)


def test_a_stream_that_ends_without_its_last_event_is_not_continued() -> None:
    out, stream = folded(chunk({"content": "x"}), calls(ours()))
    assert (out, stream.wanted) == (chunk({"content": "x"}), 0)
    _, stream = folded(calls(ours()), DONE)
    assert stream.wanted == 0


def test_an_error_passes_and_nothing_follows() -> None:
    broke = event({"error": {"message": "overloaded"}})
    out, stream = folded(calls(ours()), END[0], broke, DONE)
    assert out == chunk({}, "stop") + broke + DONE
    assert (stream.is_broken, stream.wanted) == (True, 0)


def test_arguments_that_are_too_long_name_no_panel() -> None:
    long = [calls(call(0, None, "x" * 1000)) for _ in range(MOST_ARGUMENT_CHARS // 1000 + 2)]
    out, stream = folded(calls(ours(arguments='{"id":"')), *long, *END)
    assert (out, stream.wanted, calls_in(stream)) == (b"", 1, [("a", {})])


def test_more_calls_than_the_bound_are_not_answered() -> None:
    _, stream = folded(*[calls(ours(index, call_id=f"c{index}")) for index in range(MOST_CALLS + 1)], *END)
    assert stream.wanted == 0


def test_the_message_has_words_thoughts_and_calls() -> None:
    thoughts = [
        chunk({"reasoning_content": "hm ", "thinking_blocks": [{"type": "thinking", "thinking": "h"}]}),
        chunk(
            {"reasoning_content": "so", "thinking_blocks": [{"type": "thinking", "thinking": "m", "signature": "s"}]}
        ),
        chunk({"thinking_blocks": [{"type": "redacted_thinking", "data": "d"}]}),
    ]
    _, stream = folded(*thoughts, chunk({"content": 'a "b" '}), chunk({"content": "\u00e9"}), calls(ours()), *END)
    assert stream.message() == {
        "role": "assistant",
        "content": 'a "b" \u00e9',
        "reasoning_content": "hm so",
        "thinking_blocks": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
        ],
        "tool_calls": [
            {"type": "function", "id": "a", "function": {"name": "dynamic_panel", "arguments": '{"id":"P1"}'}}
        ],
    }


def test_more_words_than_are_kept_make_no_message() -> None:
    words = [chunk({"content": "x" * 10_000})] * 430
    _, stream = folded(*words, calls(ours()), *END)
    assert stream.message() is None


OPENING = Opening({"id": "c-0", "model": "m-0"}, USAGE)


def test_a_continuation_has_the_first_ones_name_no_second_role_and_the_sum_of_the_usage() -> None:
    out, _ = folded(chunk({"role": "assistant", "content": "y"}), chunk({}, "stop"), *END[1:], opening=OPENING)
    found = payloads(out)
    assert {(one["id"], one["model"], one["created"]) for one in found} == {("c-0", "m-0", 7)}
    assert found[0]["choices"][0]["delta"] == {"content": "y"}
    assert found[-1]["usage"] == {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}


@pytest.mark.parametrize("key", ["id", "logprobs"])
def test_every_event_of_a_continuation_has_the_first_ones_name(key: str) -> None:
    words = [chunk({"content": f"w{number}"}, **({key: None} if key != "id" else {})) for number in range(3)]
    behind = [event({"choices": [{"index": 0, "delta": {"content": "z"}}], **NAMES})] * 2
    plain, _ = folded(*words, *behind, chunk({}, "stop"), DONE, opening=OPENING)
    found = payloads(plain)
    assert {(one["id"], one["model"]) for one in found} == {("c-0", "m-0")}
    assert [c["delta"].get("content") for one in found for c in one["choices"]] == ["w0", "w1", "w2", "z", "z", None]


def test_a_continuation_that_reports_nothing_ends_with_the_usage_up_to_now() -> None:
    out, stream = folded(chunk({"content": "y"}), chunk({}, "stop"), DONE, opening=OPENING)
    assert payloads(out)[-1] == {"id": "c-0", "model": "m-0", "choices": [], "usage": USAGE}
    assert out.endswith(DONE)
    assert stream.opening().usage == USAGE


def test_an_error_in_a_continuation_without_words_is_not_shown() -> None:
    broke = event({"error": {"message": "overloaded"}})
    out, stream = folded(chunk({"role": "assistant"}), broke, DONE, opening=OPENING)
    assert (out, stream.is_broken, stream.has_content) == (b"", True, False)
    out, stream = folded(chunk({"content": "y"}), broke, opening=OPENING)
    assert (out.endswith(broke), stream.has_content) == (True, True)


PIECES = st.sampled_from(
    [
        chunk({"role": "assistant", "content": ""}), chunk({"content": "w\u00f6rd"}), b": ping\r\n\r\n",
        calls(ours(0)), calls(ours(1, call_id="c")), calls(call(1, None, "{}")),
        calls(theirs(3)), calls(call(3, None, "1")), calls(ours(0), theirs(5, call_id="q")),
        chunk({}, "tool_calls"), chunk({"content": "x"}, "stop", usage=USAGE), chunk({"content": "n"}, index=1),
        event({**NAMES, "choices": [], "usage": USAGE}), event({"error": {"message": "no"}}), b"\n\n", b"data: x\n\n",
        event({**NAMES, "choices": [], "usage": USAGE}).replace(b"\n", b"\r\n"),
    ]
)  # fmt: skip


@settings(max_examples=examples(300))
@given(
    st.lists(PIECES, max_size=14),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
)
def test_the_same_bytes_come_out_however_the_stream_is_cut(
    pieces: list[bytes], ends: bool, may_follow: bool, is_further: bool, sizes: list[int]
) -> None:
    data = b"".join(pieces) + (DONE if ends else b"")
    opening = OPENING if is_further else None

    def end_of(parts: list[bytes]) -> tuple[object, ...]:
        stream = PanelStream(may_follow=may_follow, opening=opening)
        out = b""
        for part in parts:
            out += stream.feed(part)
        out += stream.close() if not stream.is_over else b""
        message = stream.message() if stream.wanted else None
        return out, stream.wanted, stream.end(), message, stream.opening(), stream.taken

    parts, position, turn = [], 0, 0
    while position < len(data):
        parts.append(data[position : position + sizes[turn % len(sizes)]])
        position, turn = position + sizes[turn % len(sizes)], turn + 1
    whole = end_of([data])
    assert end_of(parts) == whole
    assert b"dynamic_panel" not in whole[0] + whole[2]  # type: ignore[operator]


@for_every(
    [
        b"data: [1]\n\n",
        b'data: {"choices":[1]}\n\n',
        b'data: {"choices":{}}\n\n',
        chunk({"tool_calls": "x"}),
        chunk({"tool_calls": [1]}),
        calls({"function": 3}),
        event({"choices": [{"index": "x", "delta": [], "finish_reason": 4}]}),
        event({**NAMES, "choices": [{"delta": None, "finish_reason": "stop"}]}),
    ]
)
def test_what_is_no_chunk_passes(junk: bytes) -> None:
    out, stream = folded(junk, DONE)
    assert payloads(out) == payloads(junk)
    assert stream.wanted == 0


CALL = st.tuples(
    st.sampled_from(["dynamic_panel", "grep", "dynamic", "dynamic_panels", "d", "l\u00e4s"]),
    st.lists(st.sampled_from(['{"id":"P1"', "}", "", '{"a":"\\"x\\u00e9"}', "[1,"]), max_size=3),
)


def pieces_of(index: int | None, number: int, spec: tuple[str, list[str]]) -> list[dict[str, Any]]:
    """A call in pieces: its name comes first, its arguments behind it."""
    name, arguments = spec
    return [call(index, name, "", f"id{number}"), *(call(index, None, text) for text in arguments)]


def in_turn(draw: st.DataObject, sequences: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The pieces of all calls. Each call begins behind the one in front of it; apart from that they are mixed."""
    waiting, begun, found = [list(one) for one in sequences], 0, list[dict[str, Any]]()
    while any(waiting):
        free = [at for at, one in enumerate(waiting) if one and at <= begun]
        at = draw.draw(st.sampled_from(free))
        begun = max(begun, at + 1)
        found.append(waiting[at].pop(0))
    return found


def as_put_together(out: bytes) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each call, as a client puts them together: another id is another call."""
    found: list[list[str]] = []
    latest: dict[int | None, list[str]] = {}
    for payload in payloads(out):
        for piece in (piece for one in payload["choices"] for piece in one["delta"].get("tool_calls", ())):
            index, call_id = piece.get("index"), piece.get("id")
            if index not in latest or (call_id and call_id != latest[index][0]):
                latest[index] = [call_id, "", ""]
                found.append(latest[index])
            latest[index][1] += piece["function"].get("name", "")
            latest[index][2] += piece["function"].get("arguments", "")
    return [(one[0], one[1], one[2]) for one in found]


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data(), st.lists(CALL, min_size=1, max_size=5), st.sampled_from(["dense", "zero", "none"]))
def test_a_client_puts_together_its_own_calls_and_nothing_else(
    data: st.DataObject, specs: list[tuple[str, list[str]]], indices: str
) -> None:
    index_of = {"dense": lambda number: number, "zero": lambda _: 0, "none": lambda _: None}[indices]
    sequences = [pieces_of(index_of(number), number, spec) for number, spec in enumerate(specs)]
    flat = in_turn(data, sequences) if indices == "dense" else [piece for one in sequences for piece in one]
    events, at = [chunk({"role": "assistant", "content": "w"})], 0
    while at < len(flat):
        size = data.draw(st.integers(1, 3))
        events.append(calls(*flat[at : at + size]))
        at += size
    out, stream = folded(*events, *END)
    told = [(f"id{number}", name, "".join(arguments)) for number, (name, arguments) in enumerate(specs)]
    own = [one for one in told if one[1] != "dynamic_panel"]
    wanted = stream.wanted
    assert as_put_together(out + stream.end()) == own
    if indices == "dense":
        assert list(assembled(out)) == list(range(len(own)))
    assert stream.taken == len(told) - len(own)
    if not own:
        assert [one[0] for one in calls_in(stream)] == [one[0] for one in told]
        assert wanted == len(told)
    else:
        assert (wanted, finishes(out)) == (0, ["tool_calls"])


def test_a_number_that_is_too_large_for_quick_writers_goes_back_as_it_came() -> None:
    thought = chunk({"thinking_blocks": [{"type": "thinking", "n": 1}]}).replace(b'"n":1', b'"n":' + b"9" * 30)
    out, stream = folded(thought, calls(ours()), chunk({}, "tool_calls"), DONE)
    message: Any = stream.message()
    assert message["thinking_blocks"] == [{"type": "thinking", "n": int("9" * 30), "thinking": ""}]
    assert out == thought


def test_half_a_surrogate_pair_passes_and_goes_back() -> None:
    half = chunk({"content": "x"}, usage=USAGE).replace(b'"x"', b'"\\ud83d"')
    out, stream = folded(half, opening=OPENING)
    assert b'"\\ud83d"' in out
    out, stream = folded(half, calls(ours()), *END)
    message: Any = stream.message()
    assert (half in out, message["content"]) == (True, "\ud83d")


def test_calls_without_end_take_no_memory_without_end() -> None:
    stream = PanelStream(may_follow=False)
    for number in range(5_000):
        assert stream.feed(calls(ours(number, "{" * 100, f"c{number}"))) == b""
    held = stream._calls[0]
    assert (stream.taken, len(held.ours)) == (5_000, MOST_CALLS)
    assert len(held._latest) <= 1024

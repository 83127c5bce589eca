"""An answer without the calls of our own tool: one JSON body, or a stream, however it is cut."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.kit.errors import UpstreamUnavailable
from proxy.protocol.response.panel_answer import (
    MOST_ARGUMENT_CHARS,
    MOST_BYTES,
    MOST_CALLS,
    PanelAnswer,
    PanelBody,
    PanelStream,
)
from tests.examples import examples, for_every

NAMES = {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m-1"}
USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
DONE = b"data: [DONE]\n\n"


def event(payload: object) -> bytes:
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    return event({**NAMES, "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more})


def call(index: int | None, name: str | None = None, arguments: Any = None, call_id: str = "") -> dict[str, Any]:
    """A call, or a piece of one."""
    function = {"name": name, "arguments": arguments}
    piece: dict[str, Any] = {"function": {key: text for key, text in function.items() if text is not None}}
    piece |= {"id": call_id, "type": "function"} if call_id else {}
    return {"index": index, **piece} if index is not None else piece


def calls(*pieces: dict[str, Any], **more: Any) -> bytes:
    return chunk({"tool_calls": list(pieces)}, **more)


def ours(index: int | None = 0, arguments: Any = '{"id":"P1"}', call_id: str = "a") -> dict[str, Any]:
    return call(index, "dynamic_panel", arguments, call_id)


def theirs(index: int | None = 0, name: str = "grep", arguments: str = "{}", call_id: str = "b") -> dict[str, Any]:
    return call(index, name, arguments, call_id)


LAST = event({**NAMES, "choices": [], "usage": USAGE})
END = (chunk({}, "tool_calls"), LAST, DONE)


def streamed(*parts: bytes, may_follow: bool = True) -> tuple[bytes, bytes, PanelAnswer | None]:
    """What passes of a stream at once, what passes at its end if nothing follows, and what was read."""
    stream = PanelStream()
    out = b"".join([stream.feed(one) for one in parts]) + stream.close()
    found = stream.read(may_follow=may_follow)
    return out, stream.end(found), found


def payloads(out: bytes) -> list[dict[str, Any]]:
    lines = [one.strip().removeprefix(b"data: ") for one in out.replace(b"\r", b"").split(b"\n\n") if b"{" in one]
    return [orjson.loads(line) for line in lines]


def put_together(out: bytes) -> list[tuple[Any, str, str]]:
    """Id, name and arguments of each call, as a client puts them together: another id is another call."""
    found: list[list[Any]] = []
    latest: dict[int | None, list[Any]] = {}
    for piece in (p for one in payloads(out) for c in one["choices"] for p in c["delta"].get("tool_calls", ())):
        index, call_id = piece.get("index"), piece.get("id")
        if index not in latest or (call_id and call_id != latest[index][0]):
            latest[index] = [call_id, "", ""]
            found.append(latest[index])
        latest[index][1] += piece["function"].get("name", "")
        latest[index][2] += piece["function"].get("arguments", "")
    return [(one[0], one[1], one[2]) for one in found]


def finishes(out: bytes) -> list[str]:
    return [c["finish_reason"] for one in payloads(out) for c in one["choices"] if c["finish_reason"]]


def sent_back(found: PanelAnswer | None) -> list[tuple[str, Any]]:
    """Ids and arguments of the calls that go back to the model."""
    message: Any = found.message
    return [(one["id"], orjson.loads(one["function"]["arguments"])) for one in message["tool_calls"]]


def test_a_stream_without_our_tool_passes_byte_for_byte_and_at_once() -> None:
    stream = PanelStream()
    for one in (chunk({"role": "assistant"}), chunk({"content": "x"}), b": ping\n\n", calls(theirs()), *END):
        assert stream.feed(one) == one
    assert (stream.is_over, stream.read(may_follow=True), stream.end(None)) == (True, None, b"")


def test_the_end_of_a_stream_with_our_call_alone_is_kept_back() -> None:
    out, end, found = streamed(chunk({"content": "x"}), calls(ours()), *END)
    assert out == chunk({"content": "x"})
    assert sent_back(found) == [("a", {"id": "P1"})]
    assert payloads(end) == payloads(chunk({}, "stop") + LAST)
    assert end.endswith(DONE)


@pytest.mark.parametrize("name", ["dynamic_panels", "dynamic_pane", "d", ""])
def test_a_name_that_is_only_like_ours_is_the_clients(name: str) -> None:
    events = (calls(call(0, name, "", "b")), calls(call(0, None, "{}")), *END)
    assert streamed(*events) == (b"".join(events), b"", None)


@pytest.mark.parametrize(
    ("pieces", "own"),
    [
        ([ours(0), theirs(1), ours(2, call_id="c"), theirs(3, "ls", call_id="d")], {0: "grep{}", 1: "ls{}"}),
        ([ours(0, ""), theirs(1, "x", ""), call(0, None, "{}"), call(1, None, "[1]")], {0: "x[1]"}),
        ([theirs(0, "x", ""), ours(1), call(0, None, "1"), theirs(2, "ls", call_id="d")], {0: "x1", 1: "ls{}"}),
        ([ours(0, call_id="a"), theirs(0, call_id="b")], {0: "grep{}"}),
        ([ours(None), theirs(None)], {0: "grep{}"}),
        ([call(0, "dynamic_panel", "", "a"), call(0, "dynamic_panel", "{}")], {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_one", [True, False])
def test_a_client_gets_its_own_calls_by_dense_indices(pieces: Any, own: dict[int, str], is_one: bool) -> None:
    out, end, found = streamed(*([calls(*pieces)] if is_one else map(calls, pieces)), *END)
    told: dict[int, str] = {}
    for piece in (p for one in payloads(out + end) for c in one["choices"] for p in c["delta"].get("tool_calls", ())):
        function = piece["function"]
        told[piece["index"]] = told.get(piece["index"], "") + function.get("name", "") + function.get("arguments", "")
    assert told == own
    assert (found.message is None, finishes(out + end)) == (bool(own), ["tool_calls" if own else "stop"])


@for_every(
    [
        (calls(ours()), chunk({}, "length"), DONE),
        (calls(ours()), chunk({}, "tool_calls"), chunk({"content": "b"}, "stop", index=1), DONE),
        (calls(ours()),),
        (calls(ours()), DONE),
        (calls(ours()), END[0], event({"error": {"message": "overloaded"}}), DONE),
        (*[calls(ours(index, call_id=f"c{index}")) for index in range(MOST_CALLS + 1)], *END),
        (*[chunk({"content": "x" * 10_000})] * 430, calls(ours()), *END),
    ]
)
def test_an_answer_that_is_not_whole_or_too_long_is_not_continued(parts: tuple[bytes, ...]) -> None:
    out, end, found = streamed(*parts)
    assert found.message is None
    assert b"dynamic_panel" not in out + end
    last = [one for one in parts if b"[DONE]" in one or b"error" in one]
    assert end.endswith(b"".join(last))


def test_a_stream_without_end_behind_our_call_takes_no_memory_without_end() -> None:
    stream, piece = PanelStream(), calls(call(0, None, "x" * 500_000))
    stream.feed(calls(ours()))
    with pytest.raises(UpstreamUnavailable):
        stream.feed(piece * (MOST_BYTES // len(piece) + 1))


def test_the_message_has_words_thoughts_and_calls() -> None:
    big = chunk({"thinking_blocks": [{"type": "redacted_thinking", "n": 1}]}).replace(b'"n":1', b'"n":' + b"9" * 30)
    half = chunk({"content": "x"}).replace(b'"x"', b'"\\ud83d"')
    thoughts = [
        chunk({"reasoning_content": "hm ", "thinking_blocks": [{"type": "thinking", "thinking": "h"}]}),
        chunk({"reasoning_content": "so", "thinking_blocks": [{"type": "thinking", "thinking": "m", "signature": "s"}]})
    ]  # fmt: skip
    out, _, found = streamed(*thoughts, big, chunk({"content": 'a "b" '}), half, calls(ours()), *END)
    assert found.message == {
        "role": "assistant",
        "content": 'a "b" \ud83d',
        "reasoning_content": "hm so",
        "thinking_blocks": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "n": int("9" * 30)},
        ],
        "tool_calls": [{k: value for k, value in ours().items() if k != "index"}],
    }
    assert out.endswith(half)


PIECES = st.sampled_from(
    [
        chunk({"role": "assistant", "content": ""}), chunk({"content": "w\u00f6rd"}), b": ping\r\n\r\n",
        calls(ours(0)), calls(ours(1, call_id="c")), calls(call(1, None, "{}")),
        calls(theirs(3)), calls(call(3, None, "1")), calls(ours(0), theirs(5, call_id="q")),
        chunk({}, "tool_calls"), chunk({"content": "x"}, "stop", usage=USAGE), chunk({"content": "n"}, index=1),
        LAST, event({"error": {"message": "no"}}), b"\n\n", b"data: x\n\n", LAST.replace(b"\n", b"\r\n"),
        b"data: [1]\n\n", b'data: {"choices":[1]}\n\n', b'data: {"choices":{}}\n\n', chunk({"tool_calls": "x"}),
        chunk({"tool_calls": [1, {"function": 3}]}),
        event({"choices": [{"index": "x", "delta": [], "finish_reason": 4}]}),
    ]
)  # fmt: skip


@settings(max_examples=examples(150))
@given(st.lists(PIECES, max_size=14), st.booleans(), st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_the_same_bytes_come_out_however_the_stream_is_cut(pieces: list[bytes], ends: bool, sizes: list[int]) -> None:
    data = b"".join(pieces) + (DONE if ends else b"")
    parts, position = [], 0
    while position < len(data):
        size = sizes[len(parts) % len(sizes)]
        parts.append(data[position : position + size])
        position += size
    whole = streamed(data)
    assert streamed(*parts) == whole
    out, end, found = whole
    assert b"dynamic_panel" not in out + end
    said = b"".join([c["delta"].get("content", "").encode() for one in payloads(data) for c in _choices(one)])
    passed = b"".join([c["delta"].get("content", "").encode() for one in payloads(out + end) for c in _choices(one)])
    assert sorted(said.decode()) == sorted(passed.decode()), "no word is lost"


def _choices(payload: Any) -> list[Any]:
    listed = payload.get("choices") if isinstance(payload, dict) else None
    choices = listed if isinstance(listed, list) else []
    return [one for one in choices if isinstance(one, dict) and isinstance(one.get("delta"), dict)]


CALL = st.tuples(
    st.sampled_from(["dynamic_panel", "grep", "dynamic", "dynamic_panels", "d", "l\u00e4s"]),
    st.lists(st.sampled_from(['{"id":"P1"', "}", "", '{"a":"\\"x\\u00e9"}', "[1,"]), max_size=3),
)


@settings(max_examples=examples(100))
@given(st.data(), st.lists(CALL, min_size=1, max_size=5), st.sampled_from(["dense", "zero", "none"]))
def test_a_client_puts_together_its_own_calls_and_nothing_else(
    data: st.DataObject, specs: list[tuple[str, list[str]]], indices: str
) -> None:
    index_of = {"dense": lambda number: number, "zero": lambda _: 0, "none": lambda _: None}[indices]
    flat = [
        piece
        for number, (name, arguments) in enumerate(specs)
        for piece in (
            call(index_of(number), name, "", f"id{number}"),
            *(call(index_of(number), None, text) for text in arguments),
        )
    ]
    events, at = [chunk({"role": "assistant", "content": "w"})], 0
    while at < len(flat):
        size = data.draw(st.integers(1, 3))
        events.append(calls(*flat[at : at + size]))
        at += size
    out, end, found = streamed(*events, *END)
    told = [(f"id{number}", name, "".join(arguments)) for number, (name, arguments) in enumerate(specs)]
    own = [one for one in told if one[1] != "dynamic_panel"]
    assert put_together(out + end) == own
    if len(own) == len(told):
        assert (found, out) == (None, b"".join((*events, *END)))
        return
    assert found is not None
    assert finishes(out + end) == ["tool_calls" if own else "stop"]
    assert [one[0] for one in sent_back(found)] == [one[0] for one in told] if not own else found.message is None


def body(*messages: dict[str, Any], finish: Any = "tool_calls", **more: Any) -> bytes:
    choices = [{"index": i, "message": one, "finish_reason": finish} for i, one in enumerate(messages)]
    return orjson.dumps({"choices": choices, "usage": USAGE, **more})


def said(content: Any, *own: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(own)} if own else {}), **more}


def read(raw: bytes, before: PanelAnswer | None = None, *, may_follow: bool = True) -> Any:
    reader = PanelBody()
    assert reader.feed(raw) + reader.close() == b""
    found = reader.read(before, may_follow=may_follow)
    assert found is not None or reader.end(None) == raw
    return found


def first(found: PanelAnswer) -> Any:
    return found.payload["choices"][0]


@for_every(
    [
        (said("x", ours(None)), "tool_calls", said("x"), "stop"),
        (said(None, ours(None), theirs(None)), "tool_calls", said(None, theirs(None)), "tool_calls"),
        (said("x", ours(None)), "length", said("x"), "length"),
        (said("x", ours(None)), [], said("x"), []),
        (said("x", ours(None)), 1, said("x"), 1),
    ]
)
def test_our_calls_are_taken_out_of_a_body(given_: Any, finish: Any, left: Any, ending: Any) -> None:
    found = read(body(given_, finish=finish))
    assert first(found) == {"index": 0, "message": left, "finish_reason": ending}
    assert (found.message is not None, found.taken) == (ending == "stop", 1)
    assert read(body(given_, finish=finish), may_follow=False).message is None


def test_of_several_choices_each_loses_its_own() -> None:
    found = read(body(said("x", ours(None)), said("y", ours(None), theirs(None))))
    assert (found.message, found.taken) == (None, 2)
    assert b"dynamic_panel" not in orjson.dumps(found.payload)


@for_every(
    [
        ("[]", {}),
        ("", {}),
        ('{"id":', {}),
        ('{"id":"' + "x" * MOST_ARGUMENT_CHARS + '"}', {}),
        ({"id": "P2"}, {}),
        (None, {}),
        ('{"id":"P2","why":1}', {"id": "P2", "why": 1}),
    ]
)
def test_whatever_the_arguments_are_the_call_can_be_sent_back(arguments: Any, sent: Any) -> None:
    assert sent_back(read(body(said("x", ours(None, arguments))))) == [("a", sent)]


def test_a_call_without_an_id_gets_one() -> None:
    found = read(body(said("x", ours(None, call_id=""), ours(None, call_id=""))))
    assert [one for one, _ in sent_back(found)] == ["panel_call_0", "panel_call_1"]


def test_the_message_goes_back_with_what_belongs_to_its_calls() -> None:
    signed = {**ours(0), "extra_content": {"google": {"thought_signature": "t"}}}
    found = read(body(said("", signed, refusal=None, annotations=[], reasoning_content="hm")))
    sent = {name: value for name, value in signed.items() if name != "index"}
    assert found.message == {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [sent]}


def test_the_words_of_all_answers_are_joined_and_their_usage_added() -> None:
    one = read(body(said("a ", ours(None), reasoning_content="r1 ")))
    two = read(body(said("b ", ours(None))), one)
    found = read(body(said("c", theirs(None), reasoning_content="r2"), id="last", odd=1), two)
    assert first(found)["message"] == said("a b c", theirs(None), reasoning_content="r1 r2")
    assert (found.payload["id"], found.payload["odd"], found.taken) == ("last", 1, 0)
    three = {"prompt_tokens": 30, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 12}}
    assert found.payload["usage"] == three


def test_a_stream_ends_with_the_body_that_goes_on_with_it() -> None:
    stream = PanelStream()
    passed = b"".join(map(stream.feed, (chunk({"content": "I look. "}), calls(ours()), *END))) + stream.close()
    answer = read(body(said("It fails.", theirs(None)), id="other"), stream.read(may_follow=True))
    end = stream.end(answer)
    assert payloads(passed + end)[1:] == payloads(
        chunk({"content": "It fails.", "tool_calls": [{"index": 0, **theirs(None)}]}, "tool_calls")
        + event({**NAMES, "choices": [], "usage": answer.payload["usage"]})
    )
    assert answer.payload["usage"]["prompt_tokens"] == 20


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        (["I look.", "It fails."], "I look.\n\nIt fails."),
        (["I look.", "", "It fails."], "I look.\n\nIt fails."),
        (["I look. ", "It fails."], "I look. It fails."),
        (["I look.", " It fails."], "I look. It fails."),
        (["", "It fails."], "It fails."),
        (["I look.", ""], "I look."),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_answers_that_continue_each_other_stand_apart(words: list[str], whole: str, *, is_stream: bool) -> None:
    own = [
        said(text, *([ours(None)] if at < len(words) - 1 else []), reasoning_content=text)
        for at, text in enumerate(words)
    ]
    if is_stream:
        stream = PanelStream()
        opening = (chunk({"content": words[0], "reasoning_content": words[0]}), calls(ours()), *END)
        out, found = b"".join(map(stream.feed, opening)) + stream.close(), stream.read(may_follow=True)
    else:
        out, found = b"", read(body(own[0]))
    for message in own[1:]:
        found = read(body(message), found)
    assert found is not None
    told = (
        [one["choices"][0]["delta"] for one in payloads(out + stream.end(found))[:-1]]
        if is_stream
        else [found.payload["choices"][0]["message"]]
    )
    for name in ("content", "reasoning_content"):
        assert "".join(one.get(name) or "" for one in told) == whole


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


def test_contents_that_are_lists_of_parts_are_joined_with_those_that_are_texts() -> None:
    """Mistral's models that reason answer with such lists, and go on with texts in a stream."""
    first_, last = [THOUGHT, {"type": "text", "text": "I look."}], "It fails."
    whole = [*first_, {"type": "text", "text": last}]
    assert first(read(body(said(last)), read(body(said(first_, ours(None))))))["message"]["content"] == whole
    listed = [{"type": "text", "text": last}]
    assert first(read(body(said(first_)), read(body(said(last, ours(None))))))["message"]["content"] == listed + first_

    streamed_ = (chunk({"content": [THOUGHT]}), chunk({"content": "I "}), chunk({"content": "look."}))
    _, _, found = streamed(*streamed_, calls(ours()), *END)
    assert found.message["content"] == first_


def test_odd_members_of_the_answers_that_are_joined_do_no_harm() -> None:
    one = read(body(said("a ", ours(None)), usage=5))
    assert one.payload["usage"] == 5
    assert read(body(said("b")), one).payload["usage"] == USAGE
    stream = PanelStream()
    passed = b"".join(map(stream.feed, (chunk({"role": "assistant"}), calls(ours()), *END)))
    raw = body(said("b")).replace(b'"choices":[', b'"choices":[3,{},{"message":null},')
    end = stream.end(read(raw, stream.read(may_follow=True)))
    assert [c["delta"].get("content") for p in payloads(passed + end) for c in p["choices"]] == [None, "b"]


def test_very_many_choices_with_calls_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = list[int]()

    class Index(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(self)
            return int(self) == other

    def loads(data: bytes) -> object:
        found = orjson.loads(data)
        found["choices"][0]["index"] = Index(found["choices"][0]["index"])
        return found

    monkeypatch.setattr("proxy.protocol.response.panel_answer.loads", loads)
    stream = PanelStream()
    for at in range(100):
        stream.feed(calls(theirs(), index=at))
    assert len(compared) <= 100


def test_of_a_streams_members_only_words_thoughts_and_calls_go_back() -> None:
    pieces = [chunk({"reasoning": text, "channel": "analysis", "annotations": [{"a": 1}]}) for text in ("h", "m")]
    _, _, found = streamed(*pieces, calls(ours()), *END)
    assert found.message is not None
    assert {name: found.message[name] for name in found.message if name != "tool_calls"} == {
        "role": "assistant", "content": None, "reasoning": "hm",
    }  # fmt: skip


def test_lists_of_thoughts_that_no_rule_knows_go_back_whole_and_pass_whole() -> None:
    thoughts = [{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.text", "text": "m", "signature": "s"}]
    pieces = [chunk({"content": "", "reasoning_details": [one]}) for one in thoughts]
    _, _, found = streamed(*pieces, calls(ours()), *END)
    assert found.message["reasoning_details"] == thoughts
    _, end, _ = streamed(calls(ours()), *pieces, *END)
    assert payloads(end)[0]["choices"][0]["delta"]["reasoning_details"] == thoughts


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_client_is_told_the_role_once_also_where_the_first_event_has_our_call(goes_on: bool) -> None:
    first_event = chunk({"role": "assistant", "content": None, "tool_calls": [ours()]})
    for parts in ((first_event, *END), (chunk({"role": "assistant"}), calls(ours()), *END)):
        stream = PanelStream()
        passed = b"".join(map(stream.feed, parts))
        found = stream.read(may_follow=True)
        end = stream.end(read(body(said("It fails.")), found) if goes_on else found)
        deltas = [one["delta"] for told in payloads(passed + end) for one in told["choices"]]
        assert [one["role"] for one in deltas if "role" in one] == ["assistant"]


def test_a_stream_without_our_call_is_not_read_again_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, reads = PanelStream(), list[bytes]()
    stream.feed(chunk({"content": "x"}) + DONE)
    monkeypatch.setattr("proxy.protocol.response.panel_answer.loads", reads.append)
    assert (stream.read(may_follow=True), reads) == (None, [])


@for_every(
    [
        b"", b"[]", b"null", b'{"choices":3}', b'{"choices":[3]}', b"\xff", b'{"choices":[{}]}',
        b'{"choices":[{"message":{"tool_calls":[{"function":{"name":1}}]}}]}', b'{"error":{"message":"x"}}',
        b'{"choices":[{"message":{"tool_calls":"x"}}]}',
    ]
)  # fmt: skip
def test_what_is_no_answer_stays_as_it_is(raw: bytes) -> None:
    assert read(raw.replace(b"{", b'{"x":"dynamic_panel",', 1)) is None
    assert read(body(said("x", theirs(None)))) is None


def test_a_body_that_is_too_long_passes_as_it_comes() -> None:
    reader, part = PanelBody(), b"x" * (MOST_BYTES // 2)
    assert [len(reader.feed(part)) for _ in range(4)] == [0, 0, 3 * len(part), len(part)]
    assert (reader.read(may_follow=True), reader.end(None)) == (None, b"")

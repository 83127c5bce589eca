"""The folds: what passes, what is dropped, and what they remember."""

import orjson
import pytest

from proxy.protocol.response import MAX_BODY_BYTES, MAX_EVENT_BYTES, BodyFold, StreamFold
from proxy.protocol.response.usage import Usage

ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
WORD = {"choices": [{"index": 0, "delta": {"content": "word"}}], "usage": None}
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}
DONE = b"data: [DONE]\n\n"


def event(payload: object, end: bytes = b"\n\n") -> bytes:
    return b"data: " + orjson.dumps(payload) + end


def fold_all(fold: StreamFold | BodyFold, *chunks: bytes) -> bytes:
    return b"".join(map(fold.feed, chunks)) + fold.close()


def used(fold: StreamFold | BodyFold) -> tuple[int, int, int] | None:
    """The prompt, the part of it that was read from the cache, and the output."""
    usage = fold.outcome().usage
    return None if usage is None else (usage.prompt, usage.read, usage.output)


def test_whole_events_pass_at_once_and_the_usage_event_is_dropped() -> None:
    fold = StreamFold(drop_usage=True)
    assert fold.feed(event(ROLE)) == event(ROLE)
    assert not fold.saw_content
    assert fold.feed(event(WORD)) == event(WORD)
    assert fold.saw_content
    assert fold.feed(event(STOP) + event(USAGE) + DONE) == event(STOP)
    assert fold.close() == DONE
    outcome = fold.outcome()
    assert used(fold) == (7, 0, 2)
    assert (outcome.finish_reason, outcome.is_empty, outcome.events) == ("stop", False, 5)


def test_the_end_is_kept_until_it_is_let_go() -> None:
    fold = StreamFold()
    assert fold.feed(event(WORD) + DONE[:8]) == event(WORD)
    assert not fold.keeps_end
    assert fold.feed(DONE[8:] + b": late\n\n") == b""
    assert fold.keeps_end
    assert fold.feed(event(WORD)) == b""
    assert fold.end() == DONE + b": late\n\n" + event(WORD)
    assert not fold.keeps_end
    assert fold.feed(event(WORD) + DONE) == event(WORD) + DONE
    assert (fold.end(), fold.close()) == (b"", b"")


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n"])
def test_every_line_ending_is_an_ending(end: bytes) -> None:
    fold = StreamFold(drop_usage=True)
    chunks = [event(WORD, end), event(USAGE, end), b"data: [DONE]" + end]
    assert fold_all(fold, *chunks) == chunks[0] + chunks[2]


def test_comments_other_fields_and_blank_lines_pass_unchanged() -> None:
    stream = b": OPENROUTER PROCESSING\n\n\n\nevent: ping\nid: 7\nretry: 10\n\n" + event(WORD)
    assert fold_all(StreamFold(drop_usage=True), stream) == stream


def test_data_on_several_lines_is_one_payload() -> None:
    usage = b'data: {"choices": [],\ndata:"usage":\ndata: {"prompt_tokens": 3, "completion_tokens": 1}}\n\n'
    fold = StreamFold(drop_usage=True)
    assert fold_all(fold, event(WORD), usage, DONE) == event(WORD) + DONE
    assert fold.outcome().usage is not None


def test_usage_beside_choices_is_learned_and_passes() -> None:
    both = {**WORD, "usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    fold = StreamFold(drop_usage=True)
    assert fold_all(fold, event(WORD), event(both)) == event(WORD) + event(both)
    assert used(fold) == (5, 0, 1)


def test_a_chunk_without_choices_and_without_usage_passes() -> None:
    azure = {"choices": [], "prompt_filter_results": [{"prompt_index": 0}], "usage": None}
    assert fold_all(StreamFold(drop_usage=True), event(azure), event(WORD)) == event(azure) + event(WORD)


def test_half_an_event_waits_for_its_other_half() -> None:
    fold = StreamFold()
    assert fold.feed(event(WORD) + b'data: {"cho') == event(WORD)
    assert fold.feed(b'ices": []}\n') == b""
    assert fold.feed(b"\n") == b'data: {"choices": []}\n\n'


def test_an_event_without_its_empty_line_counts_at_the_end() -> None:
    fold = StreamFold(drop_usage=True)
    assert fold_all(fold, event(WORD), event(USAGE, b"")) == event(WORD)
    assert fold.outcome().usage is not None
    assert fold_all(StreamFold(), b"data: [DONE]") == b"data: [DONE]"


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"}, {"reasoning_content": "x"}, {"tool_calls": [{"index": 0}]}, {"refusal": "no"},
        {"audio": {"a": 1}},
    ],
)  # fmt: skip
def test_anything_but_a_role_is_content(delta: object) -> None:
    fold = StreamFold()
    fold.feed(event({"choices": [{"delta": delta}]}))
    assert fold.saw_content


@pytest.mark.parametrize("payload", [ROLE, STOP, USAGE, {"choices": [{"delta": None}]}, {"choices": [7]}])
def test_an_empty_stream_is_seen_as_one(payload: object) -> None:
    fold = StreamFold()
    fold_all(fold, event(payload), DONE)
    assert fold.outcome().is_empty


def test_silence_with_a_reason_is_no_empty_stream() -> None:
    fold = StreamFold()
    fold_all(fold, event({"choices": [{"delta": {}, "finish_reason": "content_filter"}]}), DONE)
    assert not fold.outcome().is_empty


@pytest.mark.parametrize(
    "told",
    [
        {"error": {"message": "broke", "code": 502}},
        {"error": "broke"},
        {"type": "error", "error": {"type": "api_error", "message": "broke"}},
        {"type": "error", "code": "server_error", "message": "broke", "param": None},
    ],
)
def test_an_error_event_is_remembered_and_passes(told: dict[str, object]) -> None:
    fold = StreamFold()
    stream = event(WORD) + event(told)
    assert fold_all(fold, stream) == stream
    found = fold.outcome().error
    assert found["message"] == "broke"


@pytest.mark.parametrize(("text", "told", "tokens"), [("word " * 90, 3, 0), ("word " * 90, 0, 90), ("", 0, 0)])
def test_text_counts_where_the_only_usage_is_one_of_the_prompt(text: str, told: int, tokens: int) -> None:
    """As Gemini's first events, behind which a gateway may end the stream in order."""
    usage = {"promptTokenCount": 1000, "totalTokenCount": 1000 + told}
    fold = StreamFold()
    fold_all(fold, event({"candidates": [{"content": {"parts": [{"text": text}]}}], "usageMetadata": usage}))
    assert fold.outcome().usage == Usage(1000, told)
    assert fold.outcome().tokens == pytest.approx(tokens, rel=0.1)


@pytest.mark.parametrize("data", [b'{"message":"broke"}', b'{"code":7,"error":null}', b"[]", b"broke"])
@pytest.mark.parametrize("before", [b"", event(WORD)])
def test_an_event_that_is_named_error_is_one_whatever_its_data_is(before: bytes, data: bytes) -> None:
    fold = StreamFold()
    stream = before + b"event: error\ndata: " + data + b"\n\n"
    assert fold_all(fold, stream) == stream
    assert fold.outcome().error is not None
    assert fold.outcome().saw_content == bool(before)


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_all_text_counts_that_came_whatever_it_stands_in(end: bytes) -> None:
    fold = StreamFold()
    fold_all(fold, orjson.dumps({"choices": [{"message": {"content": "word " * 400}}]}) + end)
    assert fold.outcome().tokens > 360


def test_text_that_speaks_of_usage_is_not_parsed_for_it() -> None:
    fold = StreamFold(drop_usage=True)
    tricky = event({"choices": [{"delta": {"content": '{"choices": [], "usage": {"prompt_tokens": 1}}'}}]})
    assert fold_all(fold, event(WORD), tricky) == event(WORD) + tricky
    assert fold.outcome().usage is None


def test_usage_of_other_dialects() -> None:
    fold = StreamFold()
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 10}}}
    fold_all(fold, event(start), event({"type": "message_delta", "usage": {"output_tokens": 4}}))
    assert used(fold) == (13, 10, 4)


def test_the_first_event_does_not_state_how_long_the_answer_is() -> None:
    """Some servers that speak Anthropic's format state no usage at the end. Their answers are counted here."""
    fold = StreamFold()
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}}
    word = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word " * 50}}
    fold_all(fold, event(start), event(word), event({"type": "message_stop"}))
    outcome = fold.outcome()
    assert (outcome.usage.prompt, outcome.usage.output, outcome.usage.is_whole) == (3, 0, False)
    assert outcome.tokens > 40


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_very_long_event_passes_as_it_comes(pieces: int) -> None:
    long = event({"choices": [], "usage": {"note": "x" * MAX_EVENT_BYTES}})
    step = -(-len(long) // pieces)
    fold = StreamFold(drop_usage=True)
    forwarded = [fold.feed(long[i : i + step]) for i in range(0, len(long), step)]
    assert b"".join(forwarded) == long
    assert fold.feed(event(USAGE) + DONE) + fold.end() == DONE
    assert fold.outcome().events == 3


@pytest.mark.parametrize("step", [1 << 22, 65_537, 4099])
def test_the_usage_of_a_very_long_event_is_read_from_its_outline(step: int) -> None:
    text = 'and "usage": {"prompt_tokens": 77, "completion_tokens": 77} ' * 40_000
    usage = {"input_tokens": 3, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 1}}
    response = {"id": "r", "output": [{"type": "web_search_call", "text": text}], "usage": usage, "status": "completed"}
    long = b"event: response.completed\r\n" + event({"type": "response.completed", "response": response})
    fold = StreamFold()
    passed = b"".join(fold.feed(long[i : i + step]) for i in range(0, len(long), step))
    assert fold.keeps_end, "it ends the stream"
    assert passed + fold.end() == long
    assert (used(fold), fold.outcome().reported.searches) == ((3, 1, 4), 1)


def test_a_long_event_is_not_kept_in_memory() -> None:
    fold = StreamFold()
    fold.feed(b"data: " + b"x" * MAX_EVENT_BYTES)
    assert fold.feed(b"y" * 1000) == b"y" * 1000


def test_a_body_passes_and_is_read_at_its_end() -> None:
    body = orjson.dumps({"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 2, "total_tokens": 3}})
    fold = BodyFold()
    chunks = [b"\n", body[:9], body[9:]]
    assert [*map(fold.feed, chunks), fold.close()] == [*chunks, b""]
    assert (used(fold), fold.outcome().finish_reason) == ((2, 0, 1), "length")


def test_usage_inside_a_choice_is_read_in_bodies_as_in_streams() -> None:
    payload = {"choices": [{"finish_reason": "stop", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}]}
    body, stream = BodyFold(), StreamFold()
    fold_all(body, orjson.dumps(payload))
    fold_all(stream, event(payload), DONE)
    for fold in (body, stream):
        assert (used(fold), fold.outcome().finish_reason) == ((5, 0, 2), "stop")


def test_the_chunk_that_completes_a_body_is_kept_until_it_is_let_go() -> None:
    for fold in (BodyFold(5), BodyFold(5, is_read=False)):
        assert (fold.feed(b"{}  "), fold.feed(b"\n"), fold.close()) == (b"{}  ", b"", b"")
        assert (fold.end(), fold.end()) == (b"\n", b"")


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"usage": 7, "choices": {}}', b'{"usage": null}', b"\xff"])
def test_a_body_without_usage_is_no_error(body: bytes) -> None:
    fold = BodyFold()
    fold.feed(body)
    fold.close()
    assert fold.outcome().usage is None


@pytest.mark.parametrize("count", [1, 20, 800])
def test_a_list_of_answers_is_read_as_the_answers_in_it(count: int) -> None:
    told = {"promptTokenCount": 9, "candidatesTokenCount": count, "cachedContentTokenCount": 4}
    answers = [{"candidates": [{"content": {"parts": [{"text": "word " * 200}]}}]}] * (count - 1)
    body = orjson.dumps([*answers, {"candidates": [], "usageMetadata": told}])
    fold = BodyFold()
    assert fold_all(fold, body) == body
    assert fold.outcome().usage == Usage(9, count, read=4)
    fold = BodyFold()
    fold_all(fold, orjson.dumps(answers))
    assert (fold.outcome().usage, fold.outcome().tokens >= 200 * (count - 1)) == (None, True)


@pytest.mark.parametrize("place", ["in front", "behind"])
def test_a_body_of_many_megabytes_is_passed_and_its_usage_read(place: str) -> None:
    """Whatever its texts quote."""
    fold = BodyFold()
    quoted = orjson.dumps({"content": 'he wrote "usage": {"prompt_tokens": 9999, "total_tokens": 9999} \\ ' * 50_000})
    usage = b'"usage": {"prompt_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}'
    choices = b'"choices": [{"finish_reason": "length", "message": ' + quoted + b"}]"
    members = [usage, choices] if place == "in front" else [choices, usage]
    body = b"{" + b",".join(members) + b"}"
    assert len(body) > 2 * MAX_BODY_BYTES
    assert b"".join(fold.feed(body[i : i + 70_001]) for i in range(0, len(body), 70_001)) == body
    fold.close()
    assert (used(fold), fold.outcome().finish_reason) == ((2, 1, 1), "length")


def test_raw_bytes_pass() -> None:
    fold = BodyFold(is_read=False)
    assert (fold.feed(b"\x00\xff"), fold.close()) == (b"\x00\xff", b"")
    assert fold.outcome().saw_content


@pytest.mark.parametrize("half", [b"\\ud83d", b"\\\\\\udc00", b"\xed\xa0\xbd"])
def test_half_of_a_surrogate_pair_hides_neither_usage_nor_finish(half: bytes) -> None:
    usage = b'"usage":{"prompt_tokens":7,"completion_tokens":2}'
    whole = b'{"choices":[{"finish_reason":"stop","message":{"content":"a%s"}}],%s}' % (half, usage)
    body = BodyFold()
    assert fold_all(body, whole) == whole
    stream = StreamFold()
    event = b'data: {"choices":[{"finish_reason":"stop","delta":{"content":"a%s"}}],%s}\n\n' % (half, usage)
    assert fold_all(stream, event) == event
    for fold in (body, stream):
        assert (used(fold), fold.outcome().finish_reason) == ((7, 0, 2), "stop")


@pytest.mark.parametrize("half", [b"\\ud83d", b"\\\\\\udc00", b"\xed\xa0\xbd"])
def test_half_of_a_surrogate_pair_in_a_body_hides_neither_its_items_nor_its_tools(half: bytes) -> None:
    search, run = b'{"id":"ws_1","type":"web_search_call"}', b'{"id":"ci_1","type":"code_interpreter_call"%b}'
    for container, ids in ((b"", ["ws_1", "ci_1"]), (b',"container_id":"cntr_1"', ["ws_1", "ci_1", "cntr_1"])):
        fold = BodyFold()
        text = b'{"content":[{"text":"a%b"}]}' % half
        fold_all(fold, b'{"id":"resp_1","output":[' + b",".join((search, run % container, text)) + b"]}")
        outcome = fold.outcome()
        assert (outcome.reported.searches, outcome.reported.codes) == (1, 1)
        assert list(outcome.said.ids) == ids


@pytest.mark.parametrize("name", [b"\\ud83d", b"\xff"])
def test_a_member_with_an_odd_name_does_not_hide_the_usage_of_a_body(name: bytes) -> None:
    fold = BodyFold()
    fold_all(fold, b'{"%b":1,"usage":{"prompt_tokens":7,"completion_tokens":2}}' % name)
    assert fold.outcome().usage is not None


@pytest.mark.parametrize("odd", [[], {}, None, 1, "x"])
def test_types_that_are_no_texts_are_none_that_is_known(odd: object) -> None:
    said = {"type": odd, "output": [{"type": odd}], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    body, stream = BodyFold(), StreamFold()
    fold_all(body, orjson.dumps(said))
    fold_all(stream, event(said))
    for fold in (body, stream):
        assert (used(fold), fold.outcome().reported.searches) == ((7, 0, 2), 0)

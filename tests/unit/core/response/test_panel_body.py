"""An answer that is one JSON body, without the calls of our own tool."""

from typing import Any

import orjson
import pytest

from proxy.core.response.panel_body import Earlier, panel_body
from proxy.core.response.panel_calls import MOST_ARGUMENT_CHARS
from tests.examples import for_every


def our_call(arguments: Any = '{"id":"P1"}', call_id: str | None = "a", **more: Any) -> dict[str, Any]:
    named = {"id": call_id} if call_id is not None else {}
    return {**named, "type": "function", "function": {"name": "dynamic_panel", "arguments": arguments}, **more}


THEIRS = {"id": "b", "type": "function", "function": {"name": "grep", "arguments": "{}"}}


def answer(*messages: dict[str, Any], finish: str = "tool_calls", **more: Any) -> bytes:
    choices = [{"index": i, "message": one, "finish_reason": finish} for i, one in enumerate(messages)]
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    return orjson.dumps({"choices": choices, "usage": usage, **more})


def said(content: Any, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}


def read(body: bytes, earlier: Earlier | None = None, *, may_follow: bool = True) -> Any:
    return panel_body(body, earlier, may_follow=may_follow)


def named(found: Any) -> list[tuple[str, Any]]:
    """Ids and arguments of the calls that go back to the model."""
    return [(one["id"], orjson.loads(one["function"]["arguments"])) for one in found.message["tool_calls"]]


def first(body: bytes) -> Any:
    return orjson.loads(body)["choices"][0]


def test_our_call_alone_is_wanted_and_gone() -> None:
    found = read(answer(said("x", our_call())))
    assert named(found) == [("a", {"id": "P1"})]
    assert first(found.body) == {"index": 0, "message": said("x"), "finish_reason": "stop"}
    assert (found.taken, found.earlier.texts["content"]) == (1, "x")


def test_beside_other_calls_it_is_only_gone() -> None:
    found = read(answer(said(None, our_call(), THEIRS)))
    assert found.message is None
    assert first(found.body) == {"index": 0, "message": said(None, THEIRS), "finish_reason": "tool_calls"}


def test_of_several_choices_each_loses_its_own() -> None:
    found = read(answer(said("x", our_call()), said("y", our_call(), THEIRS)))
    assert (found.message, found.taken) == (None, 2)
    assert b"dynamic_panel" not in found.body


@pytest.mark.parametrize("finish", [[], {}, 1, True])
def test_a_finish_that_is_no_text_is_none_of_a_call(finish: Any) -> None:
    found = read(answer(said("x", our_call()), finish=finish))
    assert (found.message, found.taken, first(found.body)["finish_reason"]) == (None, 1, finish)


def test_an_answer_that_was_cut_off_is_not_continued() -> None:
    found = read(answer(said("x", our_call()), finish="length"))
    assert (found.message, first(found.body)["finish_reason"]) == (None, "length")


def test_where_nothing_may_follow_nothing_is_wanted() -> None:
    assert read(answer(said("x", our_call())), may_follow=False).message is None


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
    assert named(read(answer(said("x", our_call(arguments))))) == [("a", sent)]


def test_a_call_without_an_id_gets_one() -> None:
    found = read(answer(said("x", our_call(call_id=None), our_call(call_id=""))))
    assert [one for one, _ in named(found)] == ["panel_call_0", "panel_call_1"]


def test_the_message_goes_back_with_thoughts_and_what_belongs_to_its_calls() -> None:
    thoughts = {"reasoning_content": "hm", "thinking_blocks": [{"type": "thinking", "thinking": "h", "signature": "s"}]}
    signed = our_call(extra_content={"google": {"thought_signature": "t"}}, index=0)
    found = read(answer(said("", signed, refusal=None, annotations=[], **thoughts)))
    assert found.message == {
        "role": "assistant",
        **thoughts,
        "content": None,
        "tool_calls": [our_call(extra_content={"google": {"thought_signature": "t"}})],
    }


def test_the_words_of_all_answers_are_joined_and_their_usage_added() -> None:
    one = read(answer(said('a "half ', our_call(), reasoning_content="r1 ")).replace(b"half", b"\\ud83d"))
    two = read(answer(said("b ", our_call())), one.earlier)
    body = read(answer(said("c", reasoning_content="r2"), finish="stop", id="last", odd=1), two.earlier).body
    assert b'"a \\"\\ud83d b c"' in body
    found = orjson.loads(body.replace(b"\\ud83d", b""))
    assert found["choices"][0]["message"]["reasoning_content"] == "r1 r2"
    assert (found["id"], found["odd"]) == ("last", 1)
    assert found["usage"] == {
        "prompt_tokens": 30,
        "completion_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 12},
    }


def test_words_are_put_in_front_of_the_clients_calls() -> None:
    earlier = read(answer(said("a", our_call()))).earlier
    assert first(read(answer(said(None, THEIRS)), earlier).body)["message"] == said("a", THEIRS)


@for_every(
    [
        b"",
        b"[]",
        b"null",
        b'{"choices":3}',
        b'{"choices":[3]}',
        b"\xff",
        b'{"choices":[{}]}',
        b'{"choices":[{"message":{"tool_calls":[{"function":{"name":1}}]}}]}',
        b'{"error":{"message":"x"}}',
        b'{"choices":[{"message":{"tool_calls":"x"}}]}',
    ]
)
def test_what_is_no_answer_stays_as_it_is(body: bytes) -> None:
    found = read(body.replace(b"{", b'{"x":"dynamic_panel",', 1))
    assert found is None


def test_an_answer_without_our_tool_is_not_even_read() -> None:
    assert read(answer(said("x", THEIRS))) is None
    assert read(b"{}", Earlier({"content": "x"})) is None

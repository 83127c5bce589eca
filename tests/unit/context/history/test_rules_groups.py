"""Where a conversation is cut so that calls are together with their results."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import Conversation
from proxy.context.history import HistoryEntry, Sort, cuts, entry_of, is_known
from tests.contexts import conversation_of
from tests.examples import for_every
from tests.talk import Body, assistant, calling, result, said, system, user


def entries(*messages: Body) -> list[HistoryEntry]:
    return [entry_of(index, turn) for index, turn in enumerate(conversation_of(*messages))]


ODD = said("narrator", "x")


@pytest.mark.parametrize(
    ("messages", "known"),
    [
        ([calling("1"), calling("2"), result("1", "r"), result("1", "r")], True),
        ([calling("1"), system("s"), result("1", "r")], True),
        ([calling("1"), ODD], False),
        ([calling("1"), calling("1")], False),
    ],
)
def test_a_group_is_known_where_each_id_means_one_call_and_all_is_read(messages: list[Body], known: bool) -> None:
    assert is_known(entries(*messages)) is known


# A conversation is cut in front of user messages, and never within a group of calls and results.


def places(*messages: dict[str, Any]) -> tuple[int, ...]:
    return cuts(Conversation.of([orjson.dumps(message) for message in messages]).turns)


OLD_CALL = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
OLD_RESULT = {"role": "function", "name": "f", "content": "done"}
OTHER_RESULT = user([{"type": "tool_result", "tool_use_id": "1", "content": "done"}])

U, A, S = user("u"), assistant("a"), system("s")


def answer(call_id: str) -> dict[str, Any]:
    return result(call_id, "done")


CUTS: list[tuple[str, list[dict[str, Any]], tuple[int, ...]]] = [
    ("nothing", [], ()),
    ("every question", [U, A, U], (0, 2)),
    ("two questions in a row", [U, U], (0, 1)),
    ("answers and system text are no places", [A, U, S, U], (1, 3)),
    ("a loop is one group", [U, calling("1"), answer("1"), calling("2"), answer("2"), U], (0, 5)),
    ("a question between a call and its result", [U, calling("1"), U, answer("1"), U], (0, 4)),
    ("a question between two results", [calling("1", "2"), answer("1"), U, answer("2"), U], (4,)),
    ("a call without results", [U, calling("1"), U], (0, 2)),
    ("a result without a call, behind an answer", [U, A, U, answer("9"), U], (0, 4)),
    ("a result without any call at all", [U, answer("9"), U], (0, 2)),
    ("an id that is used again", [calling("1"), answer("1"), U, calling("1"), answer("1"), U], (2, 5)),
    ("the old form of calls", [U, OLD_CALL, OLD_RESULT, U], (0, 3)),
    ("the old form, parted", [U, OLD_CALL, U, OLD_RESULT, U], (0, 4)),
    ("another dialect's result in a user message", [U, A, OTHER_RESULT, U], (0, 3)),
    ("parts of text", [user([{"type": "text", "text": '{"type":"tool_result"}'}]), U], (0, 1)),
]  # fmt: skip


@for_every(CUTS)
def test_where_a_conversation_may_be_cut(name: str, messages: list[dict[str, Any]], expected: tuple[int, ...]) -> None:
    assert places(*messages) == expected, name


_MESSAGES = st.one_of(
    st.just(user("u")),
    st.just(assistant("a")),
    st.lists(st.sampled_from("123"), min_size=1, max_size=2, unique=True).map(lambda ids: calling(*ids)),
    st.sampled_from("123").map(lambda one: result(one, "r")),
)


@given(st.lists(_MESSAGES, max_size=20))
def test_no_result_stands_behind_a_cut_whose_call_stands_in_front_of_it(messages: list[dict[str, Any]]) -> None:
    for cut in places(*messages):
        assert messages[cut]["role"] == "user"
        callers: dict[str, int] = {}
        for index, message in enumerate(messages):
            callers.update({call["id"]: index for call in message.get("tool_calls", ())})
            if message["role"] == "tool" and message["tool_call_id"] in callers:
                assert (callers[message["tool_call_id"]] < cut) == (index < cut)


# What a message is to the rules of the history, and which messages are not trusted.


CALL = b'{"id":"1","type":"function","function":{"name":"run","arguments":"{}"}}'


def shaped(raw: bytes) -> HistoryEntry:
    [turn] = Conversation.of([raw])
    return entry_of(0, turn)


@for_every(
    [
        b"5",
        b"null",
        b"[]",
        b"{",
        b"{}",
        b'{"role":"narrator","content":"a"}',
        b'{"role":"function","name":"run","content":"a"}',
        b'{"role":"assistant","function_call":{"name":"run","arguments":"{}"}}',
        b'{"role":"user","content":5}',
        b'{"role":"user","content":{"type":"text"}}',
        b'{"role":"user","content":["a"]}',
        b'{"role":"user","content":[{"text":"a"}]}',
        b'{"role":"user","content":[{"type":7}]}',
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]}',
        b'{"role":"assistant","content":[{"type":"tool_use","id":"1"}]}',
        b'{"role":"assistant","content":[{"type":"function_call","id":"1"}]}',
        b'{"role":"user","tool_calls":[' + CALL + b"]}",
        b'{"role":"user","content":"a","tool_call_id":"1"}',
        b'{"role":"tool","content":"a"}',
        b'{"role":"tool","tool_call_id":5,"content":"a"}',
        b'{"role":"tool","tool_call_id":"1","tool_calls":[' + CALL + b"]}",
        b'{"role":"assistant","tool_calls":{"id":"1"}}',
        b'{"role":"assistant","tool_calls":"none"}',
        b'{"role":"assistant","tool_calls":[5]}',
        b'{"role":"assistant","tool_calls":[{"function":{}}]}',
        b'{"role":"assistant","tool_calls":[{"id":5}]}',
        b'{"role":"assistant","tool_calls":[{"id":null}]}',
        b'{"role":"assistant","tool_calls":[' + CALL + b"," + CALL + b"]}",
        b'{"role":"assistant","tool_calls":[{"id":"a"},{"id":"\\u0061"}]}',
    ]
)
def test_what_is_of_no_known_form_is_not_trusted(raw: bytes) -> None:
    found = shaped(raw)

    assert found.sort is Sort.UNREAD
    assert not found.is_empty


def test_an_id_is_the_same_however_it_is_escaped() -> None:
    assert shaped(b'{"role":"tool","tool_call_id":"\\u0061"}').ids == ("a",)


@pytest.mark.parametrize(
    "more", [b'"refusal":"no"', b'"audio":{"id":"x"}', b'"reasoning_content":"hm"', b'"prefix":true', b'"content":" "']
)
def test_what_stands_in_another_member_is_said(more: bytes) -> None:
    assert not shaped(b'{"role":"assistant","content":"",' + more + b"}").is_empty


@pytest.mark.parametrize(
    "more",
    [
        b'"name":"bob"',
        b'"cache_control":{"type":"ephemeral"}',
        b'"refusal":null,"annotations":[],"extra":{},"reasoning_content":""',
        b'"content":[]',
        b'"content":[{"type":"text","text":""}]',
        b'"tool_calls":[]',
    ],
)
def test_a_name_a_marker_and_members_without_a_value_say_nothing(more: bytes) -> None:
    assert shaped(b'{"role":"assistant","content":"",' + more + b"}").is_empty


@pytest.mark.parametrize("refused", [b'"refusal":"no"', b'"audio":{"id":"x"}', b'"content":[{"type":"image_url"}]'])
def test_a_refusal_and_media_are_content(refused: bytes) -> None:
    assert shaped(b'{"role":"assistant","tool_calls":[' + CALL + b"]," + refused + b"}").has_content


def test_what_a_model_thought_is_no_content_of_a_call() -> None:
    found = shaped(b'{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[' + CALL + b"]}")

    assert not found.has_content
    assert not found.is_empty

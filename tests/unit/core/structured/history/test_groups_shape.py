"""What a message is to the rules of the history, and which messages are not trusted."""

import pytest

from proxy.core.structured.history.groups import Shape, Sort, shape_of
from proxy.core.structured.messages import Conversation
from tests.examples import for_every

CALL = b'{"id":"1","type":"function","function":{"name":"run","arguments":"{}"}}'


def shaped(raw: bytes) -> Shape:
    [turn] = Conversation.of([raw])
    return shape_of(turn)


@for_every(
    [
        (b'{"role":"system","content":7}', Sort.SYSTEM),
        (b'{"role":"developer"}', Sort.SYSTEM),
        (b'{"role":"user","content":"a"}', Sort.PLAIN),
        (b'{"role":"assistant","content":[{"type":"text","text":"a"}],"tool_calls":[]}', Sort.PLAIN),
        (b'{"role":"assistant","content":"a","tool_calls":null,"function_call":null,"refusal":null}', Sort.PLAIN),
        (b'{"role":"assistant","content":null,"tool_calls":[' + CALL + b"]}", Sort.CALLS),
        (b'{"role":"assistant","tool_calls":[{"id":"\\ud83d"}]}', Sort.CALLS),
        (b'{"role":"tool","tool_call_id":"1","content":"a"}', Sort.RESULT),
        (b'{"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"\\ud83d"}]}', Sort.RESULT),
    ]
)
def test_messages_of_the_chat_format_are_read(raw: bytes, sort: Sort) -> None:
    assert shaped(raw).sort is sort


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


def test_the_ids_of_calls_are_kept_in_their_order() -> None:
    assert shaped(b'{"role":"assistant","tool_calls":[{"id":"b"},{"id":"a"}]}').ids == ("b", "a")


def test_an_id_is_the_same_however_it_is_escaped() -> None:
    assert shaped(b'{"role":"tool","tool_call_id":"\\u0061"}').ids == ("a",)


@pytest.mark.parametrize(
    "more",
    [b'"refusal":"no"', b'"audio":{"id":"x"}', b'"reasoning_content":"hm"', b'"prefix":true', b'"content":" "'],
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

"""How messages read in a frozen chunk. Most cases stand in ``freezing.vectors``."""

import pytest

from proxy.core.structured.history.freezing import chunk_text
from proxy.core.structured.messages import Conversation
from proxy.core.wire.json_body import Unreadable
from tests.examples import for_every
from tests.talk import Body, assistant, calling, result, said, system, text_part, user
from tests.turn_notation import IMAGE, written


def text_of(*messages: Body) -> str:
    return chunk_text(Conversation.of(map(written, messages)))


@for_every(
    [
        (user("a\nb\ud83d"), "[user]: a\nb\ud83d\n"),
        (user("a", name="bob"), "[user bob]: a\n"),
        (user([text_part("a"), text_part(""), text_part("b")]), "[user]: a\nb\n"),
        (assistant(None, refusal="no"), "[assistant]: no\n"),
        (assistant("", refusal="no"), "[assistant]: no\n"),
        (assistant([{"type": "refusal", "refusal": "no"}]), "[assistant]: no\n"),
        (assistant([{"type": "thinking", "thinking": "hm"}, text_part("a")]), "[assistant]: a\n"),
        (assistant("a", reasoning_content="hm"), "[assistant]: a\n"),
        (assistant(None, reasoning_content="hm"), "[assistant]: \n"),
        (system("s"), ""),
    ]
)
def test_a_message_reads_as_its_role_and_texts(message: Body, text: str) -> None:
    assert text_of(message) == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"id": "1", "function": {"name": "run", "arguments": '{"a": 1}'}}, 'tool_call run({"a": 1})'),
        ({"id": "1", "function": {"name": "run", "arguments": "no json"}}, "tool_call run(no json)"),
        ({"id": "1", "function": {"name": "run", "arguments": ""}}, "tool_call run({})"),
        ({"id": "1", "function": {"name": "run", "arguments": None}}, "tool_call run({})"),
        ({"id": "1", "function": {"name": "run"}}, "tool_call run({})"),
        ({"id": "1", "type": "custom", "custom": {"name": "run", "input": "a b"}}, "tool_call run(a b)"),
    ],
)
def test_a_call_reads_as_its_name_and_arguments(call: Body, text: str) -> None:
    assert text_of({"role": "assistant", "tool_calls": [call]}, result("1", "r")) == f"{text}\nr\n"


@for_every(
    [
        [user([IMAGE])],
        [user([{"type": "input_audio"}])],
        [user([{"type": "file", "file": {}}])],
        [user([{"type": "text", "text": 5}])],
        [user("a", name=5)],
        [assistant("a", audio={"id": "x"})],
        [assistant("a", refusal={"no": 1})],
        [said("narrator", "a")],
        [assistant(None, function_call={"name": "run"})],
        [calling("1"), result("1", [IMAGE])],
        [calling("1")],
        [result("1", "r")],
        [calling("1", "2"), result("1", "r")],
        [calling("1"), user("a"), result("1", "r")],
        [calling("1"), result("1", "r"), result("2", "r")],
    ]
)
def test_what_is_no_text_or_not_whole_cannot_be_frozen(messages: list[Body]) -> None:
    with pytest.raises(Unreadable):
        text_of(*messages)


@for_every(
    [
        {},
        {"function": "run"},
        {"function": {"arguments": "{}"}},
        {"function": {"name": 5}},
        {"function": {"name": "a", "arguments": [1]}},
        {"function": {"name": "a", "arguments": {"b": 1}}},
        {"custom": {"name": "a", "input": 5}},
        {"server": {"name": "a"}},
    ]
)
def test_a_call_of_no_known_form_cannot_be_frozen(call: Body) -> None:
    with pytest.raises(Unreadable):
        text_of({"role": "assistant", "tool_calls": [{"id": "1", **call}]}, result("1", "r"))


def test_calls_of_the_same_id_in_two_turns_read_one_behind_the_other() -> None:
    assert text_of(calling("1"), result("1", "a"), calling("1"), result("1", "b")).count("tool_call") == 2

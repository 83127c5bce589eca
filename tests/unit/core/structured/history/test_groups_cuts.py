"""A conversation is cut in front of user messages, and never within a group of calls and results."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.history.groups import cuts
from proxy.core.structured.messages import Conversation
from tests.examples import for_every
from tests.talk import assistant, calling, result, system, user


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

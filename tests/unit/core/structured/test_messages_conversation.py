"""A request's messages are cut into system prompt, history and prompt, and stay the client's own bytes."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.messages import Conversation, Turn
from tests.contexts import conversation_of
from tests.examples import for_every
from tests.talk import MARK, as_parts, assistant, calling, result, system, text_part, user


def roles(turns: tuple[Turn, ...]) -> list[str]:
    return [turn.role for turn in turns]


def test_the_prompt_is_the_last_user_message_and_the_history_is_in_front_of_it() -> None:
    found = conversation_of(system("s"), {"role": "developer", "content": "d"}, user("a"), assistant("b"), user("c"))

    assert roles(found.system) == ["system", "developer"]
    assert roles(found.history) == ["user", "assistant"]
    assert [orjson.loads(turn.raw)["content"] for turn in found.prompt] == ["c"]


def test_results_in_a_users_message_stay_behind_the_question_of_their_loop() -> None:
    found = conversation_of(*as_parts(user("a"), assistant("b"), user("c"), calling("1"), result("1", "r")))

    assert roles(found.history) == ["user", "assistant"]
    assert roles(found.prompt) == ["user", "assistant", "user"]


def test_in_a_tool_loop_calls_and_results_stay_behind_the_last_user_message() -> None:
    found = conversation_of(user("a"), assistant("b"), user("c"), calling("1"), result("1", "r"), system("hurry"))

    assert found.system == ()
    assert roles(found.history) == ["user", "assistant"]
    assert roles(found.prompt) == ["user", "assistant", "tool", "system"]


def test_a_later_system_message_is_history() -> None:
    found = conversation_of(system("s"), user("a"), system("later"), user("b"))

    assert (roles(found.system), roles(found.history)) == (["system"], ["user", "system"])


@pytest.mark.parametrize("messages", [[assistant("a"), assistant("b")], [], [calling("1"), result("1", "r")]])
def test_without_a_user_message_all_others_are_the_prompt(messages: list[dict[str, object]]) -> None:
    found = conversation_of(system("s"), *messages)

    assert len(found.system) == 1
    assert found.history == ()
    assert len(found.prompt) == len(messages)


@for_every([b"1", b"null", b'"user"', b"[]", b"{}", b'{"role":1}', b'{"role":{}}', b"{", b""])
def test_what_is_no_message_stays_where_it_is(raw: bytes) -> None:
    found = Conversation.of([b'{"role":"user"}', raw, b'{"role":"user"}'])

    assert found.history == (Turn.of(b'{"role":"user"}'), Turn.of(raw))
    assert roles(found.history) == ["user", ""]


def test_halves_of_surrogate_pairs_are_read() -> None:
    found = Conversation.of([rb'{"role":"user","content":"\ud83d"}', b'{"role":"user"}'])

    assert roles(found.history) == ["user"]


@given(st.lists(st.sampled_from([b'{"role":"system"}', b'{ "role" : "user" }', b'{"role":"tool"}', b"7"])))
def test_every_message_is_there_once_in_its_order_and_its_bytes(raws: list[bytes]) -> None:
    found = Conversation.of(raws)

    assert [turn.raw for turn in found] == raws
    assert all(turn.is_system for turn in found.system)
    assert not found.prompt or found.prompt[0].role == "user" or "user" not in roles(found.prompt)
    assert "user" not in roles(found.prompt[1:])


def test_a_conversation_is_the_same_wherever_the_client_has_its_marker() -> None:
    early = conversation_of(system("s", **MARK), user([text_part("a", **MARK)]), user([text_part("b")]))
    late = conversation_of(system("s"), user([text_part("a")]), user([text_part("b", **MARK)]))

    assert early.bare() == late.bare()
    assert early != late
    assert late.bare().bare() == late.bare()
    assert late.bare().history == late.history

"""A request's messages are cut into system prompt, history and prompt, and stay the client's own bytes."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import Conversation, Turn, marked, marks_beside_messages, pair, unmarked
from proxy.protocol.providers import Dialect
from proxy.protocol.request.message import message_json
from proxy.protocol.wire.json_body import Unreadable, parse_members
from tests.contexts import conversation_of
from tests.examples import for_every
from tests.talk import MARK, Body, as_parts, assistant, calling, result, system, text_part, tool, user


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


# A marker stands where providers read it, and the message is the client's own but for it.


IMAGE = {"type": "image_url", "image_url": {"url": "data:,x"}}
BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def with_mark(message: Body, dialect: Dialect = Dialect.CACHE_CONTROL, *, is_head: bool = False) -> object:
    found = marked(orjson.dumps(message), dialect, is_head=is_head)
    return None if found is None else orjson.loads(found)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (user("q"), user([text_part("q", **MARK)])),
        (user("q", name="ann", **MARK), user([text_part("q", **MARK)], name="ann")),
        (user([text_part("a"), text_part("b")]), user([text_part("a"), text_part("b", **MARK)])),
        (user([text_part("a"), text_part(" ")]), user([text_part("a", **MARK), text_part(" ")])),
        (user([text_part("a"), IMAGE]), user([text_part("a"), {**IMAGE, **MARK}])),
        (result("1", "r"), result("1", "r", **MARK)),
    ],
)
def test_a_marker_stands_on_the_last_part_that_may_carry_one(message: Body, expected: Body) -> None:
    assert with_mark(message) == expected


@for_every(
    [assistant("a"), calling("1"), user(""), user(" \n\t"), user("\u3000"), user([]), user(None), system("later"), {}]
)
def test_no_marker_stands_where_none_is_read(message: Body) -> None:
    assert with_mark(message) is None


def test_a_system_message_carries_one_at_the_head_only() -> None:
    assert with_mark(system("s"), is_head=True) == system([text_part("s", **MARK)])
    assert with_mark({"role": "developer", "content": "s"}) is None


def test_each_dialect_writes_its_own_marker() -> None:
    assert with_mark(user("q"), Dialect.BREAKPOINT) == user([text_part("q", **BREAKPOINT)])
    assert with_mark(result("1", "r"), Dialect.PART_CACHE_CONTROL) == result("1", [text_part("r", **MARK)])
    assert with_mark(user("q"), Dialect.NONE) is None


def test_a_marked_text_keeps_its_bytes() -> None:
    raw = rb'{"role": "user", "content": "\u00e9\ud83d \/ \n"}'
    found = marked(raw, Dialect.CACHE_CONTROL)

    assert found is not None
    assert rb'"text":"\u00e9\ud83d \/ \n"' in found


@pytest.mark.parametrize("raw", [b"7", b"{", b'{"role":"user","content":7}', b'{"role":7}'])
def test_what_is_no_message_carries_no_marker(raw: bytes) -> None:
    assert marked(raw, Dialect.CACHE_CONTROL) is None
    assert unmarked(raw + b' "cache_control"') == raw + b' "cache_control"'


def test_the_clients_markers_are_taken_out_and_nothing_else() -> None:
    message = user([text_part("a", **MARK), {**IMAGE, **MARK}], name="ann", **MARK)

    assert orjson.loads(unmarked(orjson.dumps(message))) == user([text_part("a"), IMAGE], name="ann")
    plain = b'{ "role": "user", "content": "a" }'
    assert unmarked(plain) is plain
    quoted = orjson.dumps(user('say "cache_control"'))
    assert unmarked(quoted) == quoted


@for_every(
    [
        ({}, 0),
        ({"tools": [tool("a"), tool("b", **MARK), tool("c", **MARK)]}, 2),
        ({"tools": [{"type": "function", "function": {"name": "a", **MARK}}], **MARK}, 2),
        ({"tools": [tool("a", cache_control=None)], "cache_control": None}, 0),
        ({"tools": [tool("a", description='"cache_control"')]}, 0),
        ({"tools": [7, "cache_control"]}, 0),
        ({"tools": {"cache_control": 1}}, 0),
        ({"messages": [user("q", **MARK)]}, 0),
    ]
)
def test_markers_on_tools_and_on_the_body_are_counted(body: Body, count: int) -> None:
    assert marks_beside_messages(parse_members(orjson.dumps(body))) == count


# What is read of a message is the same whoever asks, and does not depend on the client's markers.


def test_a_message_without_markers_is_not_written_again() -> None:
    turn = Turn.of(b'{ "role": "user", "content": "a" }')

    assert turn.bare is turn.raw
    assert Conversation((turn,)).bare().system[0] is turn


def test_what_is_read_once_is_kept() -> None:
    turn = Turn.of(b'{"role":"tool","content":"a"}')

    assert turn.members is turn.members
    assert turn.has_results
    assert not turn.is_system


@pytest.mark.parametrize("raw", [b"1", b"{", b"[]", b""])
def test_what_is_no_message_has_no_members_and_no_role(raw: bytes) -> None:
    turn = Turn.of(raw)

    assert turn.role == ""
    assert turn.bare == raw
    with pytest.raises(Unreadable):
        turn.members  # noqa: B018


# Messages that the proxy writes itself.


def test_halves_of_surrogate_pairs_are_written_as_escapes() -> None:
    assert message_json("user", "\ud83d") == rb'{"role":"user","content":"\ud83d"}'
    assert pair("a", "b") == (b'{"role":"user","content":"a"}', b'{"role":"assistant","content":"b"}')

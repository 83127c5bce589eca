"""Conversations that are built to be slow, large or deep: the rules stay linear, and pass on what they cannot read."""

import json
from collections.abc import Callable

import pytest

from proxy.context import Conversation
from proxy.context.history import DetachTerms, MessageMeta, Status, frozen, ruled
from proxy.kit.modes import Edit
from proxy.protocol.wire.json_body import MOST_ELEMENTS
from tests.examples import sampled
from tests.growth import assert_linear
from tests.talk import Body, assistant, calling, result, system, text_part, user
from tests.turn_notation import written

Make = Callable[[int], list[Body]]


def sent_whole(turns: list[bytes]) -> None:
    """All rules, with a chunk for each turn."""
    found = ruled(Conversation.of(turns), {})
    frozen(found, DetachTerms(1, 1, 1, 1), lambda turn: len(turn.raw))


BOMBS: dict[str, Make] = {
    "plain turns": lambda n: [user("a"), assistant("b")] * n,
    "answered calls": lambda n: [user("a"), calling("1"), result("1", "r")] * n,
    "one group of many calls and results": lambda n: [
        *(calling(str(i)) for i in range(n)),
        *(result(str(i), "r") for i in range(n)),
    ],
    "calls without results": lambda n: [calling(str(i)) for i in range(n)],
    "calls with texts behind an answered one": lambda n: [
        *(calling(str(i), content="see") for i in range(n)),
        result("0", "r"),
    ],
    "results without calls": lambda n: [result("1", "r")] * n,
    "results in front of their calls": lambda n: [result("1", "r"), calling("1")] * n,
    "calls of one id": lambda n: [calling("1")] * n,
    "calls that cannot be joined": lambda n: [
        *({**calling(str(i)), "name": str(i)} for i in range(n)),
        *(result(str(i), "r") for i in range(n)),
    ],
    "system messages within a group": lambda n: [calling("1"), *([system("s")] * n), result("1", "r")],
    "system messages in front of a question": lambda n: [user("a"), assistant("b"), *([system("s")] * n)],
    "messages of no known form": lambda n: [calling("1"), {"role": "narrator"}] * n,
    "empty messages": lambda n: [user("")] * n,
    "parts": lambda n: [user([text_part("")] * 20)] * n,
    "questions alone": lambda n: [user("a")] * n,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(BOMBS, 5))
def test_the_time_is_linear_in_the_messages(name: str) -> None:
    make = BOMBS[name]
    assert_linear(sent_whole, lambda size: [*map(written, make(size)), b'{"role":"user","content":"q"}'], 600)


def test_calls_that_are_too_many_for_one_message_pass_with_their_results() -> None:
    ids = [str(i) for i in range(2 * MOST_ELEMENTS)]
    found = Conversation.of([written(m) for m in [user("a"), calling(*ids), *(result(i, "r") for i in ids), user("b")]])

    assert ruled(found, {}).conversation == found


def test_ids_of_a_megabyte_are_matched() -> None:
    long = "x" * (1 << 20)
    messages = [user("a"), calling(long, long + "y"), result(long + "y", "r"), result(long + "z", "r"), user("b")]

    found = ruled(Conversation.of([written(message) for message in messages]), {})

    assert found.edits == {Edit.HISTORY_REPAIRED: 2}
    assert json.loads(found.conversation.history[3].raw)["tool_call_id"] == long


DEEP = b"[" * 200_000 + b"]" * 200_000
DEEP_OBJECT = b'{"a":' * 200_000 + b"1" + b"}" * 200_000
LONG_LIST = b"[" + b"1," * 200_000 + b"1]"


@pytest.mark.parametrize("value", sampled([DEEP, DEEP_OBJECT, LONG_LIST, b'"\\ud83d"', b"1e999", b"-0", b"true"], 2))
@pytest.mark.parametrize(
    "frame",
    [
        b'{"role":"assistant","content":%b}',
        b'{"role":"assistant","tool_calls":%b}',
        b'{"role":"assistant","tool_calls":[%b]}',
        b'{"role":"assistant","tool_calls":[{"id":%b}]}',
        b'{"role":"assistant","tool_calls":[{"id":"1","function":%b}]}',
        b'{"role":"assistant","tool_calls":[{"id":"1","function":{"name":%b}}]}',
        b'{"role":"tool","tool_call_id":%b}',
        b'{"role":"user","content":[{"type":%b}]}',
        b'{"role":"user","content":[{"type":"text","text":%b}]}',
        b'{"role":"user","content":"a","name":%b}',
        b'{"role":%b}',
        b"%b",
    ],
)
def test_deep_long_and_odd_values_anywhere_are_taken(frame: bytes, value: bytes) -> None:
    turns = [b'{"role":"user","content":"a"}', frame % value, b'{"role":"tool","tool_call_id":"1"}', b'{"role":"user"}']
    given = Conversation.of(turns)

    for metas in ({}, {1: MessageMeta(1, Status.SUMMARIZED, "short")}):
        found = ruled(given, metas)
        assert ruled(found.conversation, {}).conversation == found.conversation
        frozen(found, DetachTerms(1, 1, 1, 1), lambda turn: 1)


def test_a_summary_with_half_a_surrogate_pair_is_valid_json() -> None:
    given = Conversation.of([b'{"role":"assistant","content":"long"}', b'{"role":"user"}'])

    found = ruled(given, {0: MessageMeta(0, Status.SUMMARIZED, 'a\ud83d"')})

    assert json.loads(found.conversation.history[0].raw) == {"role": "assistant", "content": 'a\ud83d"'}


@pytest.mark.slow
def test_a_hundred_thousand_messages_are_ruled_and_frozen() -> None:
    turns = [written(m) for m in [user("a"), calling("1"), result("1", "r"), assistant("b")] * 25_000]
    whole = ruled(Conversation.of([*turns, b'{"role":"user","content":"q"}']), {})

    found, _ = frozen(whole, DetachTerms(), lambda turn: 400)

    assert whole.edits == {}
    assert found.edits[Edit.HISTORY_FROZEN] + len(found.conversation.history) == 100_000

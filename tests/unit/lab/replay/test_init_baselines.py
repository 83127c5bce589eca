"""What the other policies send."""

from typing import Any

import orjson
import pytest

from proxy.lab.replay import BASELINES, CLIENT, as_sent, system_and_last
from proxy.protocol.providers import Dialect
from tests.unit.lab.replay.sessions import MARK, body, say

ANTHROPIC, OPENAI = Dialect.CACHE_CONTROL, Dialect.BREAKPOINT
PART = {"type": "text", "text": "hello"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def messages(request: bytes) -> Any:
    return orjson.loads(request)["messages"]


def test_as_sent_without_markers_is_the_same_bytes() -> None:
    request = b'{ "model":"m", "messages" : [{"role":"user","content":"caf\\u00e9"}]}'
    assert as_sent(request, ANTHROPIC) is request


def test_as_sent_takes_markers_off_wherever_they_may_stand_and_nothing_else() -> None:
    schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
    marked = body(
        say("system", [{**PART, "cache_control": MARK}]),
        say("user", "hi", cache_control=MARK),
        say("assistant", None, tool_calls=[{**CALL, "cache_control": MARK}]),
        say("tool", [{**PART, "prompt_cache_breakpoint": {"mode": "explicit"}}], tool_call_id="1"),
        tools=[{"type": "function", "function": {"name": "f", "parameters": schema, "cache_control": MARK},
                "cache_control": MARK}],
        cache_control=MARK,
    )  # fmt: skip
    plain = body(
        say("system", [PART]), say("user", "hi"), say("assistant", None, tool_calls=[CALL]),
        say("tool", [PART], tool_call_id="1"),
        tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}],
    )  # fmt: skip
    assert orjson.loads(as_sent(marked, ANTHROPIC)) == orjson.loads(plain)
    assert BASELINES[CLIENT](marked, ANTHROPIC) is marked


def test_system_and_last_marks_the_first_system_message_and_the_last_message() -> None:
    request = body(say("system", "one"), say("system", "two"), say("user", "old"), say("user", [PART, PART]))
    sent = messages(system_and_last(request, ANTHROPIC))
    assert sent[0]["content"] == [{"type": "text", "text": "one", "cache_control": MARK}]
    assert sent[1:3] == [say("system", "two"), say("user", "old")]
    assert sent[3]["content"] == [PART, {**PART, "cache_control": MARK}]


def test_the_clients_own_markers_are_not_among_them() -> None:
    request = body(say("system", "one"), say("user", "old", cache_control=MARK), say("user", "new"))
    assert system_and_last(request, ANTHROPIC).count(b"cache_control") == 2


@pytest.mark.parametrize(
    "last",
    [
        say("assistant", "I think"), say("user", ""), say("user", None), say("user", []),
        say("user", [{"type": "text", "text": ""}]),
    ],
)  # fmt: skip
def test_where_no_marker_may_stand_there_is_none(last: dict[str, Any]) -> None:
    sent = messages(system_and_last(body(say("system", "one"), last), ANTHROPIC))
    assert sent[1] == last
    assert "cache_control" in sent[0]["content"][0]


def test_a_tool_result_carries_it_in_the_way_of_its_dialect() -> None:
    request = body(say("assistant", None, tool_calls=[CALL]), say("tool", "42", tool_call_id="1"))
    assert messages(system_and_last(request, ANTHROPIC))[1]["cache_control"] == MARK
    part = messages(system_and_last(request, OPENAI))[1]["content"][0]
    assert part == {"type": "text", "text": "42", "prompt_cache_breakpoint": {"mode": "explicit"}}


def test_without_markers_on_the_wire_every_policy_sends_the_same() -> None:
    request = body(say("system", "one"), say("user", "two"))
    assert {baseline(request, Dialect.NONE) for baseline in BASELINES.values()} == {request}


def test_a_single_message_is_marked_once() -> None:
    assert system_and_last(body(say("system", "one")), ANTHROPIC).count(b"ephemeral") == 1

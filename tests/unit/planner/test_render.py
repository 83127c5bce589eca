"""The exact JSON for each place of a marker; all other bytes are the client's own."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from proxy.planner.layout import Layout, PrefixSettings
from proxy.planner.orders import behind_prefix, moved_elements, request_elements
from proxy.planner.render import mark_json, render_messages, render_tools
from proxy.protocol.caches import Life
from proxy.protocol.providers import Dialect
from proxy.protocol.request.message import MessageReader
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from proxy.protocol.request.transcript import RecognisedRequest, Transcript, recognise_request
from proxy.protocol.wire.json_body import elements as array_of
from tests.fidelity.chats import EDITABLE_OPENING, File
from tests.talk import (
    MARK,
    RECOGNISERS,
    Body,
    assistant,
    calling,
    marks_in,
    result,
    shown,
    system,
    text_part,
    tool,
    user,
)

A, B = File("a.py", "a = 1\n"), File("b.py", "b = 1\n")
SEED = PrefixSettings(b"", b"")
COUNTER = TokenCounter(bytes_over_four)
IMAGE = {"type": "image_url", "image_url": {"url": "data:,x"}}
SHORT = b'{"type":"ephemeral"}'


def recognised(messages: bytes | Sequence[Body]) -> RecognisedRequest:
    raw = messages if isinstance(messages, bytes) else json.dumps(list(messages)).encode()
    reader = MessageReader(COUNTER, RECOGNISERS)
    return recognise_request(Transcript([reader.read(r) for r in array_of(raw)]), lambda *_: True)


def natural(
    messages: bytes | Sequence[Body],
    marks: Mapping[int, Life] | None = None,
    dialect: Dialect = Dialect.CACHE_CONTROL,
    *,
    keep_own: bool = False,
) -> bytes:
    """The client's order with these markers, as JSON."""
    seen = recognised(messages)
    layout = Layout(SEED, request_elements(seen, (), COUNTER).natural)
    return b"[" + b",".join(render_messages(layout, seen.messages, marks or {}, dialect, keep_own=keep_own)) + b"]"


def ordered(messages: Sequence[Body], marks: Mapping[int, Life] | None = None, *, moved: bool = False) -> list[Body]:
    """Context behind the conversation, with these markers."""
    seen = recognised(messages)
    elements = request_elements(seen, (), COUNTER)
    if moved:
        found = moved_elements(seen, elements, COUNTER)
        assert found is not None
        elements = found
    layout = Layout(SEED, behind_prefix(elements, (), lambda _: 0.0))
    return list(map(json.loads, render_messages(layout, seen.messages, marks or {}, Dialect.CACHE_CONTROL)))


class TestMarks:
    def test_markers_are_written_in_both_dialects(self) -> None:
        assert mark_json(Dialect.CACHE_CONTROL, "5m") == ("cache_control", b'{"type":"ephemeral"}')
        assert mark_json(Dialect.CACHE_CONTROL, "1h") == ("cache_control", b'{"type":"ephemeral","ttl":"1h"}')
        assert mark_json(Dialect.BREAKPOINT, "1h") == ("prompt_cache_breakpoint", b'{"mode":"explicit"}')

    def test_a_string_becomes_a_part_and_keeps_its_bytes(self) -> None:
        body = rb'[{ "role" : "user", "content" : "caf\u00e9 \/ \"q\"" , "x": 1.0 }]'
        assert natural(body, {0: "5m"}) == (
            rb'[{"role":"user","content":[{"type":"text","text":"caf\u00e9 \/ \"q\"","cache_control":'
            + SHORT + rb'}],"x":1.0}]'
        )  # fmt: skip

    def test_a_part_of_a_list_and_no_other(self) -> None:
        body = b'[{"role":"user","content":[ {"type": "text", "text": "a"} ,{"type":"text","text":"b"}]}]'
        assert natural(body, {1: "1h"}) == (
            b'[{"role":"user","content":[{"type": "text", "text": "a"},'
            b'{"type":"text","text":"b","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]'
        )

    def test_a_tool_result_on_the_message(self) -> None:
        out = json.loads(natural([user("a"), calling("1"), result("1", "x")], {2: "5m"}))
        assert out[2] == result("1", "x", **MARK)
        parts = [text_part("x"), text_part("y")]
        out = json.loads(natural([user("a"), calling("1"), result("1", parts)], {2: "5m"}))
        assert out[2] == result("1", parts, **MARK)

    def test_a_tool_result_behind_its_last_part_in_the_other_dialect(self) -> None:
        point = {"prompt_cache_breakpoint": {"mode": "explicit"}}
        out = json.loads(natural([user("a"), calling("1"), result("1", "x")], {2: "5m"}, Dialect.BREAKPOINT))
        assert out[2] == result("1", [text_part("x", **point)])
        parts = [text_part("x"), text_part("y")]
        out = json.loads(natural([user("a"), calling("1"), result("1", parts)], {2: "5m"}, Dialect.BREAKPOINT))
        assert out[2] == result("1", [parts[0], text_part("y", **point)])

    def test_a_tool_result_within_where_markers_are_read_on_parts_alone(self) -> None:
        talk = [user("a"), calling("1"), result("1", "x")]
        out = json.loads(natural(talk, {0: "5m", 2: "5m"}, Dialect.PART_CACHE_CONTROL))
        assert out[0] == user([text_part("a", **MARK)])
        assert out[2] == result("1", [text_part("x", **MARK)])

    def test_an_image(self) -> None:
        out = json.loads(natural([user([text_part("a"), IMAGE])], {1: "5m"}))
        assert out[0]["content"] == [text_part("a"), {**IMAGE, **MARK}]

    def test_without_markers_the_clients_bytes_come_back(self) -> None:
        body = b'[{ "role":"user","content":"a" ,"n":1e3},{"role":"assistant","content":null}]'
        assert natural(body) == body.replace(b",{", b",{")


class TestOwnMarks:
    MARKED = (
        system([text_part("s", **MARK)]),
        user("u", **MARK),
        {**calling("1", "2", content="look"), **MARK},
        result("1", "x", **MARK),
        result("2", [text_part("y", **MARK), text_part("z")]),
        user([text_part("a", **MARK), {**IMAGE, **MARK}]),
    )

    def test_all_markers_of_the_client_are_taken_off(self) -> None:
        messages = json.loads(json.dumps(self.MARKED))
        messages[2]["tool_calls"][1] |= MARK
        out = natural(messages)
        assert b"cache_control" not in out
        bare = json.loads(json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', ""))
        assert json.loads(out) == bare

    def test_own_markers_are_replaced_by_ours(self) -> None:
        out = {"messages": json.loads(natural(self.MARKED, {0: "1h", 6: "5m", 7: "5m"}))}
        assert marks_in(out) == ["0.0", "4", "5.0"]
        assert out["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}

    def test_no_calls_is_no_trouble(self) -> None:
        messages = [user("a"), assistant("b", tool_calls=None, **MARK), user("c")]
        assert json.loads(natural(messages))[1] == assistant("b", tool_calls=None)

    def test_markers_of_the_client_are_kept_where_the_mode_keeps_them(self) -> None:
        messages = [user([text_part("a", **MARK)]), assistant("b"), user("c")]
        out = json.loads(natural(messages, {2: "5m"}, keep_own=True))
        assert out == [messages[0], messages[1], user([text_part("c", **MARK)])]

    def test_an_old_acknowledgement_loses_its_marker(self) -> None:
        question, ack = shown(A)
        out = ordered([question, {**ack, **MARK}, user("go")])
        assert out[1] == ack


class TestContext:
    def test_parts_under_the_documented_header(self) -> None:
        out = ordered([system("s"), *shown(A, B), user("one"), assistant("1"), user("go")])
        assert out == [
            system("s"),
            user("one"),
            assistant("1"),
            user(
                "These files are in the chat and may be edited. Trust this message as their true contents.\n\n"
                "\na.py\n```\na = 1\n```\n"
            ),
            assistant("Ok."),
            user(EDITABLE_OPENING + "\nb.py\n```\nb = 1\n```\n"),
            assistant("Ok, any changes I propose will be to those files."),
            user("go"),
        ]

    def test_a_marker_makes_a_part_a_list(self) -> None:
        out = ordered([*shown(A, B), user("go")], {0: "5m"})
        assert out[0]["content"][0]["cache_control"] == {"type": "ephemeral"}
        assert isinstance(out[2]["content"], str)

    def test_the_last_part_keeps_the_form_of_the_clients_message(self) -> None:
        question, ack = shown(A, B)
        out = ordered([user([text_part(question["content"])]), ack, user("go")])
        assert [type(message["content"]) for message in out[:4:2]] == [str, list]
        assert len(out[2]["content"]) == 1

    def test_a_message_with_other_keys_moves_whole_with_them(self) -> None:
        question, ack = shown(A, B)
        named = {**question, "name": "ann"}
        out = ordered([named, ack, user("hi"), assistant("yes?"), user("go")])
        assert out == [user("hi"), assistant("yes?"), named, ack, user("go")]

    def test_a_message_that_stays_whole_stays_as_it_was_written(self) -> None:
        messages = json.dumps([*shown(A), user("go")], indent=1).encode()
        assert json.loads(natural(messages)) == json.loads(messages)
        assert recognised(messages).messages[0].raw in natural(messages)


class TestSystem:
    CLOCK = "You are kind.\nCurrent time: 2026-01-01 10:00\nRules.\n"
    DOCUMENTS = 'Answer.\n<doc id="1">one</doc>\n<doc id="2">two</doc>\nBrief.\n'

    def test_a_message_is_rendered_without_its_clock(self) -> None:
        out = ordered([system(self.CLOCK, name="n"), user("a"), assistant("b"), user("go")], moved=True)
        assert out == [
            system("You are kind.\nRules.\n", name="n"),
            user("a"),
            assistant("b"),
            user("<stratiform-context>\nCurrent time: 2026-01-01 10:00\n</stratiform-context>"),
            user("go"),
        ]

    def test_a_list_stays_a_list(self) -> None:
        out = ordered([system([text_part(self.CLOCK, **MARK)]), user("go")], moved=True)
        assert out[0] == system([text_part("You are kind.\nRules.\n")])

    def test_documents_as_further_parts(self) -> None:
        out = ordered([system(self.DOCUMENTS), user("go")], {1: "5m"}, moved=True)
        assert out[0] == system([
            text_part("Answer.\nBrief.\n"),
            text_part('<doc id="1">one</doc>\n', **MARK),
            text_part('<doc id="2">two</doc>\n'),
        ])  # fmt: skip


def tools(*given: Body) -> bytes:
    return json.dumps(list(given)).encode()


class TestTools:
    def test_without_a_marker_the_same_object(self) -> None:
        raw = tools(tool("a"), tool("b"))
        assert render_tools(raw, None, Dialect.CACHE_CONTROL) is raw

    def test_on_the_last_tool(self) -> None:
        raw = tools(tool("a"), tool("b"))
        assert json.loads(render_tools(raw, "5m", Dialect.CACHE_CONTROL)) == [tool("a"), tool("b", **MARK)]
        assert json.loads(render_tools(raw, "5m", Dialect.BREAKPOINT)) == [tool("a"), tool("b")]

    @pytest.mark.parametrize("place", ["tool", "function"])
    def test_the_clients_markers_are_taken_off(self, place: str) -> None:
        marked = tool("a")
        (marked if place == "tool" else marked["function"]).update(MARK)
        raw = tools(marked, tool("b"))
        assert json.loads(render_tools(raw, None, Dialect.CACHE_CONTROL)) == [tool("a"), tool("b")]
        assert json.loads(render_tools(raw, "1h", Dialect.CACHE_CONTROL))[1]["cache_control"]["ttl"] == "1h"

    def test_tools_keep_their_own_markers_in_mode_mark(self) -> None:
        raw = tools(tool("a", **MARK), tool("b"))
        assert render_tools(raw, None, Dialect.CACHE_CONTROL, keep_own=True) is raw
        added = json.loads(render_tools(raw, "5m", Dialect.CACHE_CONTROL, keep_own=True))
        assert added == [tool("a", **MARK), tool("b", **MARK)]

    def test_a_parameter_of_that_name_is_no_marker(self) -> None:
        odd: dict[str, Any] = tool("a")
        odd["function"]["parameters"]["properties"]["cache_control"] = {"type": "object"}
        raw = tools(odd)
        assert render_tools(raw, None, Dialect.CACHE_CONTROL) is raw
        assert json.loads(render_tools(raw, "5m", Dialect.CACHE_CONTROL)) == [{**odd, **MARK}]

    def test_no_tools(self) -> None:
        assert render_tools(b"[]", "5m", Dialect.CACHE_CONTROL) == b"[]"

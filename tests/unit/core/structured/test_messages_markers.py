"""A marker stands where providers read it, and the message is the client's own but for it."""

import orjson
import pytest

from proxy.core.providers import Dialect
from proxy.core.structured.messages import marked, marks_beside_messages, unmarked
from proxy.core.wire.json_body import parse_members
from tests.examples import for_every
from tests.talk import MARK, Body, assistant, calling, result, system, text_part, tool, user

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

import json

import pytest
from msgspec import Raw

from proxy.core.request.element import ElementKind, ToolReader, bare_tool
from proxy.core.request.tokens import TokenCounter, bytes_over_four
from proxy.core.wire.json_body import Unreadable
from tests.talk import MARK, Body, tool


def read(*given: Body) -> tuple[list[bytes], list[str | None], list[bool]]:
    (element,) = ToolReader(TokenCounter(bytes_over_four)).read(Raw(json.dumps(list(given)).encode()))
    assert element.kind is ElementKind.TOOLS
    assert element.tokens == sum(p.tokens for p in element.parts)
    parts = element.parts
    return [p.digest for p in parts], [p.own_mark for p in parts], [p.markable for p in parts]


def on_function(given: Body) -> Body:
    return {**given, "function": {**given["function"], **MARK}}


def test_one_position_a_tool_and_ours_on_the_last_alone() -> None:
    digests, marks, markable = read(tool("a"), tool("b"))
    assert (len(set(digests)), marks, markable) == (2, [None, None], [False, True])


@pytest.mark.parametrize("raw", [b"null", b"[]"])
def test_no_tools(raw: bytes) -> None:
    assert ToolReader(TokenCounter(bytes_over_four)).read(Raw(raw)) == ()
    assert ToolReader(TokenCounter(bytes_over_four)).read(None) == ()


@pytest.mark.parametrize("raw", [b"{}", b'"x"', b"[1]", b"[[]]"])
def test_what_is_no_list_of_tools(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        ToolReader(TokenCounter(bytes_over_four)).read(Raw(raw))


def test_the_clients_marker_is_known_and_no_part_of_the_digest() -> None:
    plain = read(tool("a"), tool("b"))
    marked = read(tool("a", **MARK), tool("b"))
    assert marked[0] == plain[0]
    assert marked[1] == ["5m", None]


def test_a_marker_on_the_function_counts_too() -> None:
    assert read(on_function(tool("a")))[1] == ["5m"]
    assert read(on_function(tool("a")))[0] == read(tool("a"))[0]


def test_an_array_is_read_once() -> None:
    reader = ToolReader(TokenCounter(bytes_over_four))
    raw = Raw(json.dumps([tool("a")]).encode())
    assert reader.read(raw)[0] is reader.read(Raw(bytes(raw)))[0]
    for number in range(600):
        reader.read(Raw(json.dumps([tool(f"t{number}")]).encode()))
    again = reader.read(raw)[0]
    assert again.digest == ToolReader(TokenCounter(bytes_over_four)).read(raw)[0].digest


def test_bare_tool_keeps_what_it_does_not_take_off() -> None:
    raw = b'{ "type":"function", "function": {"name":"a", "x": 1.0 } }'
    assert bare_tool(raw) == raw
    marked = json.dumps(on_function(tool("a", **MARK))).encode()
    assert json.loads(bare_tool(marked)) == tool("a")


@pytest.mark.parametrize("odd", [{"type": "web_search"}, {"function": "x"}, {"function": None, "cache_control": None}])
def test_tools_of_other_shapes(odd: Body) -> None:
    assert read(odd)[1] == [None]

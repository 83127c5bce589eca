"""Tools as elements: each array is read once, and keeps the order in which it was first sent."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from proxy.kit.modes import Mode, Reason
from proxy.planner.plan import Plan, PlannerOptions
from proxy.protocol.providers import NONE, OPENAI
from proxy.protocol.request.element import ElementKind, ToolOrders, ToolReader, bare_tool
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from proxy.protocol.wire.json_body import Unreadable
from tests.examples import for_every
from tests.fidelity.checker import check
from tests.growth import steps_of
from tests.talk import MARK, Body, Talk, assistant, chat, lines, marks_in, sent, system, tool, user


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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
TOOLS = st.lists(st.dictionaries(st.text(max_size=4), JSON, min_size=1, max_size=4), min_size=1, max_size=5)
SYSTEM = system(lines(120, "rule"))


def shuffled(item: Any, chance: random.Random) -> Any:
    """The same value, its keys in another order."""
    if isinstance(item, dict):
        pairs = [(key, shuffled(each, chance)) for key, each in item.items()]
        chance.shuffle(pairs)
        return dict(pairs)
    return [shuffled(each, chance) for each in item] if isinstance(item, list) else item


def steady(orders: ToolOrders, tools: Any, scope: bytes = b"s", **style: Any) -> bytes | None:
    raw = tools if isinstance(tools, bytes) else json.dumps(tools, **style).encode()
    return orders.steady(scope, raw, raw)


@given(TOOLS, st.randoms(use_true_random=False), st.booleans())
def test_tools_in_another_order_go_out_in_their_first_order(
    tools: list[Body], chance: random.Random, ascii_only: bool
) -> None:
    orders, first = ToolOrders(), json.dumps(tools).encode()
    assert steady(orders, first) is None
    again = [shuffled(each, chance) for each in tools]
    chance.shuffle(again)
    raw = json.dumps(again, ensure_ascii=ascii_only, indent=1).encode("utf-8", "surrogatepass")
    assert steady(orders, raw) == (None if raw == first else first)


@given(TOOLS, TOOLS)
def test_other_tools_are_never_taken_for_these(one: list[Body], other: list[Body]) -> None:
    orders = ToolOrders()
    steady(orders, one)
    found = steady(orders, other)
    if found is not None:
        canonical = [sorted(json.dumps(t, sort_keys=True) for t in tools) for tools in (one, other)]
        assert canonical[0] == canonical[1]


@for_every(
    [
        (b'[{"a":1}]', b'[{"a":1.0}]'),
        (b'[{"a":0}]', b'[{"a":-0}]'),
        (b'[{"a":0.1}]', b'[{"a":0.10000000000000000001}]'),
        (b'[{"a":[1,2]}]', b'[{"a":[2,1]}]'),
        (b'[{"a":1}]', b'[{"a":1},{"a":1}]'),
        (b'[{"a":2}]', b'[{"a":1,"a":2}]'),
        (b'[{"a":"1"}]', b'[{"a":1}]'),
        (b'[{"a":null}]', b'[{"a":"null"}]'),
        (b'[{"a":{}}]', b'[{"a":[]}]'),
    ]
)
def test_values_are_never_touched(one: bytes, other: bytes) -> None:
    orders = ToolOrders()
    assert steady(orders, one) is None
    assert steady(orders, other) is None


@pytest.mark.parametrize("value", [1, 0.5, {"a": 1}, "a", []])
def test_tools_of_very_many_values_are_compared_by_their_bytes(value: Any) -> None:
    few, many = ([tool("run"), tool("read", values=[value] * count)] for count in (5_000, 60_000))
    assert steady(orders := ToolOrders(), few) is None
    assert steady(orders, few[::-1]) == json.dumps(few).encode()
    assert steady(orders, many) is None
    assert steps_of(lambda: steady(orders, json.dumps(many[::-1]).encode())) < 100
    assert steady(orders, many[::-1]) is None


def test_scopes_are_kept_apart_and_memory_is_bounded() -> None:
    orders = ToolOrders(capacity_bytes=2_000)
    a, b = json.dumps([tool("a"), tool("b")]).encode(), json.dumps([tool("b"), tool("a")]).encode()
    assert steady(orders, a) is None
    assert steady(orders, b, scope=b"another") is None
    assert steady(orders, b) == a
    for number in range(50):
        steady(orders, [tool(f"t{number}")])
    assert steady(orders, b) is None
    deep = b"[" + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]"
    assert steady(orders, deep) is None


def shuffling(talk: Talk, requests: int = 6, **more: Any) -> list[tuple[Body, Plan]]:
    """A client that builds its tools from a set, schemas and all."""
    chance, turns, found = random.Random(1), [SYSTEM], []
    names = [f"tool_{n}" for n in range(6)]
    for number in range(requests):
        turns += [user(f"q{number}")]
        given = [shuffled(tool(name), chance) for name in names]
        chance.shuffle(given)
        body = chat(*turns, tools=given, **more)
        found.append((body, talk.send(body)))
        turns += [assistant(lines(2, f"a{number}"))]
    return found


class TestPlanned:
    @pytest.mark.parametrize("profile", [None, OPENAI, NONE])
    def test_the_prefix_holds_and_the_definitions_are_the_clients(self, profile: Any) -> None:
        found = shuffling(Talk(**({"profile": profile} if profile else {})))
        first = found[0][0]["tools"]
        for body, plan in found:
            bare = [{k: v for k, v in t.items() if k != "cache_control"} for t in sent(plan)["tools"]]
            assert json.dumps(bare) == json.dumps(first)
            name = profile.name if profile is not None else "anthropic"
            assert check(body, sent(plan), mode="tier", profile=name, tools_seen_reordered=True) == []
        if profile is not NONE:
            last = found[-1][1]
            assert last.predicted.read > 0.4 * last.predicted.total
            assert last.own.read == 0

    def test_restored_tools_are_the_reason_where_nothing_else_is_done(self) -> None:
        first, *others = [plan.reason for _, plan in shuffling(Talk(profile=OPENAI))]
        assert (first, set(others)) == (Reason.NATURAL_ORDER, {Reason.STEADY_TOOLS})

    @pytest.mark.parametrize("mode", [Mode.MARK, Mode.OBSERVE])
    def test_modes_that_keep_the_order_keep_that_of_the_tools(self, mode: Mode) -> None:
        for body, plan in shuffling(Talk(mode=mode)):
            assert [t["function"]["name"] for t in sent(plan)["tools"]] == [
                t["function"]["name"] for t in body["tools"]
            ]

    def test_an_operator_may_turn_the_restoring_of_tools_off(self) -> None:
        for body, plan in shuffling(Talk(options=PlannerOptions(steady_tools=False))):
            assert check(body, sent(plan), mode="tier", profile="anthropic") == []

    def test_a_client_that_marks_its_tools_says_where_they_stand(self) -> None:
        talk = Talk()
        for order in ("ab", "ba", "ab"):
            tools = [tool(order[0]), tool(order[1], **MARK)]
            body = chat(SYSTEM, user("q"), tools=tools)
            plan = talk.send(body)
            assert [t["function"]["name"] for t in sent(plan)["tools"]] == list(order)
            assert "tools[1]" in marks_in(sent(plan)) or plan.body != plan.original

    def test_a_refused_session_gets_its_own_order_back(self) -> None:
        talk = Talk()
        (_, plan), *_ = shuffling(talk, 1)
        talk.planner.barred(plan)
        talk.planner.on_accepted(plan, talk.now)
        talk.planner.on_completed(plan, None, talk.now)
        for body, plan in shuffling(talk, 3)[1:]:
            assert (plan.reason, sent(plan)["tools"]) == (Reason.BARRED, body["tools"])

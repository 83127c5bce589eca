"""A plan as LiteLLM's arguments."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.modes import Mode
from proxy.core.request.parsed_body import parse_body
from proxy.inside.incoming import StoodDown
from proxy.inside.rewriting import Rewriting, rewriting
from proxy.ports import Plan
from proxy.upstream.litellm_.library import Route

ROUTE = Route("openai", frozenset({"messages"}), extra_body=True, owned=frozenset())
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.just("user"), "content": st.text(max_size=3)}), min_size=1, max_size=5
)


def rewritten(given: dict[str, Any], planned: dict[str, Any], route: Route = ROUTE, **plan: Any) -> Rewriting:
    before, after = orjson.dumps(given), orjson.dumps(planned)
    return rewriting(given, parse_body(before), Plan(after, before, Mode.TIER, "kept", **plan), lambda: route)


@given(MESSAGES, MESSAGES)
def test_it_is_applied_and_undone_without_touching_anything_else(came: list[Any], planned: list[Any]) -> None:
    given = {"model": "m", "messages": came, "temperature": 1}
    done = rewritten(given, {**given, "messages": planned})
    going = done.applied(given)
    assert going["messages"] == planned
    assert going["temperature"] is given["temperature"]
    assert done.undone({**going, "other": 2}, given) == {**given, "other": 2}


def test_fields_that_litellm_would_refuse_go_beside_and_the_callers_own_count_for_more() -> None:
    given = {"model": "m", "messages": [], "extra_body": {"prompt_cache_key": "mine"}, "extra_headers": {"x-a": "mine"}}
    came = {n: given[n] for n in ("model", "messages")}
    planned = {**came, "prompt_cache_key": "ours", "session_id": "ours"}
    body, after = orjson.dumps(came), orjson.dumps(planned)
    plan = Plan(after, body, Mode.TIER, "kept", headers=(("x-a", "ours"), ("x-b", "ours")))
    going = rewriting(given, parse_body(body), plan, lambda: ROUTE).applied(given)
    assert going["extra_body"] == {"prompt_cache_key": "mine", "session_id": "ours"}
    assert going["extra_headers"] == {"x-a": "mine", "x-b": "ours"}
    assert given["extra_body"] == {"prompt_cache_key": "mine"}
    closed = Route("bedrock", frozenset(), extra_body=False, owned=frozenset())
    assert "extra_body" not in rewriting(came, parse_body(body), plan, lambda: closed).changed


def test_what_a_plan_leaves_out_is_left_out() -> None:
    given = {"model": "m", "messages": [], "cache_control": {"type": "ephemeral"}}
    done = rewritten(given, {"model": "m", "messages": []})
    assert done.applied(given) == {"model": "m", "messages": []}
    assert done.undone(done.applied(given), given) == given


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(JSON)
def test_what_json_does_not_give_back_as_it_was_is_not_exchanged(content: Any) -> None:
    given = {"model": "m", "messages": [{"content": content}]}
    body = orjson.dumps(given)
    plan = Plan(b'{"model":"m","messages":[{"content":"other"}]}', body, Mode.TIER, "kept")
    if orjson.loads(body) == given:
        done = rewriting(given, parse_body(body), plan, lambda: ROUTE)
        assert done.applied(given)["messages"] == [{"content": "other"}]
    else:
        with pytest.raises(StoodDown):
            rewriting(given, parse_body(body), plan, lambda: ROUTE)

"""A plan as LiteLLM's arguments."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.request.parsed_body import BodyChanges
from proxy.core.request.reader import RequestReader
from proxy.core.request.tokens import bytes_over_four
from proxy.inside.incoming import StoodDown
from proxy.inside.work import Rewriting, rewriting
from proxy.ports import Headers
from proxy.upstream.litellm_.library import Route

READER = RequestReader(bytes_over_four, [], 1 << 20)
MESSAGE = {"role": "user", "content": "a"}
ROUTE = Route("openai", frozenset({"messages"}), extra_body=True, owned=frozenset())
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.just("user"), "content": st.text(max_size=3)}), min_size=1, max_size=5
)


def changes(came: dict[str, Any], planned: dict[str, Any]) -> BodyChanges:
    """The difference between two requests, as a plan tells it."""
    parsed = READER.parse(orjson.dumps(came))
    own = {message.raw: message.raw for message in READER.read(parsed).messages}
    members = {name: orjson.dumps(value) for name, value in planned.items() if name != "messages"}
    gone = dict.fromkeys(came.keys() - planned.keys())
    sent = [own.get(raw, raw) for raw in map(orjson.dumps, planned["messages"])]
    return BodyChanges(parsed, {**members, **gone}, messages=sent)


def rewritten(given: dict[str, Any], planned: BodyChanges, route: Route = ROUTE, headers: Headers = ()) -> Rewriting:
    done = rewriting(given, planned, headers, lambda: route)
    assert done is not None
    return done


@given(MESSAGES, MESSAGES)
def test_it_is_applied_and_undone_without_touching_anything_else(came: list[Any], planned: list[Any]) -> None:
    given = {"model": "m", "messages": came, "temperature": 1}
    done = rewriting(given, changes(given, {**given, "messages": planned}), (), lambda: ROUTE)
    if done is None:
        assert came == planned
        return
    going = done.applied(given)
    assert going["messages"] == planned
    assert going["temperature"] is given["temperature"]
    assert done.undone({**going, "other": 2}, given) == {**given, "other": 2}


def test_fields_that_litellm_would_refuse_go_beside_and_the_callers_own_count_for_more() -> None:
    came = {"model": "m", "messages": [MESSAGE]}
    given = {**came, "extra_body": {"prompt_cache_key": "mine"}, "extra_headers": {"x-a": "mine"}}
    planned = changes(came, {**came, "prompt_cache_key": "ours", "session_id": "ours"})
    going = rewritten(given, planned, headers=(("x-a", "ours"), ("x-b", "ours"))).applied(given)
    assert going["extra_body"] == {"prompt_cache_key": "mine", "session_id": "ours"}
    assert going["extra_headers"] == {"x-a": "mine", "x-b": "ours"}
    assert given["extra_body"] == {"prompt_cache_key": "mine"}
    closed = Route("bedrock", frozenset(), extra_body=False, owned=frozenset())
    assert "extra_body" not in rewritten(came, planned, closed).changed


def test_what_a_plan_leaves_out_is_left_out() -> None:
    given = {"model": "m", "messages": [MESSAGE], "cache_control": {"type": "ephemeral"}}
    done = rewritten(given, changes(given, {"model": "m", "messages": [MESSAGE]}))
    assert done.applied(given) == {"model": "m", "messages": [MESSAGE]}
    assert done.undone(done.applied(given), given) == given


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(JSON)
def test_what_json_does_not_give_back_as_it_was_is_not_exchanged(extra: Any) -> None:
    given = {"model": "m", "messages": [{**MESSAGE, "extra": extra}]}
    planned = changes(given, {"model": "m", "messages": [MESSAGE]})
    if orjson.loads(planned.parsed.body) == given:
        assert rewritten(given, planned).applied(given)["messages"] == [MESSAGE]
    else:
        with pytest.raises(StoodDown):
            rewritten(given, planned)


@given(MESSAGES, st.data())
def test_messages_that_keep_their_places_are_the_callers_own(came: list[Any], data: st.DataObject) -> None:
    given = {"model": "m", "messages": came}
    parsed = changes(given, given).parsed
    marked = data.draw(st.sets(st.integers(0, len(came) - 1)))
    changed = {index: orjson.dumps({**came[index], "marked": index}) for index in marked}
    done = rewriting(given, BodyChanges(parsed, {}, changed), (), lambda: ROUTE)
    if not marked:
        assert done is None
        return
    assert done is not None
    for index, message in enumerate(done.applied(given)["messages"]):
        assert message is came[index] if index not in marked else message == {**came[index], "marked": index}


def test_how_the_usage_of_a_stream_is_asked_for_is_litellms_own() -> None:
    given = {"model": "m", "messages": [MESSAGE], "stream": True}
    planned = {**given, "stream_options": {"include_usage": True}}
    assert rewriting(given, changes(given, planned), (), lambda: ROUTE) is None
    going = rewritten(given, changes(given, {**planned, "prompt_cache_key": "ours"})).applied(given)
    assert going == {**given, "extra_body": {"prompt_cache_key": "ours"}}


def test_a_plan_may_be_nothing_but_a_header() -> None:
    given = {"model": "m", "messages": [MESSAGE]}
    going = rewritten(given, changes(given, given), headers=(("x-session", "s"),)).applied(given)
    assert going == {**given, "extra_headers": {"x-session": "s"}}

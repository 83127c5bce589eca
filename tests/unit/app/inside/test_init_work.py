"""A plan as LiteLLM's arguments; the bounds of attempts under way, and of the time that planning may take."""

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.app.inside import LONGEST_S, Attempt, OpenAttempts, ShareOfTime, timed
from proxy.app.inside.incoming import Rewriting, StoodDown, rewriting
from proxy.kit.modes import Mode
from proxy.models import Headers
from proxy.planner.plan import Plan
from proxy.protocol.request import BodyChanges
from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.litellm_library import LitellmRoute
from tests.exchanges import make_exchange

READER = RequestReader(bytes_over_four, [], 1 << 20)
MESSAGE = {"role": "user", "content": "a"}
ROUTE = LitellmRoute("openai", frozenset({"messages"}), extra_body=True, owned=frozenset())
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


def rewritten(
    given: dict[str, Any], planned: BodyChanges, route: LitellmRoute = ROUTE, headers: Headers = ()
) -> Rewriting:
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
    closed = LitellmRoute("bedrock", frozenset(), extra_body=False, owned=frozenset())
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


def attempt(call_id: str, now: float = 0.0, size: int = 10, model_id: str = "") -> Attempt:
    body = b"x" * size
    return Attempt(call_id, model_id, make_exchange(now=now), Plan(body, body, Mode.TIER, "kept"))


def test_what_is_never_told_is_dropped_by_time() -> None:
    attempts = OpenAttempts()
    attempts.begin(attempt("old", 0.0), 0.0)
    attempts.begin(attempt("young", LONGEST_S), LONGEST_S)
    assert attempts.of("old") is not None
    attempts.begin(attempt("new", LONGEST_S + 1), LONGEST_S + 1)
    assert attempts.of("old") is None
    assert attempts.of("young") is not None


def test_number_and_bytes_are_bounded_and_the_newest_stays() -> None:
    attempts = OpenAttempts()
    for number in range(10_050):
        attempts.begin(attempt(str(number)), 0.0)
    assert [attempts.of(str(number)) is not None for number in (0, 49, 50, 10_049)] == [False, False, True, True]
    attempts.begin(attempt("large", size=200 << 20), 0.0)
    assert attempts.of("10049") is None
    assert attempts.of("large") is not None


def test_an_attempt_ends_once_and_leaves_nothing() -> None:
    attempts, one, other = OpenAttempts(), attempt("call", model_id="a"), attempt("call", model_id="b")
    attempts.begin(one, 0.0)
    attempts.begin(other, 0.0)
    assert attempts.of("call", model_id="a") is one
    assert attempts.of("call") is other
    assert attempts.end(one)
    assert not attempts.end(one)
    assert attempts.of("call", model_id="a") is other
    assert attempts.end(other)
    assert other not in attempts
    assert (attempts.of("call"), attempts.of("other")) == (None, None)


def test_of_many_calls_under_one_id_the_last_ones_stay() -> None:
    attempts, begun = OpenAttempts(), [attempt("chosen") for _ in range(300)]
    for one in begun:
        attempts.begin(one, 0.0)
    assert sum(one in attempts for one in begun) < 150
    assert all(one in attempts for one in begun[-50:])


def test_what_was_used_ahead_must_pass_before_there_is_more() -> None:
    share = ShareOfTime(0.25, 100.0)
    assert share.has_any(100.0)
    share.take(3.0)
    assert not share.has_any(103.9)
    assert share.has_any(104.1)
    # What is left unused is kept for some seconds only.
    assert share.has_any(10_000.0)
    share.take(2.1)
    assert not share.has_any(10_000.0)


async def test_only_the_work_itself_is_taken_from_the_share() -> None:
    taken: list[float] = []
    share = ShareOfTime(0.5)
    share.take = taken.append  # type: ignore[method-assign]
    spent = [0.0]

    async def work() -> str:
        spent[0] += 1.0
        await asyncio.sleep(0.01)
        spent[0] += 2.0
        return "done"

    async def others() -> None:
        spent[0] += 100.0

    both = await asyncio.gather(timed(work(), share, lambda: spent[0]), others())
    assert both[0] == "done"
    assert taken == [1.0, 2.0]


async def test_a_cancellation_is_the_works_to_handle() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cleaned up")

    async def whole() -> None:
        await timed(work(), ShareOfTime(1.0))

    task = asyncio.create_task(whole())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert ended == ["cleaned up"]

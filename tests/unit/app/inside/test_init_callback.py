"""The callback inside LiteLLM: each attempt is planned from the request as it came, and settled once."""

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.app.inside import Work
from proxy.app.inside.incoming import StandDownReason, call_of
from tests.examples import examples
from tests.fidelity.chats import File
from tests.fidelity.checker import check
from tests.fidelity.strategies import Body, sessions
from tests.inside import (
    MODEL_INFO,
    SENDER,
    Callback,
    MadeHost,
    ResponseCache,
    Used,
    answer,
    call,
    details_of,
    is_marked,
    long_messages,
    sample,
    settled,
    stand_downs,
    texts,
)
from tests.talk import assistant, lines, shown, system, user
from tests.waiting import until_async

CHAT = SimpleNamespace(value="acompletion")


async def sent(callback: Callback, arguments: dict[str, Any]) -> dict[str, Any]:
    """What LiteLLM goes on with."""
    return await callback.before_attempt(arguments, CHAT) or arguments


def failure(status: int, message: str = "no") -> Exception:
    error = RuntimeError(message)
    error.status_code = status  # type: ignore[attr-defined]
    return error


async def alone(callback: Callback, arguments: dict[str, Any]) -> dict[str, Any]:
    """A request of its own task, as LiteLLM's proxy has one for each, from its plan to its answer."""

    async def whole() -> dict[str, Any]:
        going = await sent(callback, arguments)
        await callback.after(Work.succeeded, going, answer())
        return going

    return await asyncio.create_task(whole())


async def test_a_plan_takes_the_place_of_the_messages_and_of_nothing_else() -> None:
    callback, arguments = Callback(MadeHost()), call(long_messages())
    before = copy.deepcopy(arguments)
    going = await sent(callback, arguments)
    assert is_marked(going)
    assert texts(going["messages"]) == texts(arguments["messages"])
    assert arguments == before
    assert {n: v for n, v in going.items() if n != "messages"} == {n: v for n, v in before.items() if n != "messages"}
    # What is not touched is the caller's own.
    assert going["messages"][-1] is arguments["messages"][-1] or is_marked({"messages": going["messages"][-1:]})


async def test_what_only_pages_show_is_not_found_out() -> None:
    callback = Callback(MadeHost())
    going = await sent(callback, call(long_messages()))
    work = await callback.work()
    attempt = work.open.of(call_of(going), going)
    assert attempt is not None
    await callback.after(Work.succeeded, going, answer())
    assert attempt.exchange.answer.outcome.usage is not None
    assert attempt.exchange.planned.result.marked is None


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(sessions(), st.booleans())
def test_any_session_says_the_same_from_every_attempt_and_no_argument_is_changed(
    bodies: list[Body], fails: bool
) -> None:
    async def run() -> None:
        callback = Callback(MadeHost())

        async def one(number: int, body: Body) -> None:
            came = {n: v for n, v in body.items() if n in ("messages", "tools", "temperature", "max_tokens")}
            arguments = call(came.pop("messages"), f"call-{number}", **came)
            before, going = copy.deepcopy(arguments), await sent(callback, arguments)
            if fails:
                await callback.after(Work.failed, going, failure(503))
                # LiteLLM's own repetition begins with what it was given.
                again = await sent(callback, going)
                assert again == going
            mine = {n: v for n, v in arguments.items() if n in ("messages", "tools")}
            theirs = {n: v for n, v in going.items() if n in ("messages", "tools")}
            assert check(mine, theirs, mode="tier", profile="anthropic") == []
            assert arguments == before
            await callback.after(Work.succeeded, going, answer())
            assert arguments == before

        for number, body in enumerate(bodies):
            await asyncio.create_task(one(number, body))
        assert settled(callback) == len(bodies) * (2 if fails else 1)
        assert stand_downs(callback, "internal-error") == 0

    asyncio.run(run())


async def test_an_answer_settles_its_attempt_once_and_its_log_line_no_second_time() -> None:
    callback, arguments = Callback(MadeHost()), call(long_messages())
    going = await sent(callback, arguments)
    assert settled(callback) == 0
    for _ in range(2):
        await callback.after(Work.succeeded, going, answer())
        await callback.after(Work.logged, details_of(stream=False), answer())
    assert settled(callback) == 1
    assert sample(callback, "stratiform_tokens_total") > 0


async def test_a_stream_is_settled_by_its_log_line_and_one_whose_client_left_is_known_for_it() -> None:
    callback = Callback(MadeHost())
    for number, has_left in enumerate((False, True)):
        details = details_of(f"call-{number}", standard_logging_object={"error_str": "left" if has_left else None})
        came = call(long_messages(), f"call-{number}", stream=True)
        await sent(callback, came)
        headers = await callback.after(Work.headers, came, object())
        assert headers is not None
        assert headers["x-stratiform-reason"]
        assert settled(callback) == number
        await callback.after(Work.logged, details, answer())
        assert settled(callback) == number + 1
        assert sample(callback, "stratiform_client_disconnects_total") == has_left


@pytest.mark.parametrize("used", [{"prompt_tokens": 3000, "completion_tokens": 5}, "three", 7])
async def test_a_usage_of_any_form_settles_its_attempt(used: object) -> None:
    callback, arguments = Callback(MadeHost()), call(long_messages())
    going = await sent(callback, arguments)
    await callback.after(Work.succeeded, going, SimpleNamespace(usage=used))
    assert settled(callback) == 1
    assert stand_downs(callback, "internal-error") == 0
    assert (sample(callback, "stratiform_tokens_total", kind="output") == 5) is isinstance(used, dict)


async def test_the_call_of_another_key_is_not_ended_whatever_id_a_client_chooses() -> None:
    callback = Callback(MadeHost())
    calls = [call(long_messages(), stream=True, metadata={**SENDER, "user_api_key_hash": key}) for key in "ab"]
    for came in calls:
        await sent(callback, came)
    work = await callback.work()
    mine, theirs = (work.open.of(call_of(came)) for came in calls)
    await callback.after(Work.headers, calls[0], object())
    await callback.after(Work.logged, details_of(metadata=calls[0]["metadata"]), answer())
    assert settled(callback) == 1
    assert mine is not None
    assert theirs is not None
    assert (mine in work.open, theirs in work.open) == (False, True)


@pytest.mark.parametrize("has_left", [False, True])
async def test_of_a_stream_that_was_cut_short_counts_what_the_provider_had_told(has_left: bool) -> None:
    """The cache's share is told by the provider alone: without one, the figures are LiteLLM's own count."""

    async def cut(used: Used) -> float:
        """What the prompt is booked at, in plain tokens."""
        callback, prices = Callback(MadeHost()), {"input_cost_per_token": 1.0, "cache_read_input_token_cost": 0.1}
        came = call(long_messages(), stream=True, **prices, output_cost_per_token=0.0)
        await sent(callback, came)
        await callback.after(Work.headers, came, object())
        details = details_of(standard_logging_object={"error_str": "left"})
        if has_left:
            await callback.after(Work.logged, details, SimpleNamespace(usage=used))
        else:
            await callback.after(Work.broken, {**details, "combined_usage_object": used})
        assert settled(callback) == 1
        return sample(callback, "stratiform_cost_usd_total")

    assert await cut(Used(3000, read=2900)) == pytest.approx(100 + 290)
    assert await cut(Used(300)) > 2000, "as much as we have counted ourselves"


async def test_an_answer_of_the_response_cache_is_no_attempt() -> None:
    callback, arguments = Callback(MadeHost(cache=ResponseCache())), call(long_messages(), caching=True)
    going = await sent(callback, arguments)
    # The key is made of the request as it came, and not of the layout.
    assert going["cache_key"] == "key of Question 0"
    await callback.after(Work.logged, details_of(cache_hit=True), answer())
    await callback.after(Work.succeeded, going, answer())
    assert settled(callback) == 0


async def test_a_cache_that_compares_texts_has_the_request_go_as_it_came() -> None:
    cache = ResponseCache()
    cache.type = "redis-semantic"
    callback = Callback(MadeHost(cache=cache))
    assert await callback.before_attempt(call(long_messages()), CHAT) is None
    assert stand_downs(callback, "semantic-cache") == 1
    assert await callback.before_attempt(call(long_messages(), cache={"no-cache": True}), CHAT) is not None


async def test_a_request_that_is_best_as_it_came_stands_down_for_no_cache() -> None:
    marked = (await sent(Callback(MadeHost()), call(long_messages())))["messages"]
    cache = ResponseCache()
    cache.type = "redis-semantic"
    callback = Callback(MadeHost(cache=cache))
    arguments = call(marked)
    assert await alone(callback, arguments) is arguments
    assert stand_downs(callback, "semantic-cache") == 0
    assert settled(callback) == 1


async def test_a_refused_layout_is_barred_and_one_that_is_too_long_is_not() -> None:
    callback = Callback(MadeHost())

    def of_key(name: str) -> dict[str, str]:
        return {"user_api_key_hash": name}

    async def refused(turns: int, words: str, error: Exception) -> bool:
        going = await sent(callback, call(long_messages(turns), f"{turns}{words}", metadata=of_key(words)))
        await callback.after(Work.failed, going, error)
        return is_marked(going)

    too_long = failure(400, "litellm.ContextWindowExceededError: too long")
    for words, error, is_barred in (("a", failure(400), True), ("b", too_long, False), ("c", failure(429), False)):
        assert await asyncio.create_task(refused(1, words, error))
        going = await alone(callback, call(long_messages(2), f"again {words}", metadata=of_key(words)))
        assert is_marked(going) is not is_barred


@pytest.mark.parametrize("mode", ["tier", "mark", "observe", "passthrough"])
async def test_what_stands_in_front_of_signed_thinking_goes_out_as_it_did_in_every_mode(mode: str) -> None:
    callback = Callback(MadeHost())
    files, edited = [File("a.py", lines(400, "a")), File("b.py", lines(400, "b"))], File("b.py", lines(401, "b"))
    first = [system(lines(400, "rule")), *shown(*files), user("q")]
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    turns = [assistant("Hm.", thinking_blocks=[thought]), user("go on")]
    await alone(callback, call([first[0], *shown(edited, files[0]), user("before")], "a"))
    front = texts((await alone(callback, call(first, "b")))["messages"])
    assert front != texts(first)
    headers = {"user-agent": "sdk", "x-stratiform-mode": mode}
    request = call([*first, *turns], "c", proxy_server_request={"headers": headers})
    assert texts((await alone(callback, request))["messages"]) == front + texts(turns)


async def test_of_nested_calls_the_innermost_is_planned_and_what_only_begins_alike_is_left_alone() -> None:
    callback, arguments = Callback(MadeHost()), call(long_messages())
    outer = await sent(callback, arguments)
    inner = await sent(callback, dict(outer))
    assert inner["messages"] == outer["messages"]
    await callback.after(Work.succeeded, inner, answer())
    await callback.after(Work.succeeded, outer, answer())
    assert settled(callback) == 1
    longer = {**inner, "messages": [*inner["messages"], {"role": "assistant", "content": "fine"}]}
    assert await callback.before_attempt(longer, CHAT) is None
    assert stand_downs(callback, "nested") == 1


@pytest.mark.parametrize("model", ["openai/gpt-5", "anthropic/claude-sonnet-4-5"])
async def test_a_stream_that_another_deployment_goes_on_with_is_an_attempt_of_its_own(model: str) -> None:
    callback, other = Callback(MadeHost()), {**MODEL_INFO, "id": "dep-2"}
    first = call(long_messages(3), stream=True, model=model, api_base=None, model_info={"id": "dep-1"})
    assert await callback.before_attempt(first, CHAT) is not None
    await callback.after(Work.headers, first, object())
    so_far = {"role": "assistant", "content": "One, two", "prefix": True}
    second = call([*first["messages"], so_far], stream=True, model_info=other)
    assert is_marked(await sent(callback, second))
    assert settled(callback) == 1
    await callback.after(Work.headers, second, object())
    await callback.after(Work.logged, details_of(model_info=other), answer())
    assert settled(callback) == 2
    assert stand_downs(callback, "nested") == 0


async def test_each_request_of_a_session_has_the_header_that_keeps_it_on_one_engine() -> None:
    callback = Callback(MadeHost())
    info = {"id": "engines", "cache_profile": "vllm", "session_header": "x-session-id"}
    told = []
    for turn in range(1, 5):
        going = await alone(callback, call(long_messages(turn), f"call-{turn}", model_info=info))
        told.append(going.get("extra_headers"))
    assert told[0] is not None
    assert told == [told[0]] * 4


async def test_injection_points_get_their_slots_or_are_left_out_as_the_operator_says(tmp_path: Path) -> None:
    points = [{"location": "message", "role": "system"}, {"location": "message", "index": -1}]
    arguments = call(long_messages(4), cache_control_injection_points=points)
    kept = await sent(Callback(MadeHost()), arguments)
    assert kept["cache_control_injection_points"] == points
    assert str(kept["messages"]).count("cache_control") in (1, 2)
    replaced = await sent(Callback(MadeHost(tmp_path, callback={"injection_points": "replace"})), arguments)
    assert "cache_control_injection_points" not in replaced
    assert is_marked(replaced)
    everywhere = call(long_messages(5), cache_control_injection_points=[{"location": "message", "role": "user"}])
    callback = Callback(MadeHost())
    assert await callback.before_attempt(everywhere, CHAT) is None
    assert stand_downs(callback, "injection-points") == 1


def lives(arguments: Mapping[str, Any]) -> list[str]:
    """The lives of all markers in their order, with those that LiteLLM adds (its anthropic_cache_control_hook)."""
    messages = copy.deepcopy(arguments["messages"])

    def marked(message: dict[str, Any]) -> list[dict[str, Any]]:
        parts = [message, *(message["content"] if isinstance(message["content"], list) else [])]
        return [part["cache_control"] for part in parts if "cache_control" in part]

    for point in arguments.get("cache_control_injection_points", ()):
        index, role = point.get("index"), point.get("role")
        for message in messages[index : index + 1 or None] if index is not None else messages:
            if (index is not None or message["role"] == role) and not marked(message):
                message["cache_control"] = point.get("control") or {"type": "ephemeral"}
    return [mark.get("ttl", "5m") for message in messages for mark in marked(message)]


TTL = st.sampled_from([{}, {"ttl": "5m"}, {"ttl": "1h"}])
POINTS = st.fixed_dictionaries(
    {"location": st.just("message")},
    optional={
        "index": st.sampled_from([-1, 0]),
        "role": st.sampled_from(["system", "user"]),
        "control": TTL.map(lambda ttl: {"type": "ephemeral", **ttl}),
    },
)


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(POINTS, min_size=1, max_size=2), st.none() | TTL)
def test_no_marker_for_the_longer_life_follows_one_for_the_shorter(
    points: list[dict[str, Any]], own: Mapping[str, str] | None
) -> None:
    async def run() -> None:
        callback = Callback(MadeHost())
        work = await callback.work()
        for turn in range(1, 8):
            work.ports = replace(work.ports, clock=SimpleNamespace(now=lambda turn=turn: 1e9 + 1500 * turn))
            messages = long_messages(turn)
            if own is not None:
                messages[0]["cache_control"] = {"type": "ephemeral", **own}
            arguments = call(messages, f"call-{turn}", cache_control_injection_points=points)
            going = await alone(callback, arguments)
            found = lives(going)
            assert found == sorted(found) or going is arguments, found  # 1h in front of 5m

    asyncio.run(run())


@pytest.mark.parametrize(
    "arguments",
    [
        call("text"), call(None), call([1, None]), call([{"role": "user", "content": {"a": {1, 2}}}]), call([]), {},
        call([{"role": "user", "content": float("nan")}]), call(long_messages(), metadata=3, model_info="x"),
        call(long_messages(), litellm_call_id=7, proxy_server_request=[], model=None),
        call(long_messages(), cache_control_injection_points=[3, {"role": []}]),
        call([{"role": "user", "content": "\ud83d" * 9000}]), call(long_messages(), tools="none"),
    ],
)  # fmt: skip
async def test_nothing_is_raised_into_litellm_whatever_it_says(arguments: dict[str, Any]) -> None:
    callback = Callback(MadeHost())
    going = await sent(callback, arguments)
    await callback.after(Work.headers, arguments, object())
    await callback.after(Work.succeeded, going, SimpleNamespace(usage=None))
    await callback.after(Work.failed, going, failure(500))
    await callback.after(Work.logged, arguments, None)
    await callback.after(Work.broken, arguments)
    assert await callback.before_attempt({"any": 1}, None) is None


async def test_what_is_switched_off_or_no_chat_is_not_touched(tmp_path: Path) -> None:
    callback = Callback(MadeHost(tmp_path))
    assert await callback.before_attempt(call(long_messages()), SimpleNamespace(value="anthropic_messages")) is None
    for info in ({"stratiform": False}, {"stratiform": "observe"}, {"mode": "passthrough"}):
        unplanned = call(long_messages(), model_info={**MODEL_INFO, "id": str(info), **info})
        assert await callback.before_attempt(unplanned, CHAT) is None
    lowered = call(long_messages(), proxy_server_request={"headers": {"X-Stratiform-Mode": "observe"}})
    assert await callback.before_attempt(lowered, CHAT) is None


async def test_planning_that_has_had_its_share_of_time_stands_down(tmp_path: Path) -> None:
    callback = Callback(MadeHost(tmp_path, callback={"share_of_time": 1e-9}))
    assert await callback.before_attempt(call(long_messages()), CHAT) is not None
    callback.share.take(10.0)
    assert await callback.before_attempt(call(long_messages(), "call-2"), CHAT) is None
    assert stand_downs(callback, "share-of-time") == 1


async def test_a_broken_section_is_told_once_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    callback = Callback(MadeHost(tmp_path, mode="fastest", store="nowhere"))
    for _ in range(3):
        assert await callback.before_attempt(call(long_messages()), CHAT) is None
    assert stand_downs(callback, "settings") == 3
    assert caplog.text.count("stratiform.mode: input should be") == 1
    assert caplog.text.count("requests go as they came (settings)") == 1


async def test_a_redis_that_is_not_there_costs_no_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, spool = "redis://127.0.0.1:1/0", str(tmp_path / "spool")
    callback, going = Callback(MadeHost(tmp_path, store=store, spool=spool)), call(long_messages())
    for number in range(20):  # a slow machine may still be starting
        going = await sent(callback, call(long_messages(), f"call-{number}"))
        if is_marked(going):
            break
    await callback.after(Work.succeeded, going, answer())
    assert is_marked(going)
    await until_async(lambda: settled(callback))
    assert settled(callback) == 1
    assert "Follow the guide" not in caplog.text


def test_another_event_loop_is_stood_down_for() -> None:
    callback = Callback(MadeHost())

    async def planned() -> bool:
        return await callback.before_attempt(call(long_messages()), CHAT) is not None

    assert asyncio.run(planned())
    assert not asyncio.run(planned())
    assert stand_downs(callback, "another-loop") == 1


def test_every_reason_to_stand_down_has_a_meaning() -> None:
    page = (Path(__file__).parents[4] / "proxy" / "app" / "inside" / "README.md").read_text("utf-8")
    assert [reason for reason in get_args(StandDownReason) if f"| `{reason}` |" not in page] == []

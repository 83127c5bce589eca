"""Upstreams that will not have panels where they stand, and modes in which nothing is rearranged."""

from collections.abc import Callable, Sequence
from typing import Any

import openai
import pytest
from starlette.types import Message, Receive, Send

from proxy.protocol.providers import MISTRAL, OPENAI, CacheProfile
from tests.e2e.conftest import Proxy, Start
from tests.e2e.provider import DONE, Scripted, Seen, chunk, completion, read_body, replies, streams
from tests.e2e.test_live_panels import TODO, TREE, ask, bodies, outline
from tests.talk import calling, result, tool, user

Body = dict[str, Any]
TALK = ("q", "a", "r")
NEW = TODO | {"content": "rest"}
SAID = "messages.7: unexpected `tool_use` blocks"
THINKING: list[Body] = [
    {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    {"reasoning_effort": "high"},
    {"reasoning": {"effort": "high"}},
]


def is_original(body: Body) -> bool:
    """Whether all panels stand in front of the conversation."""
    names = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    return names[-1] == "panel_footer"


def refusing(is_taken: Callable[[Body], bool]) -> Scripted:
    """A provider that takes these requests only. The others are answered with 400."""
    taken, refused = replies(completion()), replies({"error": {"message": SAID}}, 400)

    async def reply(seen: Seen, send: Send, receive: Receive) -> None:
        await read_body(seen, receive)

        async def nothing() -> Message:
            return {"type": "http.request"}

        await (taken if is_taken(seen.json) else refused)(seen, send, nothing)

    return Scripted(reply)


def test_a_request_with_panels_in_the_conversation_that_is_refused_goes_in_the_original_order(start: Start) -> None:
    provider = refusing(is_original)
    proxy = start(provider)
    ask(proxy, {"panels": [TODO, TREE]})
    answer = ask(proxy, {"panels": [NEW, TREE]}, *TALK)
    assert (answer.headers["x-stratiform-reason"], answer.parse().choices[0].message.content) == ("barred", "fine")
    again = ask(proxy, {"panels": [TODO, TREE]}, *TALK, "b", "s")
    assert again.headers["x-stratiform-reason"] == "barred"
    assert [is_original(body) for body in bodies(provider)] == [True, False, True, True]
    assert len(proxy.ledger.wait(3)) == 3
    assert all("dynamic_panel" in str(body["tools"]) for body in bodies(provider))


def test_where_both_orders_are_refused_the_client_hears_why_and_nothing_is_learnt(start: Start) -> None:
    verdicts = [True]
    provider = refusing(lambda body: verdicts[0])
    proxy = start(provider)
    ask(proxy, {"panels": [TODO, TREE]})
    verdicts[0] = False
    with pytest.raises(openai.BadRequestError, match=SAID):
        ask(proxy, {"panels": [NEW, TREE]}, *TALK)
    verdicts[0] = True
    answer = ask(proxy, {"panels": [NEW, TREE]}, *TALK)
    assert answer.headers["x-stratiform-reason"] != "barred"
    assert [is_original(body) for body in bodies(provider)] == [True, False, True, False]
    assert [exchange.answer.status for exchange in proxy.ledger.wait(3)] == [200, 400, 200]


def test_an_empty_stream_to_panels_in_the_conversation_is_retried_unseen(start: Start) -> None:
    provider = Scripted(replies(completion()), streams(DONE), streams(chunk("he"), chunk("re", finish="stop"), DONE))
    proxy = start(provider)
    ask(proxy, {"panels": [TODO, TREE]})
    answer = ask(proxy, {"panels": [NEW, TREE]}, *TALK, stream=True)
    with answer.parse() as stream:
        assert "".join(part.choices[0].delta.content or "" for part in stream) == "here"
    assert [is_original(body) for body in bodies(provider)] == [True, False, True]
    assert len(proxy.ledger.wait(2)) == 2


def loop(proxy: Proxy, section: Body, messages: Sequence[Body], **extra: Any) -> Any:
    body = {"stratiform": {"session": "s", **section}, **extra}
    return proxy.client.chat.completions.with_raw_response.create(
        model="m", messages=list(messages), tools=[tool("own")], extra_body=body
    )  # type: ignore[call-overload]


@pytest.mark.parametrize("thinking", [{}, *THINKING], ids=lambda fields: next(iter(fields), "none"))
def test_nothing_of_ours_stands_behind_the_newest_results_where_the_model_thinks(start: Start, thinking: Body) -> None:
    provider = Scripted(replies(completion()))
    proxy = start(provider)
    talk = [user("q"), calling("c1"), result("c1", "found")]
    loop(proxy, {"panels": [TODO, TREE]}, talk[:1], **thinking)
    loop(proxy, {"panels": [NEW, TREE]}, talk, **thinking)
    last = bodies(provider)[-1]["messages"][-1]
    assert (last["tool_call_id"] == "c1") is bool(thinking)


def test_where_the_model_thinks_no_call_of_ours_is_the_newest_one(start: Start) -> None:
    """A prompt in the same message as the result of a call goes on with that call, which had to begin with thinking."""
    provider = Scripted(replies(completion()))
    proxy = start(provider)
    for thinking in ({}, *THINKING):
        ask(proxy, {"panels": [TODO, TREE]}, extra=thinking)
    plain, *others = (outline(body) for body in bodies(provider))
    assert plain[-4:] == ["assistant end_panels", "tool Panel", "user Current", "user q"]
    for each in others:
        assert each[-5:] == ["assistant end_panels", "tool Panel", "assistant ok", "user Current", "user q"]


@pytest.mark.parametrize("mode", ["mark", "observe", "passthrough"])
def test_every_mode_sends_what_the_provider_takes(start: Start, mode: str) -> None:
    provider = Scripted(replies(completion()))
    proxy = start(provider)
    for panels, talk in (([TODO, TREE], ("q",)), ([NEW, TREE], TALK)):
        ask(proxy, {"panels": panels}, *talk, headers={"x-stratiform-mode": mode})
    sent = bodies(provider)
    assert [[each["function"]["name"] for each in body["tools"]] for body in sent] == [["dynamic_panel"]] * 2
    assert [is_original(body) for body in sent] == [True, mode != "mark"]
    assert ["stratiform" in body for body in sent] == [False, False]
    if mode != "mark":
        assert b"cache_control" not in b"".join(seen.body for seen in provider.seen)


def mistral_error(body: Body) -> str:
    """What Mistral says of the order of messages and of the ids; nothing where it takes them."""
    messages = body["messages"]
    for before, after in zip(messages, messages[1:], strict=False):
        if (before["role"], after["role"]) == ("tool", "user"):
            return "Unexpected role 'user' after role 'tool'"
    ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    ids += [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    return next((f"Tool call id was {each}" for each in ids if not (len(each) == 9 and each.isalnum())), "")


def test_mistral_takes_what_is_sent_the_first_time(start: Start) -> None:
    provider = refusing(lambda body: not mistral_error(body))
    proxy = start(provider, profile=MISTRAL)
    ask(proxy, {"panels": [TODO, TREE]})
    ask(proxy, {"panels": [NEW, TREE]}, *TALK)
    ask(proxy, {"panels": [NEW, TREE]}, *TALK, "b", "s")
    assert len(provider.seen) == 3
    first, second, third = (body["messages"] for body in bodies(provider))
    assert second[:2] == first[:2]
    assert third[: len(second)] == second


@pytest.mark.parametrize("profile", [OPENAI, MISTRAL])
def test_a_long_name_of_a_panel_makes_no_long_id(start: Start, profile: CacheProfile) -> None:
    provider = Scripted(replies(completion()))
    proxy = start(provider, profile=profile)
    ask(proxy, {"panels": [TODO | {"id": "x" * 55 + end} for end in "ab"]})
    calls = [call["id"] for message in bodies(provider)[0]["messages"] for call in message.get("tool_calls", ())]
    answers = [message["tool_call_id"] for message in bodies(provider)[0]["messages"] if message["role"] == "tool"]
    assert calls == answers
    assert len(set(calls)) == 3
    assert max(map(len, calls)) <= 40

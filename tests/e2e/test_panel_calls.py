"""Calls of live panels by the model, with the real SDK: the client gets one answer, and pays for what was used."""

from typing import Any

import pytest

from tests.doubles import OpenDoor
from tests.e2e.conftest import Proxy, Start
from tests.e2e.provider import DONE, Scripted, chunk, completion, event, replies, streams

TEXT = "src/a.py\n  1 error"
PANELS = [{"id": "P1", "kind": "tree", "header": "Errors", "content": TEXT}]
OURS = {"id": "call_1", "type": "function", "function": {"name": "dynamic_panel", "arguments": '{"id":"P1"}'}}
TOOLS = [{"type": "function", "function": {"name": "grep", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture
def begin(start: Start) -> Any:
    """Starts a proxy for requests with panels, in front of a provider with these answers."""

    def begun(*answers: Any, **fields: Any) -> tuple[Proxy, Scripted]:
        provider = Scripted(*answers)
        return start(provider, **fields), provider

    return begun


def asked(**more: Any) -> dict[str, Any]:
    """A request with a panel, for the SDK."""
    section = {"session": "s", "panels": PANELS}
    prompt = {"role": "user", "content": "What fails?"}
    return {"model": "m", "messages": [prompt], "tools": TOOLS, "extra_body": {"stratiform": section}, **more}


def usage_of(prompt: int, output: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def body(text: str | None, *calls: Any, prompt: int = 100, output: int = 5) -> Any:
    message = {"content": text, **({"tool_calls": list(calls)} if calls else {})}
    return replies({**completion(message, "tool_calls" if calls else "stop"), "usage": usage_of(prompt, output)})


def called(*calls: Any) -> bytes:
    return chunk(tool_calls=[{"index": index, **call} for index, call in enumerate(calls)])


def ended(finish: str, prompt: int = 100, output: int = 5) -> list[bytes]:
    usage = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    return [chunk(finish=finish), event({**usage, "usage": usage_of(prompt, output)}), DONE]


def stream(*events: bytes, finish: str = "stop", prompt: int = 100, output: int = 5) -> Any:
    return streams(chunk("", role="assistant"), *events, *ended(finish, prompt, output))


CALLING = stream(chunk("I look. "), called(OURS), finish="tool_calls")
GOING_ON = body("It fails.", prompt=130, output=7)


def settled(proxy: Proxy) -> Any:
    """The one exchange, and its usage."""
    (exchange,) = proxy.ledger.wait()
    assert exchange.settlement is not None
    return exchange, exchange.settlement.usage


def streamed(proxy: Proxy, **more: Any) -> Any:
    """The answer as the SDK's own helper puts it together."""
    options = {"include_usage": True}
    with proxy.client.chat.completions.stream(**asked(stream_options=options, **more)) as events:
        return events.get_final_completion()


def test_a_streamed_call_of_a_panel_is_answered_in_one_answer(begin: Any) -> None:
    door = OpenDoor()
    proxy, provider = begin(CALLING, GOING_ON, admission=door)
    answer = streamed(proxy)
    (choice,) = answer.choices
    assert (choice.message.content, choice.message.role, choice.finish_reason) == (
        "I look. It fails.",
        "assistant",
        "stop",
    )
    assert not choice.message.tool_calls
    exchange, usage = settled(proxy)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (usage.prompt, usage.output) == (230, 12)
    assert (len(door.reserved), len(door.settled)) == (1, 1)
    assert exchange.answer.panel_calls == {"answered": 1}
    first, second = (seen.json for seen in provider.seen)
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["messages"][-1]["tool_call_id"] == "call_1"
    assert TEXT in second["messages"][-1]["content"]


def test_a_call_of_a_panel_is_answered_in_one_body(begin: Any) -> None:
    proxy, provider = begin(body("I look. ", OURS), body("It fails.", prompt=130, output=7))
    answer = proxy.client.chat.completions.create(**asked())
    assert answer.choices[0].message.content == "I look. It fails."
    assert answer.choices[0].finish_reason == "stop"
    _, usage = settled(proxy)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (usage.prompt, usage.output) == (230, 12)
    assert provider.seen[1].json["messages"][-2]["tool_calls"] == [OURS]


def test_a_client_that_did_not_ask_for_usage_gets_none(begin: Any) -> None:
    proxy, _ = begin(CALLING, GOING_ON)
    found = list(proxy.client.chat.completions.create(**asked(stream=True)))
    assert "".join(one.choices[0].delta.content or "" for one in found) == "I look. It fails."
    assert all(one.usage is None for one in found)
    assert settled(proxy)[1].prompt == 230


def test_a_third_answer_may_be_the_last_one(begin: Any) -> None:
    proxy, provider = begin(body("a", OURS), body("b", OURS), body("c"))
    answer = proxy.client.chat.completions.create(**asked())
    assert answer.choices[0].message.content == "a\n\nb\n\nc"
    first, *further = [len(seen.json["messages"]) for seen in provider.seen]
    assert further == [first + 2, first + 4]
    assert answer.usage.prompt_tokens == settled(proxy)[1].prompt == 300


def test_the_result_is_the_text_by_which_the_panel_stands_in_the_prompt(begin: Any) -> None:
    unknown = {**OURS, "id": "call_9", "function": {"name": "dynamic_panel", "arguments": '{"id":"P9"}'}}
    proxy, provider = begin(body(None, OURS, unknown), body("fine"))
    proxy.client.chat.completions.create(**asked())
    messages = provider.seen[1].json["messages"]
    shown = {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}
    assert shown["call_1"] == shown["panel_P1"]
    assert "P9" not in shown["call_9"]


@pytest.mark.parametrize("size", [1, 7, 50])
def test_a_stream_that_is_cut_anywhere_is_the_same(begin: Any, size: int) -> None:
    named = {"name": "dynamic_panel", "arguments": ""}
    pieces: list[dict[str, Any]] = [{"index": 0, "id": "call_1", "type": "function", "function": named}]
    pieces += [{"index": 0, "function": {"arguments": text}} for text in ('{"i', 'd":"P', '1"}')]
    data = b"".join([chunk("I look. "), *(chunk(tool_calls=[one]) for one in pieces), *ended("tool_calls")])
    cut = [data[at : at + size] for at in range(0, len(data), size)]
    proxy, provider = begin(streams(*cut), GOING_ON)
    assert streamed(proxy).choices[0].message.content == "I look. It fails."
    assert provider.seen[1].json["messages"][-2]["tool_calls"] == [OURS]

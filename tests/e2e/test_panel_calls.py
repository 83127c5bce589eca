"""Calls of live panels by the model, with the real SDK: the client gets one answer, and pays for what was used."""

from collections.abc import Sequence
from typing import Any

import openai
import pytest

from proxy.engine.exchange import ExchangeOutcome
from tests.doubles import OpenDoor
from tests.e2e.conftest import Proxy, Start
from tests.e2e.provider import DONE, Scripted, chunk, completion, event, replies, streams

TEXT = "src/a.py\n  1 error"
PANELS = [{"id": "P1", "kind": "tree", "header": "Errors", "content": TEXT}]
OURS = {"id": "call_1", "type": "function", "function": {"name": "dynamic_panel", "arguments": '{"id":"P1"}'}}
THEIRS = {"id": "call_2", "type": "function", "function": {"name": "grep", "arguments": '{"q":"x"}'}}
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


@pytest.mark.parametrize("order", [[OURS, THEIRS], [THEIRS, OURS], [OURS, THEIRS, OURS]])
def test_beside_its_own_calls_a_client_does_not_see_ours(begin: Any, order: Sequence[Any]) -> None:
    calls = [{**call, "id": f"call_{index}"} for index, call in enumerate(order)]
    proxy, provider = begin(stream(called(*calls), finish="tool_calls"))
    message = streamed(proxy).choices[0].message
    assert [call.function.name for call in message.tool_calls] == ["grep"]
    assert streamed_body(begin, calls) == ["grep"]
    assert len(provider.seen) == 1


def streamed_body(begin: Any, calls: Sequence[Any]) -> list[str]:
    proxy, _ = begin(body(None, *calls))
    answer = proxy.client.chat.completions.create(**asked())
    assert answer.choices[0].finish_reason == "tool_calls"
    return [call.function.name for call in answer.choices[0].message.tool_calls]


def test_two_further_calls_are_made_at_the_most(begin: Any) -> None:
    proxy, provider = begin(CALLING, body("I look. ", OURS))
    answer = streamed(proxy)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("I look. " * 3, "stop")
    assert len(provider.seen) == 3
    exchange, usage = settled(proxy)
    assert exchange.answer.panel_calls == {"answered": 2, "gave_up": 1}
    assert answer.usage.prompt_tokens == usage.prompt == 300


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


def test_of_several_answers_ours_is_taken_out(begin: Any) -> None:
    two = completion({"content": "a", "tool_calls": [OURS]}, "tool_calls")
    other = {"index": 1, "finish_reason": "stop", "message": {"role": "assistant", "content": "b"}}
    proxy, provider = begin(replies({**two, "choices": [*two["choices"], other]}))  # type: ignore[misc]
    answer = proxy.client.chat.completions.create(**asked(n=2))
    assert [(one.message.content, one.finish_reason) for one in answer.choices] == [("a", "stop"), ("b", "stop")]
    assert not answer.choices[0].message.tool_calls
    assert len(provider.seen) == 1


@pytest.mark.parametrize("status", [400, 429, 500])
def test_an_answer_whose_further_call_fails_ends_with_the_words_that_came(begin: Any, status: int) -> None:
    failing = replies({"error": {"message": "no"}}, status)
    proxy, _ = begin(CALLING, failing)
    answer = streamed(proxy)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("I look. ", "stop")
    exchange, usage = settled(proxy)
    assert answer.usage.prompt_tokens == usage.prompt == 100
    assert exchange.answer.panel_calls == {"failed": 1}
    proxy, _ = begin(body("I look.", OURS), failing)
    whole = proxy.client.chat.completions.create(**asked())
    assert (whole.choices[0].message.content, whole.choices[0].message.tool_calls) == ("I look.", None)


def test_an_answer_without_words_whose_further_call_fails_is_an_error(begin: Any) -> None:
    proxy, _ = begin(body(None, OURS), replies({"error": {"message": "no"}}, 400))
    with pytest.raises(openai.InternalServerError) as found:
        proxy.client.chat.completions.create(**asked())
    assert found.value.code == "upstream_error"
    (exchange,) = proxy.ledger.wait()
    assert exchange.lost.usage is not None
    assert exchange.lost.usage.prompt == 100


def test_a_client_that_hangs_up_during_a_further_call_ends_it_and_is_billed_once(begin: Any) -> None:
    door = OpenDoor()
    waiting = streams(b"{", ends=False)
    proxy, provider = begin(CALLING, waiting, admission=door)
    found = proxy.client.chat.completions.create(**asked(stream=True))
    for one in found:
        if one.choices[0].delta.content == "I look. ":
            break
    assert provider.wait(2)
    found.close()
    assert provider.wait(2).gone.wait(60)
    exchange, usage = settled(proxy)
    assert (exchange.ending, len(door.settled), len(provider.seen)) == (ExchangeOutcome.HUNG_UP, 1, 2)
    assert usage.prompt > 200

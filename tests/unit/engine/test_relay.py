"""Requests that the upstream refuses as too large: what their capability profile makes of them."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy.engine.exchange import Exchange, ExchangeOutcome
from proxy.engine.relay import empty_completion
from proxy.kit.errors import ContextTooLong, UpstreamRejected
from proxy.prompts.window import Capability, CapabilityProfile, OverBudget
from proxy.protocol.request.demand import Demand
from proxy.protocol.response import StreamFold
from tests.doubles import RewritingPlanner
from tests.examples import for_every
from tests.exchanges import make_exchange, settled
from tests.unit.engine.parts import (
    BODY,
    DONE,
    JSON,
    ROLE,
    WORD,
    Bench,
    MemoryClient,
    Script,
    answers,
    chat_body,
    code,
    ended,
    event,
)

EMPTY = CapabilityProfile("mine", Capability.COMPLETION, over_budget=OverBudget.EMPTY)
RETRY = replace(EMPTY, over_budget=OverBudget.RETRY)
ERROR = replace(EMPTY, over_budget=OverBudget.ERROR)
SAID = {"message": "prompt is too long: 5 tokens > 4 maximum, in SECRET", "type": "invalid_request_error"}
RAISED = UpstreamRejected("prompt is too long: 5 tokens > 4 maximum", status=400, error_type="invalid_request_error")


def refusal(status: int = 400) -> Script:
    """An upstream's refusal in Anthropic's words."""
    return answers(orjson.dumps({"error": SAID}), status=status, headers=JSON)


def streamed(*before: bytes) -> Script:
    """A refusal as the first event of a stream that is otherwise empty."""
    return answers(*before, event({"error": SAID}))


def refusals(exchange: Exchange) -> dict[str, int]:
    """What became of refused requests."""
    return {outcome.value: count for outcome, count in exchange.answer.context_refusals.items()}


def long_body(chars: int, **more: object) -> bytes:
    """A chat request with so long a message."""
    return chat_body(messages=[{"role": "user", "content": "x" * chars}], **more)


@for_every([refusal(), refusal(413), refusal(422), refusal(500), RAISED, streamed()])
def test_a_profile_may_ask_for_an_empty_completion(refused: Script | UpstreamRejected) -> None:
    bench = Bench(refused, window=EMPTY)
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.has_ended) == (200, True)
    assert orjson.loads(client.answer)["choices"][0]["message"]["content"] == ""
    assert client.answer_headers["content-type"] == "application/json"
    assert client.answer_headers["x-stratiform-outcome"] == "over_budget"
    exchange = ended(bench)
    assert (exchange.ending, exchange.is_billed, exchange.answer.error_code) == (ExchangeOutcome.COMPLETED, False, "")
    assert (refusals(exchange), len(bench.upstream.calls)) == ({"empty": 1}, 1)
    assert settled(exchange).usage is None


@for_every([refusal(), RAISED, streamed(), streamed(ROLE)])
def test_a_client_that_streams_gets_an_empty_stream(refused: Script | UpstreamRejected) -> None:
    bench = Bench(refused, window=EMPTY)
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert (client.status, client.answer_headers["content-type"]) == (200, "text/event-stream")
    assert client.answer.endswith(DONE)
    assert not any(word in client.answer for word in (b"SECRET", b"error"))
    assert refusals(ended(bench)) == {"empty": 1}


@pytest.mark.parametrize("stream", [False, True])
def test_a_profile_may_ask_for_an_error_in_openais_form(stream: bool) -> None:
    bench = Bench(refusal(), window=ERROR)
    client = bench.chat(MemoryClient(chat_body(stream=stream)))
    error = orjson.loads(client.answer)["error"]
    assert (client.status, error["code"], error["type"]) == (400, "context_length_exceeded", "invalid_request_error")
    assert error["param"] == "messages"
    assert "SECRET" not in error["message"]
    assert client.answer_headers["x-stratiform-outcome"] == "over_budget"
    exchange = ended(bench)
    assert (exchange.ending, exchange.is_billed) == (ExchangeOutcome.REJECTED, False)
    assert refusals(exchange) == {"error": 1}


def test_a_smaller_request_follows_and_a_still_smaller_one() -> None:
    smaller = [long_body(75), long_body(50)]
    bench = Bench(refusal(), refusal(), answers(BODY, headers=JSON), window=RETRY, smaller=smaller)
    client = bench.chat(MemoryClient(long_body(100)))
    assert (client.status, client.answer) == (200, BODY)
    assert bench.upstream.bodies == [long_body(100), *smaller]
    assert bench.windows.scales == [0.75, 0.5]
    assert "x-stratiform-outcome" not in client.answer_headers
    exchange = ended(bench)
    assert (refusals(exchange), exchange.attempts) == ({"retried": 2}, 3)
    usage = settled(exchange).usage
    assert usage is not None
    assert usage.prompt == 4


@for_every([refusal(), RAISED, streamed(), streamed(ROLE)])
def test_a_stream_follows_where_the_first_one_was_refused(refused: Script | UpstreamRejected) -> None:
    bench = Bench(refused, answers(WORD, DONE), window=RETRY, smaller=[long_body(75, stream=True)])
    client = bench.chat(MemoryClient(long_body(100, stream=True)))
    assert (client.answer, bench.windows.scales) == (WORD + DONE, [0.75])
    exchange = ended(bench)
    assert (exchange.ending, exchange.answer.error_code) == (ExchangeOutcome.COMPLETED, "")
    assert bench.planner.events[-1] == "completed"


@for_every(
    [
        ([long_body(75), long_body(50)], 3),
        ([None, None], 1),
        ([ContextTooLong("no")], 1),
        ([long_body(200), long_body(50)], 2),
    ]
)
def test_what_is_too_large_at_every_size_is_an_error(
    smaller: Sequence[bytes | ContextTooLong | None], calls: int
) -> None:
    bench = Bench(refusal(), refusal(), refusal(), window=RETRY, smaller=smaller)
    client = bench.chat(MemoryClient(long_body(100)))
    assert (client.status, code(client)) == (400, "context_length_exceeded")
    assert len(bench.upstream.calls) == calls
    assert refusals(ended(bench))["error"] == 1


def test_the_first_refusal_teaches_and_is_answered_by_one_smaller_try() -> None:
    for window in (EMPTY, ERROR):
        bench = Bench(refusal(), answers(BODY, headers=JSON), window=window, learnt=long_body(50))
        client = bench.chat(MemoryClient(long_body(100)))
        assert (client.status, client.answer) == (200, BODY)
        assert bench.upstream.bodies == [long_body(100), long_body(50)]
        assert bench.windows.named == [5]
        assert refusals(ended(bench)) == {"retried": 1}
    bench = Bench(refusal(), refusal(), window=ERROR, learnt=long_body(50))
    assert code(bench.chat(MemoryClient(long_body(100)))) == "context_length_exceeded"
    assert refusals(ended(bench)) == {"retried": 1, "error": 1}


OTHER = {**SAID, "message": f"temperature is wrong: {SAID['message']}"}


@for_every([(SAID, None, {"passed": 1}), (OTHER, EMPTY, {})])
def test_without_a_profile_or_about_another_thing_the_upstreams_answer_passes_as_it_is(
    said: dict[str, str], window: CapabilityProfile | None, counted: dict[str, int]
) -> None:
    body = orjson.dumps({"error": said})
    bench = Bench(answers(body, status=400, headers=JSON), window=window)
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, client.answer) == (400, body)
    assert "x-stratiform-outcome" not in client.answer_headers
    assert refusals(ended(bench)) == counted


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_quotes_a_refusal_is_an_answer(stream: bool) -> None:
    words = str(SAID["message"])
    choice = {"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}
    whole = orjson.dumps({"choices": [choice]})
    said = event({"choices": [{"index": 0, "delta": {"content": words}}]})
    script = answers(said, DONE) if stream else answers(whole, headers=JSON)
    bench = Bench(script, window=EMPTY)
    client = bench.chat(MemoryClient(chat_body(stream=stream)))
    assert client.answer == (said + DONE if stream else whole)
    assert refusals(ended(bench)) == {}


def test_nothing_follows_once_a_word_has_reached_the_client() -> None:
    bench = Bench(answers(WORD, event({"error": SAID})), window=EMPTY)
    client = bench.chat(MemoryClient(chat_body(stream=True)))
    assert client.answer.startswith(WORD)
    assert b"SECRET" in client.answer
    exchange = ended(bench)
    assert refusals(exchange) == {}
    assert exchange.is_billed


def test_a_layout_is_not_to_blame_for_the_length_of_the_prompt() -> None:
    bench = Bench(refusal(), planner=RewritingPlanner(), window=EMPTY)
    client = bench.chat(MemoryClient(chat_body()))
    assert (client.status, len(bench.upstream.calls)) == (200, 1)
    assert bench.planner.events == []
    assert not ended(bench).planned.was_retried


def test_a_refusal_is_logged_by_its_size_without_a_word_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="stratiform")
    bench = Bench(refusal(), window=replace(EMPTY, name="my profile\n"))
    bench.chat(MemoryClient(chat_body()))
    (line,) = [record.getMessage() for record in caplog.records if "refused as too large" in record.getMessage()]
    assert "profile=my?profile? outcome=empty attempt=1" in line
    assert f"in_bytes={len(chat_body())} conversation_tokens={len(chat_body())}" in line
    assert "SECRET" not in caplog.text


def made(*, stream: bool = True, wants_usage: bool = False, model: str = "m", answers: int = 1) -> bytes:
    """The answer to a chat request."""
    asked = {"stream": stream, "wants_usage": wants_usage, "model": model, "demand": Demand(answers=answers)}
    return empty_completion(make_exchange(now=1_700_000_000, id="sx-1", is_chat=True, **asked))


def chunks(stream: bytes) -> list[ChatCompletionChunk]:
    """The chunks of a stream, which ends with its mark."""
    *events, last, rest = stream.split(b"\n\n")
    assert (last, rest) == (b"data: [DONE]", b"")
    return [ChatCompletionChunk.model_validate_json(event.removeprefix(b"data: "), strict=True) for event in events]


def test_the_body_is_a_completion_without_a_word() -> None:
    read = ChatCompletion.model_validate_json(made(stream=False), strict=True)
    assert (read.id, read.model, read.created, read.object) == ("chatcmpl-sx-1", "m", 1_700_000_000, "chat.completion")
    (choice,) = read.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "", "stop")
    assert read.usage is not None
    assert read.usage.total_tokens == 0


@for_every([False, True])
def test_the_events_are_a_stream_without_a_word_and_with_usage_where_it_was_asked_for(wants_usage: bool) -> None:
    stream = made(wants_usage=wants_usage)
    opened, closed, *last = chunks(stream)
    assert (opened.choices[0].delta.role, opened.choices[0].delta.content) == ("assistant", "")
    assert closed.choices[0].finish_reason == "stop"
    assert (opened.usage, closed.usage) == (None, None)
    assert [(chunk.choices, chunk.usage and chunk.usage.total_tokens) for chunk in last] == [([], 0)] * wants_usage
    fold = StreamFold()
    fold.feed(stream)
    fold.close()
    outcome = fold.outcome()
    assert (outcome.finish_reason, outcome.error, outcome.saw_content) == ("stop", None, False)


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (1, 1), (3, 3), (1 << 53, 128)])
def test_there_are_as_many_answers_as_were_asked_for_within_a_bound(asked: int, given: int) -> None:
    body = orjson.loads(made(stream=False, answers=asked))
    assert [choice["index"] for choice in body["choices"]] == list(range(given))
    assert all(len(chunk.choices) == given for chunk in chunks(made(answers=asked)))


@given(st.text(st.characters(), max_size=40))
def test_any_name_of_a_model_can_be_written(model: str) -> None:
    assert isinstance(orjson.loads(made(stream=False, model=model))["model"], str)
    assert len(chunks(made(model=model, wants_usage=True))) == 3

"""Completions in which the model says nothing."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy.core.request.demand import Demand
from proxy.core.response.stream import StreamFold
from proxy.engine.relay import empty_completion
from tests.exchanges import make_exchange


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


def test_the_events_are_a_stream_without_a_word() -> None:
    opened, closed = chunks(made())
    assert (opened.choices[0].delta.role, opened.choices[0].delta.content) == ("assistant", "")
    assert closed.choices[0].finish_reason == "stop"
    assert (opened.usage, closed.usage) == (None, None)


def test_usage_comes_in_a_chunk_of_its_own_where_it_was_asked_for() -> None:
    *_, last = chunks(made(wants_usage=True))
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == 0


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (1, 1), (3, 3), (1 << 53, 128)])
def test_there_are_as_many_answers_as_were_asked_for_within_a_bound(asked: int, given: int) -> None:
    body = orjson.loads(made(stream=False, answers=asked))
    assert [choice["index"] for choice in body["choices"]] == list(range(given))
    assert all(len(chunk.choices) == given for chunk in chunks(made(answers=asked)))


@given(st.text(st.characters(), max_size=40))
def test_any_name_of_a_model_can_be_written(model: str) -> None:
    assert isinstance(orjson.loads(made(stream=False, model=model))["model"], str)
    assert len(chunks(made(model=model, wants_usage=True))) == 3


def test_the_stream_reads_as_one_that_has_ended_well() -> None:
    fold = StreamFold()
    fold.feed(made(wants_usage=True))
    fold.close()
    outcome = fold.outcome()
    assert (outcome.finish_reason, outcome.error, outcome.saw_content) == ("stop", None, False)

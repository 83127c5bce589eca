"""How many tokens of an answer have come, in every dialect and however the stream is cut."""

import json
from collections.abc import Iterable

import pytest

from proxy.core.response.received import Received
from proxy.core.response.stream import StreamFold
from tests.examples import chosen, for_every
from tests.growth import assert_linear

WORDS = ["The ", "proxy ", "counts ", "what ", "it ", "has ", "received, ", "and ", "nothing ", "else. "]


def chat(text: str) -> object:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}  # fmt: skip


def tool(text: str) -> object:
    call = {"index": 0, "id": "call_1", "function": {"arguments": text}}
    return {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}


def thought(text: str) -> object:
    return {"id": "c", "choices": [{"index": 0, "delta": {"reasoning_content": text}, "finish_reason": None}]}


def completion(text: str) -> object:
    return {"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": None}]}


def response(text: str) -> object:
    return {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "delta": text, "logprobs": []}


def anthropic(text: str) -> object:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


def anthropic_tool(text: str) -> object:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}}


def anthropic_thought(text: str) -> object:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": text}}


def gemini(text: str) -> object:
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}], "modelVersion": "g"}


DIALECTS = [
    chat, tool, thought, completion, response, anthropic, anthropic_tool, anthropic_thought, gemini,
]  # fmt: skip


def events(shape: object, pieces: Iterable[str]) -> bytes:
    assert callable(shape)
    return b"".join(b"data: " + json.dumps(shape(piece)).encode() + b"\n\n" for piece in pieces)


@pytest.mark.parametrize("shape", DIALECTS, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("count", chosen([3, 40, 3000], 3, 40))
@pytest.mark.parametrize("cut", [37, 1460, 1 << 20])
def test_text_is_counted_and_not_its_frame(shape: object, count: int, cut: int) -> None:
    pieces = [WORDS[i % len(WORDS)] for i in range(count)]
    stream, fold = events(shape, pieces), StreamFold()
    for at in range(0, len(stream), cut):
        fold.feed(stream[at : at + cut])
    assert fold.written
    # A word of this text is about 1.2 tokens.
    assert fold.outcome().tokens == pytest.approx(1.2 * count, rel=0.35, abs=2)


@for_every(DIALECTS)
def test_one_large_event_counts_as_its_text(shape: object) -> None:
    fold = StreamFold()
    fold.feed(events(shape, ["".join(WORDS) * 300]))
    assert fold.outcome().tokens == pytest.approx(3600, rel=0.35)


def test_scripts_without_spaces_count_by_character() -> None:
    received = Received()
    received.add(events(chat, ["統計的機械学習" * 50]))
    assert received.tokens() == pytest.approx(350, rel=0.4)


def test_what_the_responses_api_says_again_is_not_counted_again() -> None:
    stream = events(response, WORDS * 20)
    again = {"type": "response.output_text.done", "text": "".join(WORDS) * 20}
    fold = StreamFold()
    fold.feed(stream)
    before = fold.outcome().tokens
    fold.feed(b"data: " + json.dumps(again).encode() + b"\n\n")
    assert fold.outcome().tokens == pytest.approx(before, rel=0.3)


def test_where_the_usage_came_nothing_is_estimated() -> None:
    fold = StreamFold()
    fold.feed(events(chat, WORDS) + b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n')
    assert fold.outcome().tokens > 0, "more of the answer could follow"
    fold.feed(b"data: [DONE]\n\n")
    assert fold.outcome().tokens == 0


def test_what_is_received_is_counted_in_linear_time() -> None:
    chunk = events(chat, WORDS)

    def work(chunks: range) -> None:
        received = Received()
        for _ in chunks:
            received.add(chunk)

    assert_linear(work, range, 1_000)

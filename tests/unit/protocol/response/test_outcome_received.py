"""How many tokens of an answer have come, in every dialect and however the stream is cut."""

import json
from collections.abc import Callable, Iterable

import pytest

from proxy.protocol.response import StreamFold
from proxy.protocol.response.outcome import Received
from tests.examples import chosen, for_every
from tests.growth import assert_linear

WORDS = ["The ", "proxy ", "counts ", "what ", "it ", "has ", "received, ", "and ", "nothing ", "else. "]


def choice(**said: object) -> object:
    """An event of a chat or of a completion."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [{"index": 0, **said, "finish_reason": None}]}


def block(kind: str, name: str, text: str) -> object:
    """An event of Anthropic's messages."""
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, name: text}}


def chat(text: str) -> object:
    return choice(delta={"content": text})


def response(text: str) -> object:
    return {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "delta": text, "logprobs": []}


DIALECTS: dict[str, Callable[[str], object]] = {
    "chat": chat,
    "tool": lambda text: choice(delta={"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": text}}]}),
    "thought": lambda text: choice(delta={"reasoning_content": text}),
    "completion": lambda text: choice(text=text),
    "response": response,
    "anthropic": lambda text: block("text_delta", "text", text),
    "anthropic tool": lambda text: block("input_json_delta", "partial_json", text),
    "anthropic thought": lambda text: block("thinking_delta", "thinking", text),
    "gemini": lambda text: {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}]},
}


def events(shape: Callable[[str], object], pieces: Iterable[str]) -> bytes:
    return b"".join(b"data: " + json.dumps(shape(piece)).encode() + b"\n\n" for piece in pieces)


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("count", chosen([3, 40, 3000], 3, 40))
@pytest.mark.parametrize("cut", [37, 1460, 1 << 20])
def test_text_is_counted_and_not_its_frame(name: str, count: int, cut: int) -> None:
    pieces = [WORDS[i % len(WORDS)] for i in range(count)]
    stream, fold = events(DIALECTS[name], pieces), StreamFold()
    for at in range(0, len(stream), cut):
        fold.feed(stream[at : at + cut])
    assert fold.written
    # A word of this text is about 1.2 tokens.
    assert fold.outcome().tokens == pytest.approx(1.2 * count, rel=0.35, abs=2)


@for_every(DIALECTS)
def test_one_large_event_counts_as_its_text(name: str) -> None:
    fold = StreamFold()
    fold.feed(events(DIALECTS[name], ["".join(WORDS) * 300]))
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

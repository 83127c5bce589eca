"""Answers on the wire: OpenAI's chat and completion objects, whole and as server-sent events."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.upstream.embedded.completion import Completion

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every object of one answer carries."""

    id: str
    created: int
    model: str


def chat_body(envelope: Envelope, choices: Sequence[Completion], usage: Mapping[str, Any]) -> bytes:
    """A ``chat.completion``."""
    rows = [
        {"index": i, "message": {**c.message(), "refusal": None}, "logprobs": None, "finish_reason": c.finish_reason}
        for i, c in enumerate(choices)
    ]
    return orjson.dumps(_object(envelope, "chat.completion", rows, usage))


def chat_events(
    envelope: Envelope, choices: Sequence[Completion], usage: Mapping[str, Any], *, include_usage: bool
) -> list[bytes]:
    """A ``chat.completion`` as events, with ``[DONE]`` at the end. The usage has an event of its own, where it was
    asked for."""

    def event(index: int, delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        row = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = _object(envelope, "chat.completion.chunk", [row], None)
        if not include_usage:
            del chunk["usage"]
        return b"data: " + orjson.dumps(chunk) + b"\n\n"

    events: list[bytes] = []
    for index, choice in enumerate(choices):
        events += [event(index, delta) for delta in _deltas(choice)]
        events.append(event(index, {}, choice.finish_reason))
    if include_usage:
        chunk = _object(envelope, "chat.completion.chunk", [], usage)
        events.append(b"data: " + orjson.dumps(chunk) + b"\n\n")
    return [*events, DONE]


def text_body(envelope: Envelope, choice: Completion, usage: Mapping[str, Any]) -> bytes:
    """A ``text_completion``."""
    row = {"index": 0, "text": choice.text, "logprobs": None, "finish_reason": choice.finish_reason}
    return orjson.dumps(_object(envelope, "text_completion", [row], usage))


def text_events(
    envelope: Envelope, choice: Completion, usage: Mapping[str, Any], *, include_usage: bool
) -> list[bytes]:
    """A ``text_completion`` as events, with ``[DONE]`` at the end."""
    rows = [{"index": 0, "text": piece, "logprobs": None, "finish_reason": None} for piece in choice.pieces]
    rows.append({"index": 0, "text": "", "logprobs": None, "finish_reason": choice.finish_reason})
    chunks = [_object(envelope, "text_completion", [row], None) for row in rows]
    if include_usage:
        chunks.append(_object(envelope, "text_completion", [], usage))
    return [*(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks), DONE]


def _deltas(choice: Completion) -> Iterator[dict[str, Any]]:
    """The deltas in the order in which OpenAI streams them: first the role, then the text by pieces, or for each call
    first its name and then its arguments."""
    yield {"role": "assistant", "content": None if choice.calls else ""}
    for piece in choice.pieces:
        yield {"content": piece}
    for index, call in enumerate(choice.calls):
        function = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]}


def _object(
    envelope: Envelope, kind: str, choices: Sequence[Mapping[str, Any]], usage: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        "id": envelope.id,
        "object": kind,
        "created": envelope.created,
        "model": envelope.model,
        "choices": choices,
        "usage": usage,
    }

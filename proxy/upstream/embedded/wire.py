"""Answers on the wire: OpenAI's chat and completion objects, whole and as server-sent events, with the provider's own
usage fields.

Anthropic's usage as litellm 1.109 hands it on (``llms/anthropic/chat/transformation.py``, ``calculate_usage``):
inclusive, with Anthropic's own counters beside. OpenAI's is inclusive; GPT-5.6 and newer add ``cache_write_tokens``.
DeepSeek splits the prompt into hit and miss; Kimi repeats the read beside the details; DashScope names the explicit
cache's creation in the details (https://www.alibabacloud.com/help/en/model-studio/context-cache).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

import orjson

from proxy.core.caches.prompt import Bill
from proxy.core.providers import CacheProfile, UsageForm
from proxy.core.value import dataclass
from proxy.upstream.embedded.completion import Completion


def usage_fields(bill: Bill, output_tokens: int, profile: CacheProfile) -> dict[str, Any]:
    """The ``usage`` object of an answer."""
    return {
        "prompt_tokens": bill.total,
        "completion_tokens": output_tokens,
        "total_tokens": bill.total + output_tokens,
        **_cached(bill, profile.usage),
    }


def _cached(bill: Bill, form: UsageForm) -> dict[str, Any]:
    """The counters of the cache."""
    read_and_written = {"cached_tokens": bill.read, "cache_write_tokens": bill.write}
    match form:
        case UsageForm.ANTHROPIC:
            lives = {"ephemeral_5m_input_tokens": bill.write_5m, "ephemeral_1h_input_tokens": bill.write_1h}
            return {
                "prompt_tokens_details": {
                    "cached_tokens": bill.read,
                    "cache_creation_tokens": bill.write,
                    "cache_creation_token_details": lives,
                },
                "cache_read_input_tokens": bill.read,
                "cache_creation_input_tokens": bill.write,
                "cache_creation": lives,
            }
        case UsageForm.OPENAI:
            return {"prompt_tokens_details": {"cached_tokens": bill.read, "audio_tokens": 0}}
        case UsageForm.OPENAI_WRITES:
            return {"prompt_tokens_details": read_and_written}
        case UsageForm.KIMI:
            return {"cached_tokens": bill.read, "prompt_tokens_details": read_and_written}
        case UsageForm.DASHSCOPE:
            return {
                "prompt_tokens_details": {
                    "cached_tokens": bill.read,
                    "cache_creation_input_tokens": bill.write,
                    "cache_creation": {"ephemeral_5m_input_tokens": bill.write},
                    "cache_type": "ephemeral",
                }
            }
        case UsageForm.DEEPSEEK:
            return {"prompt_cache_hit_tokens": bill.read, "prompt_cache_miss_tokens": bill.total - bill.read}
        case UsageForm.NONE:
            return {}
        case _:
            assert_never(form)


DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Envelope:
    """The members that every object of one answer has."""

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

"""Answers in the form in which they are sent: OpenAI's chat and completion objects, whole and as server-sent events,
with the provider's own usage fields.

Anthropic's usage has the form in which litellm 1.109 passes it on (``llms/anthropic/chat/transformation.py``,
``calculate_usage``): the prompt tokens include the cached tokens, and Anthropic's own counters are added. OpenAI's
prompt tokens include the cached tokens; GPT-5.6 and newer add ``cache_write_tokens``. DeepSeek splits the prompt into
hit and miss. Kimi repeats the cache read outside of the details. DashScope names the explicit cache's creation in the
details (https://www.alibabacloud.com/help/en/model-studio/context-cache).
"""

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

import orjson

from proxy.core.caches.prompt import Bill
from proxy.core.providers import CacheProfile, UsageForm
from proxy.core.response.event_format import DONE, event_of
from proxy.upstream.embedded.blocks import Json
from proxy.upstream.embedded.completion import Completion

CHAT = "chat.completion"
CHUNK = "chat.completion.chunk"
TEXT = "text_completion"
Rows = Sequence[Json]


def usage_fields(bill: Bill, output_tokens: int, profile: CacheProfile) -> dict[str, Any]:
    """The ``usage`` object of an answer."""
    return {
        "prompt_tokens": bill.total,
        "completion_tokens": output_tokens,
        "total_tokens": bill.total + output_tokens,
        **_cached(bill, profile.usage),
    }


def _cached(bill: Bill, form: UsageForm) -> dict[str, Any]:
    """The usage fields about the cache."""
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


def answer_of(named: Json, rows: Rows, pieces: Rows | None, usage: Json, *, include_usage: bool) -> list[bytes]:
    """An answer as one object with these rows. If there are ``pieces``, the answer is a stream instead, with one event
    for each piece and ``[DONE]`` at the end. If the usage was asked for, it has its own event. ``named`` are the
    members that every object of the answer has."""
    if pieces is None:
        return [orjson.dumps({**named, "choices": rows, "usage": usage})]
    is_chat = named["object"] == CHAT
    head = {**named, "object": CHUNK} if is_chat else named
    chunks = [{**head, "choices": [row], "usage": None} for row in pieces]
    if include_usage:
        chunks.append({**head, "choices": [], "usage": usage})
    elif is_chat:
        for chunk in chunks:
            del chunk["usage"]
    return [*(event_of(orjson.dumps(chunk)) for chunk in chunks), DONE]


def chat_rows(choices: Sequence[Completion]) -> Rows:
    """The choices of a ``chat.completion``."""
    return [_row(i, "message", {**c.message(), "refusal": None}, c.finish_reason) for i, c in enumerate(choices)]


def chat_pieces(choices: Sequence[Completion]) -> Rows:
    """The same choices in pieces, in the order in which they are streamed."""
    rows: list[Json] = []
    for index, choice in enumerate(choices):
        rows += [_row(index, "delta", delta, None) for delta in _deltas(choice)]
        rows.append(_row(index, "delta", {}, choice.finish_reason))
    return rows


def text_rows(choice: Completion) -> Rows:
    """The choice of a ``text_completion``."""
    return [_row(0, "text", choice.text, choice.finish_reason)]


def text_pieces(choice: Completion) -> Rows:
    """The same choice in pieces."""
    return [*(_row(0, "text", piece, None) for piece in choice.pieces), _row(0, "text", "", choice.finish_reason)]


def _row(index: int, name: str, said: object, finish_reason: str | None) -> Json:
    return {"index": index, name: said, "logprobs": None, "finish_reason": finish_reason}


def _deltas(choice: Completion) -> Iterator[dict[str, Any]]:
    """The deltas in the order in which OpenAI streams them: first the role, then the text in pieces, or for each call
    first its name and then its arguments."""
    yield {"role": "assistant", "content": None if choice.calls else ""}
    for piece in choice.pieces:
        yield {"content": piece}
    for index, call in enumerate(choice.calls):
        yield {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": call["function"]["arguments"]}}]}

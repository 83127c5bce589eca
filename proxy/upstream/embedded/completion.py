"""The answers of the embedded model.

An answer is deterministic and plausible: a text of the requested length, a value of the requested schema, or calls of
the requested tools. It is sent in OpenAI's form, as one object or as server-sent events, with the usage fields of the
provider that is imitated.

Anthropic's usage has the form in which litellm 1.109 passes it on (``llms/anthropic/chat/transformation.py``,
``calculate_usage``): the prompt tokens include the cached tokens, and Anthropic's own counters are added. OpenAI's
prompt tokens include the cached tokens; GPT-5.6 and newer add ``cache_write_tokens``. DeepSeek splits the prompt into
hit and miss. Kimi repeats the cache read outside of the details. DashScope names the explicit cache's creation in the
details (https://www.alibabacloud.com/help/en/model-studio/context-cache).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import count
from operator import getitem
from typing import Any

import orjson

from proxy.core.caches.cache import Bill
from proxy.core.providers import CacheProfile, Family, UsageForm
from proxy.core.request.tokens import Encode
from proxy.core.response.event_format import DONE, event_of
from proxy.core.value import dataclass
from proxy.upstream.embedded.turns import ChatRequest, Json, dumps, refuse

# Limits for schemas that refer to themselves. OpenAI allows 5000 properties and 10 levels ("Structured outputs").
_MAX_VALUES = 5000
_MAX_DEPTH = 24


def example_of(schema: Mapping[str, Any]) -> Any:
    """A minimal value of ``schema``, made of required properties, first choices and lower bounds; local references are
    followed. Raises UpstreamRejected (400) if it is no schema."""
    try:
        return _Builder(schema).value(schema, 0)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise refuse("Invalid schema for response_format.", "response_format", "invalid_json_schema") from error


class _Builder:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._values = 0

    def value(self, schema: Mapping[str, Any], depth: int) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise ValueError("the schema asks for too much")
        if "$ref" in schema:
            # The reference is local: ``#/$defs/name``.
            names = filter(None, schema["$ref"].removeprefix("#").split("/"))
            return self.value(reduce(getitem, names, self._root), depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            # Choosing null ends a schema that refers to itself.
            null = next((choice for choice in choices if choice.get("type") == "null"), None)
            return self.value(null or choices[0], depth + 1)
        kind = schema.get("type", "object")
        if isinstance(kind, list):
            kind = "null" if "null" in kind else kind[0]
        return self._typed(kind, schema, depth)

    def _typed(self, kind: object, schema: Mapping[str, Any], depth: int) -> Any:
        match kind:
            case "object":
                properties = schema.get("properties", {})
                names = schema.get("required", properties)
                return {name: self.value(properties.get(name, {}), depth + 1) for name in names}
            case "array":
                count = min(schema.get("minItems", 0), _MAX_VALUES)
                return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "string":
                return "text".ljust(min(schema.get("minLength", 0), _MAX_VALUES), "x")[: schema.get("maxLength")]
            case "integer" | "number":
                return schema.get("minimum", 0)
            case "boolean":
                return False
            case _:
                return None


DEFAULT_OUTPUT_TOKENS = 60

_SENTENCES = (
    "I read the files that you sent and the change is small.",
    "The function keeps its signature, so the callers stay as they are.",
    "The test that failed compares the header with the wrong case.",
    "I moved the check in front of the loop, where it costs nothing.",
    "There is one more place that builds the same path, and it now uses the helper.",
    "The option is read once and passed on from there.",
    "Nothing else in the module depends on the old order.",
    "An empty value is now refused with a message that names the field.",
    "The documentation says the same, so I left that paragraph alone.",
    "Run the suite once more before you merge, as the fixture has changed.",
    "If you want, I can split this into two commits.",
    "The next step would be to remove the deprecated alias.",
)


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer: text in pieces as they are streamed, or tool calls in the form of a message."""

    pieces: tuple[str, ...]
    calls: tuple[Json, ...]
    finish_reason: str
    tokens: int

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)

    def message(self) -> dict[str, Any]:
        """The answer as an OpenAI message, as the client will send it back."""
        if not self.calls:
            return {"role": "assistant", "content": self.text}
        return {"role": "assistant", "content": None, "tool_calls": [*self.calls]}


def told(bill: Bill, profile: CacheProfile) -> str:
    """A sentence about what the cache did for a prompt. It is the beginning of an answer that a person reads."""
    if bill.read or bill.write:
        did = (
            f"{bill.read:,} of {bill.total:,} prompt tokens were read from the cache, and {bill.write:,} were written."
        )
    elif bill.total < profile.min_tokens and profile.family is not Family.NONE:
        least = f"which begins at {profile.min_tokens:,}"
        did = f"{bill.total:,} prompt tokens are too few for this provider's cache, {least}."
    else:
        did = f"none of the {bill.total:,} prompt tokens were read from the cache."
    return f"(This is the offline model: {did})"


def complete(request: ChatRequest, seed: bytes, output_tokens: int, encode: Encode, opening: str = "") -> Completion:
    """The answer to a request. Equal seeds give equal answers. A text begins with the ``opening``."""
    limit = request.settings.get("max_completion_tokens") or request.settings.get("max_tokens")
    names = _called_tools(request)
    if names:
        calls = tuple(
            {"id": f"call_{seed.hex()[:20]}{i:04}", "type": "function", "function": {"name": name, "arguments": "{}"}}
            for i, name in enumerate(names)
        )
        tokens = sum(encode(name) + encode("{}") for name in names)
        return Completion(pieces=(), calls=calls, finish_reason="tool_calls", tokens=tokens)
    structured = _structured(request.settings.get("response_format"))
    if structured is not None:
        return _limited([structured[i : i + 16] for i in range(0, len(structured), 16)], limit, encode)
    return write(seed, output_tokens, limit, encode, opening)


def write(seed: bytes, output_tokens: int, limit: int | None, encode: Encode, opening: str = "") -> Completion:
    """Plain text of about ``output_tokens``, of at most ``limit``."""
    pieces = [f"{word} " for word in opening.split()]
    tokens = 0
    for word in _words(seed):
        tokens += encode(word)
        if pieces and tokens > output_tokens:
            break
        pieces.append(word)
    return _limited(pieces, limit, encode)


def _limited(pieces: Sequence[str], limit: int | None, encode: Encode) -> Completion:
    kept: list[str] = []
    tokens = 0
    for piece in pieces:
        cost = encode(piece)
        if limit is not None and kept and tokens + cost > limit:
            return Completion(tuple(kept), (), "length", tokens)
        kept.append(piece)
        tokens += cost
    return Completion(tuple(kept), (), "stop", tokens)


def _words(seed: bytes) -> Iterator[str]:
    for i in count():
        sentence = _SENTENCES[(seed[i % len(seed)] + i) % len(_SENTENCES)]
        for j, word in enumerate(sentence.split(" ")):
            yield word if i == j == 0 else " " + word


def _called_tools(request: ChatRequest) -> tuple[str, ...]:
    """The tools that this answer calls. A request that ends in tool results is answered by text."""
    choice = request.settings.get("tool_choice")
    last = request.turns[-1]
    if not request.tool_names or choice == "none" or last.answers is not None:
        return ()
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        return (name,) if isinstance(name, str) else request.tool_names[:1]
    wanted = last.asks or (1 if choice == "required" else 0)
    if request.settings.get("parallel_tool_calls") is False:
        wanted = min(wanted, 1)
    return (request.tool_names * 2)[:wanted]


def _structured(response_format: object) -> str | None:
    """JSON text if the request asks for JSON, otherwise None."""
    if not isinstance(response_format, Mapping):
        return None
    match response_format.get("type"):
        case "json_object":
            return '{"answer": "done"}'
        case "json_schema":
            wrapper = response_format.get("json_schema")
            schema = wrapper.get("schema") if isinstance(wrapper, Mapping) else None
            return dumps(example_of(schema if isinstance(schema, Mapping) else {})).decode()
        case _:
            return None


CHAT = "chat.completion"
_CHUNK = "chat.completion.chunk"
TEXT = "text_completion"


def usage_fields(bill: Bill, output_tokens: int, profile: CacheProfile) -> dict[str, Any]:
    """The ``usage`` object of an answer."""
    read_and_written = {"cached_tokens": bill.read, "cache_write_tokens": bill.write}
    lives = {"ephemeral_5m_input_tokens": bill.write_5m, "ephemeral_1h_input_tokens": bill.write_1h}
    cached: Mapping[UsageForm, Json] = {
        UsageForm.ANTHROPIC: {
            "prompt_tokens_details": {
                "cached_tokens": bill.read,
                "cache_creation_tokens": bill.write,
                "cache_creation_token_details": lives,
            },
            "cache_read_input_tokens": bill.read,
            "cache_creation_input_tokens": bill.write,
            "cache_creation": lives,
        },
        UsageForm.OPENAI: {"prompt_tokens_details": {"cached_tokens": bill.read, "audio_tokens": 0}},
        UsageForm.OPENAI_WRITES: {"prompt_tokens_details": read_and_written},
        UsageForm.KIMI: {"cached_tokens": bill.read, "prompt_tokens_details": read_and_written},
        UsageForm.DASHSCOPE: {
            "prompt_tokens_details": {
                "cached_tokens": bill.read,
                "cache_creation_input_tokens": bill.write,
                "cache_creation": {"ephemeral_5m_input_tokens": bill.write},
                "cache_type": "ephemeral",
            }
        },
        UsageForm.DEEPSEEK: {
            "prompt_cache_hit_tokens": bill.read,
            "prompt_cache_miss_tokens": bill.total - bill.read,
        },
        UsageForm.NONE: {},
    }
    return {
        "prompt_tokens": bill.total,
        "completion_tokens": output_tokens,
        "total_tokens": bill.total + output_tokens,
        **cached[profile.usage],
    }


def answer_of(
    named: Json, choices: Sequence[Completion], usage: Json, *, is_stream: bool, include_usage: bool
) -> list[bytes]:
    """An answer as one object. A stream has one event for each piece of a choice instead, and ``[DONE]`` at the end. If
    the usage was asked for, it has its own event. ``named`` are the members that every object of the answer has; they
    say whether it is a chat."""
    is_chat = named["object"] == CHAT
    if not is_stream:
        whole = (({"message": {**c.message(), "refusal": None}} if is_chat else {"text": c.text}) for c in choices)
        rows = [_row(i, said, c.finish_reason) for i, (said, c) in enumerate(zip(whole, choices, strict=True))]
        return [orjson.dumps({**named, "choices": rows, "usage": usage})]
    head = {**named, "object": _CHUNK} if is_chat else named
    rows = [row for i, choice in enumerate(choices) for row in _pieces(i, choice, is_chat=is_chat)]
    chunks = [{**head, "choices": [row], "usage": None} for row in rows]
    if include_usage:
        chunks.append({**head, "choices": [], "usage": usage})
    elif is_chat:
        for chunk in chunks:
            del chunk["usage"]
    return [*(event_of(orjson.dumps(chunk)) for chunk in chunks), DONE]


def _row(index: int, said: Json, finish_reason: str | None) -> Json:
    return {"index": index, **said, "logprobs": None, "finish_reason": finish_reason}


def _pieces(index: int, choice: Completion, *, is_chat: bool) -> Iterator[Json]:
    """The rows of a choice in the order in which they are streamed."""
    for said in _deltas(choice) if is_chat else choice.pieces:
        yield _row(index, {"delta" if is_chat else "text": said}, None)
    yield _row(index, {"delta": {}} if is_chat else {"text": ""}, choice.finish_reason)


def _deltas(choice: Completion) -> Iterator[dict[str, Any]]:
    """The deltas in the order in which OpenAI streams them: first the role, then the text in pieces, or for each call
    first its name and then its arguments."""
    yield {"role": "assistant", "content": None if choice.calls else ""}
    for piece in choice.pieces:
        yield {"content": piece}
    for index, call in enumerate(choice.calls):
        yield {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": call["function"]["arguments"]}}]}

"""Reads a refusal of an upstream, and which member of the request it refuses. Pure.

OpenAI, and most servers that follow it, name the member in ``param``
(https://github.com/openai/openai-openapi, schema ``Error``); servers built with FastAPI list places
(https://fastapi.tiangolo.com/tutorial/handling-errors/); others begin their message with the member
(``max_tokens: must be positive``), or quote it there.
"""

import re
from collections.abc import Iterator, Mapping

import orjson

from proxy.core.value import dataclass

_OPTIONS = "stream_options"
_OF_OPTIONS = (_OPTIONS, "include_usage")
# Members of a chat request whose names are unlikely to be another word of an error.
_MEMBERS = frozenset(
    {
        "messages", "model", "temperature", "top_p", "top_k", "n", "stop", "max_tokens", "max_completion_tokens",
        "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "response_format", "seed",
        "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "reasoning_effort", "reasoning",
        "thinking", "verbosity", "modalities", "audio", "prediction", "service_tier", "store", "metadata", "user",
        "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "web_search_options", "system",
    }
)  # fmt: skip
# Codes of refusals that no single member causes.
_OTHER_CODES = frozenset(
    {
        "context_length_exceeded", "model_not_found", "content_filter", "content_policy_violation",
        "string_above_max_length", "invalid_api_key",
    }
)  # fmt: skip
_LEADING = re.compile(r"([a-z_]{1,64})(?:[.\[][^:\s]{0,256})?:")
_QUOTED = re.compile(r"[\"'`]([a-z_]{1,64})[\"'`.\[]")
_MOST_CHARS = 1 << 14


@dataclass(frozen=True, slots=True)
class Refusal:
    """The parts of a refusal that were read: the whole ``text``, the ``message`` in it, its ``code`` and ``type``, and
    the members that it names as such. ``causes`` are messages of refusals that a gateway quotes whole."""

    text: str = ""
    message: str = ""
    code: object = None
    type: object = None
    params: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()

    @property
    def names_usage(self) -> bool:
        """Whether the refusal is about the request for usage: most servers name the member that they do not know."""
        return any(name in part for name in _OF_OPTIONS for part in (self.text, self.message, *self.params))

    @property
    def names_another(self) -> bool:
        """Whether the refusal is certainly about another member than that, or about no member."""
        if self.names_usage:
            return False
        if self.params or (isinstance(self.code, str) and self.code in _OTHER_CODES):
            return True
        leading = _LEADING.match(self.message)
        named = {leading[1]} if leading is not None else set()
        return not _MEMBERS.isdisjoint(named.union(_QUOTED.findall(self.message)))


NO_WORDS = Refusal()


def refusal_in(body: bytes) -> Refusal:
    """The refusal in the beginning of an error body."""
    text = body[:_MOST_CHARS].decode("utf-8", "replace")
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Refusal(text, text)
    if isinstance(found, list) and found:
        found = found[0]  # Gemini's errors, also in OpenAI's form
    return refusal_of_object(found, text) if isinstance(found, dict) else Refusal(text, text)


def refusal_of_object(found: Mapping[str, object], text: str = "") -> Refusal:
    """The refusal in an error object. ``text`` is the error as it came."""
    error = found.get("error")
    holder = error if isinstance(error, dict) else found
    message = next((m for m in (holder.get("message"), error, found.get("detail")) if isinstance(m, str)), "")
    params = (*_texts(holder.get("param")), *_places(found.get("detail")))
    causes = tuple(_causes(message, holder.get("metadata")))
    return Refusal(text, message[:_MOST_CHARS], holder.get("code"), holder.get("type"), params, causes)


def _causes(message: str, metadata: object) -> Iterator[str]:
    """The messages of other refusals. OpenRouter has its provider's refusal in ``metadata.raw``
    (https://openrouter.ai/docs/api-reference/errors). In other gateways the message is the JSON of a refusal."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    for quoted in (message, raw):
        if not isinstance(quoted, str) or len(quoted) > _MOST_CHARS:
            continue
        if quoted.lstrip()[:1] != "{":
            yield from _texts(quoted if quoted is raw else None)
            continue
        try:
            found = orjson.loads(quoted)
        except orjson.JSONDecodeError:
            continue
        error = found.get("error", found)
        yield from _texts(error.get("message") if isinstance(error, dict) else error)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value


def _places(detail: object) -> Iterator[str]:
    """The members in FastAPI's list of errors: ``["body", "temperature"]``."""
    for one in detail if isinstance(detail, list) else ():
        place = one.get("loc") if isinstance(one, dict) else None
        if isinstance(place, list) and len(place) > 1 and isinstance(place[1], str):
            yield place[1]

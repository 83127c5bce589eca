"""Reads a refusal of an upstream: which member of the request it refuses, and whether the request is too large. Pure.

OpenAI, and most servers that follow it, name the member in ``param``
(https://github.com/openai/openai-openapi, schema ``Error``); servers built with FastAPI list places
(https://fastapi.tiangolo.com/tutorial/handling-errors/); others begin their message with the member
(``max_tokens: must be positive``), or quote it there.

A provider says that a request is too large for the model's context window by a name (``code`` or ``type``) or by the
beginning of its message. Only the beginning counts: the later text may be a client's own words, which a server quotes
when it refuses a request for another reason. A limit of tokens in a time (a 429, or a 413 with
``rate_limit_exceeded``), a limit of a single member and a limit of the answer alone are other refusals, because a
smaller prompt would not help.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum

import orjson

from proxy.kit.value import dataclass
from proxy.protocol.response.usage import items_of, mapping

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
        parts = (self.text, self.message, *self.params)
        return any("stream_options" in part or "include_usage" in part for part in parts)

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
    text, found = body[:_MOST_CHARS].decode("utf-8", "replace"), None
    with suppress(orjson.JSONDecodeError):
        found = orjson.loads(body)
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
    raw = mapping(metadata).get("raw")
    for quoted in (message, raw):
        if not isinstance(quoted, str) or len(quoted) > _MOST_CHARS:
            continue
        if quoted.lstrip()[:1] == "{":
            with suppress(orjson.JSONDecodeError):
                error = orjson.loads(quoted)
                error = error.get("error", error)
                yield from _texts(error.get("message") if isinstance(error, dict) else error)
        elif quoted is raw:
            yield from _texts(quoted)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value


def _places(detail: object) -> Iterator[str]:
    """The members in FastAPI's list of errors: ``["body", "temperature"]``."""
    for one in items_of(detail):
        place = one.get("loc")
        if isinstance(place, list) and len(place) > 1 and isinstance(place[1], str):
            yield place[1]


class ContextRefusalOutcome(StrEnum):
    """The end of a request that an upstream refused as too large. What each end means stands in
    ``grafana/METRICS.md``."""

    EMPTY = "empty"
    ERROR = "error"
    RETRIED = "retried"
    WIDER = "wider_model"
    PASSED = "passed"


# The status 500 is used by llama.cpp (https://github.com/ggml-org/llama.cpp/pull/15780).
_STATUSES = frozenset({400, 413, 422, 500})
# Codes and types, in small letters, each with its source.
_NAMES: Mapping[str, str] = {
    "context_length_exceeded": "https://github.com/OpenHands/OpenHands/issues/1902",
    "exceed_context_size_error": "https://github.com/ggml-org/llama.cpp/pull/15780",
    "model_max_prompt_tokens_exceeded": "https://github.com/microsoft/vscode/issues/289219",
    "contextwindowexceedederror": "https://docs.litellm.ai/docs/exception_mapping",
}
# Names of other refusals, whatever the message says.
_OTHER_NAMES = frozenset(
    {
        "rate_limit_exceeded", "rate_limit_error", "string_above_max_length", "array_above_max_length",
        "insufficient_quota", "content_filter", "content_policy_violation", "invalid_api_key",
    }
)  # fmt: skip
_MOST_NAME_CHARS = 64
_CONTEXT_CHARS = 2_000

# Prefixes that servers and libraries write in front of a provider's message. Each is removed once, in this order.
_PREFIXES = tuple(
    re.compile(rf"\A{text}", re.IGNORECASE)
    for text in (
        r"Error code: \d{3} - ",
        r"(?:litellm\.)?(?:BadRequestError|APIError): ",
        r"[A-Z][a-z]{1,32}Exception - ",
        r"ValidationException: ",
        r"(?:The model returned the following errors|Invalid request|Bad request|Value error|invalid params)[:,] ",
        r"<\d{3}> ",
        r"InternalError\.Algo\.InvalidParameter: ",
        r"\d{3} Bad Request: ",
    )
)

FORMS = tuple(
    re.compile(text, re.IGNORECASE)
    for text in (
        # OpenAI, Azure, DeepSeek, vLLM, OpenRouter, Perplexity, llama-cpp-python:
        # https://github.com/evalstate/fast-agent/issues/621 https://github.com/vllm-project/vllm/issues/20409
        r"(?:This|The) (?:model|endpoint)(?:'s|’s)? maximum context (?:length|limit) (?:is|of) \d",
        # OpenAI (Responses): https://github.com/earendil-works/pi/blob/main/packages/ai/src/utils/overflow.ts
        r"Your input exceeds the context window of this model",
        # OpenAI: https://github.com/BerriAI/litellm/blob/main/litellm/litellm_core_utils/exception_mapping_utils.py
        r"Input tokens exceed the configured limit of \d",
        # vLLM: https://github.com/vllm-project/vllm/issues/33418
        r"'?max_(?:completion_)?tokens'?(?: or '?max_(?:completion_)?tokens'?)? is too large: \d{1,12}\. "
        r"This model's maximum context length is \d",
        # vLLM: https://github.com/vllm-project/vllm/issues/12165
        r"The (?:decoder |encoder )?prompt \((?:total )?length \d{1,12}\) is "
        r"(?:longer than the maximum model length|too long to fit into the model)",
        # Groq, Cerebras: https://github.com/OpenHands/OpenHands/issues/1902 https://github.com/cline/cline/issues/5140
        r"Please reduce the length of the messages or completion",
        # Anthropic, Vertex AI, Bedrock:
        # https://github.com/earendil-works/pi/issues/102 https://github.com/aaif-goose/goose/pull/7504
        r"prompt is too long(?:: \d{1,12} tokens > \d|$)",
        # Anthropic: https://github.com/strands-agents/sdk-python/pull/1078
        r"input length and `max_tokens` exceed context limit: \d",
        # Gemini, Vertex AI: https://github.com/google-gemini/gemini-cli/issues/6678
        r"(?:Unable to submit request because )?the input token count (?:\(\d{1,12}\) |is \d{1,12} but )"
        r"(?:exceeds the maximum number of tokens allowed|model only supports up to \d)",
        # Bedrock: https://github.com/aws-samples/bedrock-chat/issues/95
        r"Input is too long for (?:the )?requested model",
        # Bedrock (Titan, Mistral):
        # https://github.com/BerriAI/litellm/blob/main/litellm/litellm_core_utils/exception_mapping_utils.py
        r"Too many input tokens\. Max input tokens: \d",
        # Mistral: https://docs.mistral.ai/resources/known-limitations
        r"Prompt contains \d{1,12} tokens(?: and \d{1,12} draft tokens)?, too large for model with \d",
        # llama.cpp: https://github.com/ggml-org/llama.cpp/pull/15780 https://github.com/ggml-org/llama.cpp/issues/19774
        r"(?:the )?request (?:\(\d{1,12} tokens\) )?exceeds the available context size"
        r"|Context size has been exceeded",
        # llama-cpp-python: https://github.com/abetlen/llama-cpp-python/issues/416
        r"Requested tokens (?:\(\d{1,12}\) )?exceed context window of \d",
        # SGLang, Together AI: https://github.com/QwenLM/Qwen3/issues/1321
        r"The input \(\d{1,12} tokens\) is longer than the model's context length",
        # SGLang: https://github.com/sgl-project/sglang/issues/4048
        r"Input length \(\d{1,12} tokens\) exceeds the maximum allowed length",
        # SGLang, LiteLLM:
        # https://github.com/BerriAI/litellm/blob/main/litellm/litellm_core_utils/exception_mapping_utils.py
        r"Requested token count exceeds the model's maximum context length",
        # Text Generation Inference, Together AI, SageMaker:
        # https://github.com/huggingface/text-generation-inference/issues/628
        r"Input validation error: `inputs` (?:tokens \+ `max_new_tokens` must be <= \d|must have less than \d)",
        # xAI: https://github.com/cline/cline/issues/3120
        r"This model's maximum prompt length is \d",
        # Cohere: https://docs.cohere.com/reference/errors https://github.com/cohere-ai/sandbox-topically/issues/4
        r"too many tokens: total number of tokens (?:in the prompt|\(prompt and prediction\)) "
        r"(?:cannot |)exceed",
        # Fireworks, Ollama: reports of users that quote it; no document of the providers has it
        r"The prompt is too long: \d{1,12}, model maximum context length: \d",
        # Ollama: https://github.com/dyad-sh/dyad/issues/3498
        r"prompt too long; exceeded (?:max )?context length|the input length exceeds the context length",
        # LM Studio: https://github.com/earendil-works/pi/blob/main/packages/ai/src/utils/overflow.ts
        r"The number of tokens to keep from the initial prompt is greater than the context length",
        # DashScope (Qwen): https://github.com/QwenLM/qwen-code/issues/98
        r"Range of input length should be \[",
        # Moonshot (Kimi): https://github.com/earendil-works/pi/blob/main/packages/ai/src/utils/overflow.ts
        r"Your request exceeded model token limit",
        # MiniMax: https://github.com/MiniMax-AI/MiniMax-M2/issues/119
        r"context window exceeds limit",
        # GitHub Copilot: https://github.com/microsoft/vscode/issues/289219
        r"prompt token count of \d{1,12} exceeds the limit of \d",
        # litellm: https://docs.litellm.ai/docs/exception_mapping
        r"(?:litellm\.)?ContextWindowExceededError: ",
    )
)
"""The beginnings of providers' messages, each with the provider, and the source where it was seen."""


# The forms in which the messages above name the tokens of the prompt alone. A server that says "at least" has stopped
# counting. If a server names the sum with the answer's tokens, the prompt's tokens are not known.
_PROMPT_TOKENS = re.compile(
    r"(?i)\b(?:(\d{1,12}) (?:in|of) (?:the |your )?(?:messages|prompt|text input)"
    r"|(?:messages resulted in|prompt contains|request (?:has|contains)|prompt is too long:|context limit:) (\d{1,12})"
    r"|token count(?: of| is|:)? \(?(\d{1,12})"
    r"|(?:request|input|input length|prompt|requested tokens) \((?:total )?(?:length )?(\d{1,12})"
    r"|given: (\d{1,12}))"
)
_MOST_NAMING_CHARS = 500


def named_tokens(said: Refusal) -> int | None:
    """The tokens of the prompt that its refusal names, or a refusal that a gateway quotes. None: no refusal names
    them."""
    found = (_PROMPT_TOKENS.search(text[:_MOST_NAMING_CHARS]) for text in (said.message, *said.causes))
    return next((int(one[one.lastindex or 0]) for one in found if one is not None), None)


def is_context_refusal(status: int, said: Refusal) -> bool:
    """Whether an upstream that answers with this status and this refusal says that the request is too large for the
    model's context window."""
    if status not in _STATUSES:
        return False
    given = [name for name in (said.code, said.type) if isinstance(name, str) and len(name) <= _MOST_NAME_CHARS]
    names = set(map(str.lower, given))
    if not _OTHER_NAMES.isdisjoint(names):
        return False
    return not names.isdisjoint(_NAMES) or any(_opens(text) for text in (said.message, *said.causes))


def _opens(message: str) -> bool:
    text = bare = message[:_CONTEXT_CHARS].strip()
    for prefix in _PREFIXES:
        bare = prefix.sub("", bare)
    return any(form.match(one) for one in (text, bare) for form in FORMS)

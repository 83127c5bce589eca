"""Token usage, normalised from every provider's dialect.

Providers count prompts in two ways. *Inclusive*: the prompt counter contains the cache reads and cache writes (OpenAI
Chat and Responses, Azure, xAI, Mistral, Gemini, DeepSeek, Kimi, Qwen, OpenRouter, and all that litellm has normalised).
*Exclusive*: the prompt counter has only the tokens that were neither read nor written (Anthropic's messages, Bedrock).
A ``Usage`` is inclusive, and its parts always add up, whatever a server sent: counters that are no plain counts count
as zero.

Sources: https://platform.claude.com/docs/en/build-with-claude/prompt-caching,
https://developers.openai.com/api/docs/guides/prompt-caching, https://api-docs.deepseek.com/guides/kv_cache,
https://ai.google.dev/gemini-api/docs/caching, https://www.alibabacloud.com/help/en/model-studio/context-cache,
https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html, and litellm 1.109 ``types/utils.py``.

``Reported`` is the report of an answer about what its price depends on besides tokens: the tier that served it, the
tools that ran, sound and images. OpenAI names the tier beside the usage
(https://platform.openai.com/docs/api-reference/chat/object). Anthropic names the speed, the place and the number of its
tool runs within the usage
(https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool#usage-and-pricing). The Responses API
lists every call in its output (https://platform.openai.com/docs/api-reference/responses/object). OpenRouter reports the
cost of the call (https://openrouter.ai/docs/use-cases/usage-accounting). Pure.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from proxy.kit.value import dataclass, field, replace
from proxy.protocol.caches import Bill
from proxy.protocol.request.demand import tier_of

_NOTHING: Mapping[str, object] = {}
# A counter above this is not a count of tokens.
_LARGEST = 10**12

_CHAT_KEYS = frozenset({"prompt_tokens", "completion_tokens", "prompt_cache_hit_tokens"})
_MESSAGES_KEYS = frozenset({"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"})
_EXCLUSIVE_KEYS = frozenset({"cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"})
_BEDROCK_KEYS = frozenset({"inputTokens", "inputTokenCount", "outputTokens", "outputTokenCount"})
_GEMINI_KEYS = frozenset({"promptTokenCount", "candidatesTokenCount", "totalTokenCount"})
_LLAMACPP_KEYS = frozenset({"cache_n", "prompt_n"})
_ANY_KEYS = frozenset({"total_tokens"}).union(
    _CHAT_KEYS, _MESSAGES_KEYS, _EXCLUSIVE_KEYS, _BEDROCK_KEYS, _GEMINI_KEYS, _LLAMACPP_KEYS
)
_READ_KEYS = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
_WRITE_KEYS = ("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens")
_SHORT_LIFE_KEYS = ("ephemeral_5m_input_tokens", "ephemeral_30m_input_tokens", "ttl_30m_tokens")
_LONG_LIFE_KEYS = ("ephemeral_1h_input_tokens", "ephemeral_12h_input_tokens", "ttl_12h_tokens")
# Members of a report's details in which its writes are split by life.
_SPLITS = ("cache_creation", "cache_creation_token_details", "cache_write_tokens_details")
_HOLDERS = ("response", "message", "metadata", "x_groq")
_NAMES = ("usage", "usageMetadata", "amazon-bedrock-invocationMetrics", "timings")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one exchange. ``prompt`` is inclusive: read + write_5m + write_1h + plain = prompt, as OpenAI counts.

    ``estimated`` is set if the provider reported nothing and the figures are the proxy's own count. ``writes_told``
    says that the provider states its cache writes (even if there are none), and ``lives_told`` that it splits them by
    TTL. These two make no difference between two usages.
    """

    prompt: int
    output: int
    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    estimated: bool = False
    writes_told: bool = field(default=False, compare=False, repr=False)
    lives_told: bool = field(default=False, compare=False, repr=False)
    output_told: bool = field(default=True, compare=False, repr=False)
    """Whether the provider states how long the answer is."""

    @property
    def is_whole(self) -> bool:
        """Whether the provider states both parts. No prompt is empty, so a prompt of 0 tokens is none that is
        stated."""
        return self.prompt > 0 and self.output_told

    @property
    def write(self) -> int:
        """Tokens written to the cache with either TTL."""
        return self.write_5m + self.write_1h

    @property
    def plain(self) -> int:
        """Prompt tokens neither read from nor written to the cache."""
        return self.prompt - self.read - self.write_5m - self.write_1h

    @property
    def total(self) -> int:
        """All prompt tokens, under the name that they have in a ``Bill``."""
        return self.prompt


Parts = Bill | Usage
"""A prompt's tokens by the rate at which they are billed."""


@dataclass(slots=True)
class BillSum:
    """The sum of several bills."""

    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    plain: int = 0

    @property
    def prompt(self) -> int:
        return self.read + self.write_5m + self.write_1h + self.plain

    def add(self, bill: "Parts | BillSum") -> None:
        """Add one more bill."""
        self.read += bill.read
        self.write_5m += bill.write_5m
        self.write_1h += bill.write_1h
        self.plain += bill.plain


def summed(one: Usage | None, other: Usage | None) -> Usage | None:
    """The sum of the usage of two calls."""
    if one is None or other is None:
        return one or other
    return Usage(
        one.prompt + other.prompt,
        one.output + other.output,
        one.read + other.read,
        one.write_5m + other.write_5m,
        one.write_1h + other.write_1h,
        estimated=one.estimated or other.estimated,
    )


_Report = TypeVar("_Report", "Counts", "Reported")


def merged(one: _Report, other: _Report) -> _Report:
    """Both reports of one exchange. Counters are cumulative, so the larger one is the later one."""
    return type(one)(*(max(getattr(one, name), getattr(other, name)) for name in one.__slots__))


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of one report as the provider means them. ``base`` is its prompt counter."""

    base: int = 0
    output: int = 0
    total: int = 0
    reasoning: int = 0
    read: int = 0
    write: int = 0
    write_5m: int = 0
    write_1h: int = 0
    exclusive: bool = False
    writes_told: bool = False
    output_told: bool = True

    def usage(self) -> Usage:
        """The normalised usage. Writes without a stated TTL count as writes with the shorter one.

        The prompt counter leaves out cache reads and cache writes if the shape of the report or the provider's own sum
        says so, or if it is smaller than they are. Thinking that is billed as output may be only in the total: xAI
        keeps ``reasoning_tokens`` out of ``completion_tokens`` (litellm ``llms/xai/chat/transformation.py``,
        fold_reasoning_tokens_into_completion); Gemini's OpenAI surface does the same without naming them.
        """
        split = self.write_5m + self.write_1h
        cached, prompt, output = self.read + max(self.write, split), self.base, self.output
        if self.exclusive or (
            prompt > 0 and cached > 0 and (cached > prompt or self.total == prompt + cached + output)
        ):
            prompt += cached
        elif not prompt:
            prompt = max(self.total - output, cached)
        hidden = self.total - prompt - output
        if self.total and not self.exclusive and hidden > 0 and self.reasoning in (0, hidden):
            output += hidden
        read = min(self.read, prompt)
        write = min(cached - self.read, prompt - read)
        long = min(self.write_1h, write)
        return Usage(
            prompt, output, read, write - long, long, writes_told=self.writes_told, lives_told=split > 0,
            output_told=self.output_told or output > 0 or (self.base > 0 and self.total >= prompt),
        )  # fmt: skip


def usage_of(payload: Mapping[str, object]) -> Usage | None:
    """The usage in a response body, a stream event, or a usage object. None if there is none."""
    counts = counts_of(payload)
    return None if counts is None else counts.usage()


def counts_of(payload: Mapping[str, object], before: Counts | None = None) -> Counts | None:
    """The raw counters in a response body, a stream event, or a usage object, together with those of the events
    ``before``."""
    found, is_start = before, payload.get("type") == "message_start"
    around = [mapping(payload[name]) for name in _HOLDERS if name in payload]
    # Kimi streams it inside the choice: https://github.com/earendil-works/pi/issues/2017
    inside = [one.get("usage") for one in (*around, *items_of(payload.get("choices")))]
    for report in (payload, *(payload[name] for name in _NAMES if name in payload), *inside):
        counts = _read(report) if isinstance(report, dict) else None
        if counts is None:
            continue
        if is_start:  # It states a first token or two. The last event states the whole answer.
            counts = replace(counts, output=0, output_told=False)
        found = counts if found is None else _joined(found, counts)
    return found


def _joined(one: Counts, other: Counts) -> Counts:
    """Both reports of one exchange. Gateways begin a stream with the whole prompt, and tell at its end which part of it
    was cached. In exclusive counters, the first report's prompt contains that part."""
    both = merged(one, other)
    if both.exclusive:
        cached = both.usage().prompt - both.base
        both = replace(both, base=max(0, max(one.usage().prompt, other.usage().prompt) - cached))
    return both


def _read(report: Mapping[str, object]) -> Counts | None:
    keys = report.keys()
    if keys.isdisjoint(_ANY_KEYS):
        return None
    for known, own in ((_GEMINI_KEYS, _gemini), (_BEDROCK_KEYS, _bedrock), (_LLAMACPP_KEYS, _llamacpp)):
        if not keys.isdisjoint(known):
            return own(report)
    if not keys.isdisjoint(_CHAT_KEYS) or ("total_tokens" in report and keys.isdisjoint(_MESSAGES_KEYS)):
        return _plain(report, "prompt_tokens", "completion_tokens")
    if keys.isdisjoint(_MESSAGES_KEYS):
        return None
    is_messages = not keys.isdisjoint(_EXCLUSIVE_KEYS) and "input_tokens_details" not in report
    return _messages(report) if is_messages else _plain(report, "input_tokens", "output_tokens")


def _plain(report: Mapping[str, object], prompt: str, output: str, *, exclusive: bool = False) -> Counts:
    """The shapes of OpenAI and Anthropic. litellm, OpenRouter and others repeat one figure under several names. Only
    the largest counts."""
    details = mapping(report.get(f"{prompt}_details"))
    own, within = _counters(report), _counters(details)
    # Written tokens by life: the short one (5 minutes; OpenAI: 30 minutes) and the long one (1 hour; 12 hours).
    splits = [_counters(split) for split in (report.get("cache_creation"), *map(details.get, _SPLITS)) if split]
    return Counts(
        base=own.get(prompt) or own.get("prompt_cache_hit_tokens", 0) + own.get("prompt_cache_miss_tokens", 0),
        output=own.get(output, 0),
        total=own.get("total_tokens", 0),
        reasoning=_counters(report.get(f"{output}_details")).get("reasoning_tokens", 0),
        read=max([part.get(key, 0) for part in (own, within) for key in _READ_KEYS]),
        write=max([part.get(key, 0) for part in (own, within) for key in _WRITE_KEYS]),
        write_5m=max([split.get(key, 0) for split in splits for key in _SHORT_LIFE_KEYS], default=0),
        write_1h=max([split.get(key, 0) for split in splits for key in _LONG_LIFE_KEYS], default=0),
        exclusive=exclusive,
        writes_told=any(key in part for part in (details, report) for key in _WRITE_KEYS),
        output_told=output in own,
    )


def _messages(report: Mapping[str, object]) -> Counts:
    """Anthropic's shape. The top level leaves out compaction; ``iterations`` has every step that was billed.

    An advisor's steps run on another model and are left out.
    https://platform.claude.com/docs/en/build-with-claude/compaction
    """
    counts = _plain(report, "input_tokens", "output_tokens", exclusive=True)
    steps = report.get("iterations")
    if not isinstance(steps, list):
        return counts
    billed = [
        _plain(step, "input_tokens", "output_tokens")
        for step in items_of(steps)
        if step.get("type") != "advisor_message"
    ]
    summed = Counts(
        base=sum(c.base for c in billed),
        output=sum(c.output for c in billed),
        read=sum(c.read for c in billed),
        write=sum(c.write for c in billed),
        write_5m=sum(c.write_5m for c in billed),
        write_1h=sum(c.write_1h for c in billed),
    )
    return merged(counts, summed)


def _bedrock(report: Mapping[str, object]) -> Counts:
    """The shape of Converse, and of the InvokeModel variants, whose names end with ``Count``."""
    own, details = _counters(report), items_of(report.get("cacheDetails"))
    return Counts(
        base=own.get("inputTokens") or own.get("inputTokenCount", 0),
        output=own.get("outputTokens") or own.get("outputTokenCount", 0),
        read=own.get("cacheReadInputTokens") or own.get("cacheReadInputTokenCount", 0),
        write=own.get("cacheWriteInputTokens") or own.get("cacheWriteInputTokenCount", 0),
        write_5m=sum([_counters(one).get("inputTokens", 0) for one in details if one.get("ttl") == "5m"]),
        write_1h=sum([_counters(one).get("inputTokens", 0) for one in details if one.get("ttl") == "1h"]),
        exclusive=True,
        writes_told="cacheWriteInputTokens" in report or "cacheWriteInputTokenCount" in report,
        output_told="outputTokens" in own or "outputTokenCount" in own,
    )


def _gemini(report: Mapping[str, object]) -> Counts:
    """Gemini's own shape: thoughts are billed as output, results of its server tools as input."""
    own = _counters(report)
    return Counts(
        base=own.get("promptTokenCount", 0) + own.get("toolUsePromptTokenCount", 0),
        output=own.get("candidatesTokenCount", 0) + own.get("thoughtsTokenCount", 0),
        read=own.get("cachedContentTokenCount", 0),
        total=own.get("totalTokenCount", 0),
        output_told=not own.keys().isdisjoint(("candidatesTokenCount", "thoughtsTokenCount")),
    )


def _llamacpp(report: Mapping[str, object]) -> Counts:
    """llama.cpp's ``timings``, which has the computed tokens and the cached tokens as separate counters.
    https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"""
    own = _counters(report)
    read = own.get("cache_n", 0)
    return Counts(
        base=read + own.get("prompt_n", 0),
        output=own.get("predicted_n", 0),
        read=read,
        output_told="predicted_n" in own,
    )


def _counters(holder: object, most: int = _LARGEST) -> Mapping[str, int]:
    """The counts in an object, by their names. A value that is no count, or is above ``most``, is left out. A value
    that is no object has no counts."""
    if not isinstance(holder, dict):
        return {}
    return {
        name: int(value)
        for name, value in holder.items()
        if (type(value) is int or (type(value) is float and value.is_integer())) and 0 <= value <= most
    }


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is an object. Otherwise an empty object."""
    return value if isinstance(value, dict) else _NOTHING


def items_of(value: object, most: int | None = None) -> Sequence[Mapping[str, object]]:
    """The items of a list, at ``most`` the first so many. An item that is no object is an empty one; a value that is no
    list has no items."""
    return [item if isinstance(item, dict) else _NOTHING for item in value[:most]] if isinstance(value, list) else ()


_MOST_CALLS = 10_000
_MOST_USD = 10_000.0
_MOST_SECONDS = 10**7
_MOST_ITEMS = 100_000


@dataclass(frozen=True, slots=True)
class Reported:
    """The report of one answer. Its counters are cumulative."""

    tier: str = ""
    is_fast: bool = False
    is_local: bool = False
    searches: int = 0
    files: int = 0
    codes: int = 0
    audio_in: int = 0
    audio_out: int = 0
    image_in: int = 0
    image_out: int = 0
    video_in: int = 0
    video_out: int = 0
    thought: int = 0
    images: int = 0
    seconds: float = 0.0
    usd: float = 0.0
    """The cost of the call, as its provider states it."""


NOTHING_REPORTED = Reported()


def reported_in(payload: Mapping[str, object]) -> Reported:
    """The report in an answer, or in an event of a stream."""
    outer = mapping(payload.get("response")) or mapping(payload.get("message")) or payload
    usage = mapping(outer.get("usage")) or mapping(payload.get("usage"))
    tier, cost, data = outer.get("service_tier"), usage.get("cost"), payload.get("data")
    calls, tools = _counters(usage, _MOST_CALLS), _counters(usage.get("server_tool_use"), _MOST_CALLS)
    is_gemini = "candidates" in outer or "usageMetadata" in outer
    queries, prompt, answer = _of_gemini(outer) if is_gemini else (0, {}, {})
    for name in ("input_token", "input_tokens", "prompt_tokens"):
        prompt |= _counters(usage.get(f"{name}_details"))
    for name in ("output_tokens", "completion_tokens"):
        answer |= _counters(usage.get(f"{name}_details"))
    seconds = [_amount(found, _MOST_SECONDS) for found in (usage.get("seconds"), payload.get("duration")) if found]
    types = [item.get("type") for item in items_of(outer.get("output"), _MOST_ITEMS)]
    searches = types.count("web_search_call") + types.count("x_search_call")
    told = (
        tools.get("web_search_requests", 0),
        calls.get("num_search_queries", 0),
        # litellm counts the searches of Gemini and others beside the kinds of tokens, and those on maps apart.
        prompt.get("web_search_requests", 0) + prompt.get("google_maps_grounding_requests", 0),
    )
    return Reported(
        tier=tier_of(tier.lower()) if isinstance(tier, str) else "",
        # Any speed and any place that is not the usual one has its price.
        is_fast=(usage.get("speed") or "standard") != "standard",
        is_local=(usage.get("inference_geo") or "global") not in ("global", "not_available"),
        searches=min(_MOST_CALLS, max(searches, queries, *told)),
        files=types.count("file_search_call") + types.count("collections_search_call"),
        codes=min(1, max(tools.get("code_execution_requests", 0), types.count("code_interpreter_call"))),
        audio_in=prompt.get("audio_tokens", 0),
        audio_out=answer.get("audio_tokens", 0),
        image_in=prompt.get("image_tokens", 0),
        image_out=answer.get("image_tokens", 0),
        video_in=prompt.get("video_tokens", 0),
        video_out=answer.get("video_tokens", 0),
        thought=answer.get("reasoning_tokens", 0),
        images=min(len(data), _MOST_ITEMS) if isinstance(data, list) else 0,
        seconds=max(seconds, default=0.0),
        usd=_amount(cost, _MOST_USD) if cost else 0.0,
    )


def _of_gemini(answer: Mapping[str, object]) -> tuple[int, dict[str, int], dict[str, int]]:
    """The number of searches, and the tokens of prompt and answer that are sound and images.
    https://ai.google.dev/gemini-api/docs/google-search#understanding_the_grounding_response,
    https://ai.google.dev/api/generate-content#ModalityTokenCount"""
    grounds = [mapping(one.get("groundingMetadata")) for one in items_of(answer.get("candidates"))]
    queries = sum([len(asked) for one in grounds if isinstance(asked := one.get("webSearchQueries"), list)])
    usage = mapping(answer.get("usageMetadata"))
    heard, made = (
        {
            f"{str(one.get('modality')).lower()}_tokens": count
            for one in items_of(usage.get(f"{part}TokensDetails"), _MOST_ITEMS)
            if (count := _counters(one).get("tokenCount"))
        }
        for part in ("prompt", "candidates")
    )
    made["reasoning_tokens"] = _counters(usage).get("thoughtsTokenCount", 0)
    return min(queries, _MOST_CALLS), heard, made


def _amount(found: object, most: float) -> float:
    """The amount, if it is plausible: neither negative nor NaN, and at most ``most``. Otherwise 0."""
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number and 0 <= found <= most else 0.0  # type: ignore[arg-type, operator]

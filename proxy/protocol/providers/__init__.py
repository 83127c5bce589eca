"""Cache profiles: the rules of every provider's prompt cache, as data. This is the only place for these facts.

A ``CacheProfile`` says what stores an entry, what finds it, its minimum, granularity and life, the prices of reads and
writes, which request members break it, and how markers and routing keys are written. ``proxy.protocol.caches`` turns a
profile into a model that bills and stores. The planner's shadow cache and the embedded provider use the same model.

A fact that no source states is a parameter with a default. ``unknowns`` holds a bad and a good value for it
(``pessimistic``, ``optimistic``) and the reason. Facts about single models are in ``models``.
``proxy.models.deployments`` says which profile a deployment has. Multipliers are relative to the model's input price;
the price map's own prices take precedence (``proxy.models.deployments``). Facts carry their source and its date; all
were compiled in November 2026.

Claude is here, on all platforms that serve it: an entry exists only where a marker stood, and writing an entry costs
extra. The order is tools, system, messages. There is one entry per marker, and there are at most four markers. From
each marker at most 20 positions are looked at, including its own, then the next earlier marker follows. An entry is
readable once the first answer begins. Its life runs from the start of the request that wrote or read it, and each use
renews it. Below the model's minimum a marker is ignored silently (``models``). The request that produced an output does
not cache it.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from proxy.protocol.providers.hosted import (
    AZURE,
    AZURE_EXPLICIT,
    DEEPSEEK,
    FIREWORKS,
    GEMINI,
    GLM,
    GROQ,
    KIMI,
    LLAMACPP,
    MINIMAX,
    MINIMAX_PASSIVE,
    MISTRAL,
    OLLAMA,
    OPENAI,
    OPENAI_EXPLICIT,
    OPENROUTER_DEEPSEEK,
    OPENROUTER_GEMINI,
    OPENROUTER_OPENAI,
    OPENROUTER_OPENAI_EXPLICIT,
    OPENROUTER_XAI,
    QWEN,
    QWEN_IMPLICIT,
    SGLANG,
    TOGETHER,
    VERTEX_GEMINI,
    VLLM,
    XAI,
    provider_at,
)
from proxy.protocol.providers.profile import (
    DEFAULTS,
    EMBEDDED,
    NO_BOUNDARIES,
    PRICES,
    STICKY,
    Breaking,
    CacheProfile,
    Dialect,
    Family,
    MarkPlace,
    Routing,
    Unknown,
    UsageForm,
    fitted,
    may_add,
    may_tell_explicit,
    optimistic,
    pessimistic,
    routing_key,
    sources_of,
)

__all__ = [
    "ANTHROPIC",
    "ASSUMED",
    "DEEPSEEK",
    "DEFAULTS",
    "EMBEDDED",
    "NONE",
    "NO_BOUNDARIES",
    "OPENAI",
    "OPENAI_EXPLICIT",
    "PRICES",
    "PROFILES",
    "Breaking",
    "CacheProfile",
    "Dialect",
    "Family",
    "MarkPlace",
    "Routing",
    "Unknown",
    "UsageForm",
    "fitted",
    "may_add",
    "may_tell_explicit",
    "optimistic",
    "pessimistic",
    "provider_at",
    "routing_key",
    "sources_of",
]

_PAGE = "https://platform.claude.com/docs/en/build-with-claude/prompt-caching (2026-08-21)"
# "Requests which include `tool_use` or `tool_result` blocks must define tools." If a request defines no tools, litellm
# 1.109.1 declares a tool of its own (transform_request: add_dummy_tool), which changes the beginning of the prompt.
_TOOLS = "https://github.com/BerriAI/litellm/issues/4687 (2024-07-13)"
# "When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set
# of `tool_use` and `tool_result` blocks)."
_THINKING_FIRST = "https://github.com/pydantic/pydantic-ai/issues/2075 (2025-06-25)"
_LITELLM = "litellm 1.109.1, run: llms/anthropic/chat/transformation.py, litellm_core_utils/prompt_templates/factory.py"

# "What invalidates the cache", and the prompt-affecting parameters of the cache-diagnostics page (2026-08-21).
_BREAKING = Breaking(
    before_system=("web_search_options", "speed", "response_format", "output_format"),
    before_messages=(
        "tool_choice", "parallel_tool_calls", "thinking", "reasoning_effort", "output_config", "context_management",
    ),
    images=True,
)  # fmt: skip
_THINKING = ("thinking", "reasoning_effort", "output_config")

_UNKNOWNS = (
    Unknown(
        "cross_life_read", False, True,
        "two client projects say that a 5-minute marker reads a 1-hour entry, one that it does not; nobody measured",
    ),
    Unknown("refresh", "hit", "prefix", "the page: renewed whenever the cached content is used; litellm: the hit only"),
    Unknown("below_hit_free_entry", False, True, "the billing text implies no charge; nothing says that it is stored"),
    Unknown("collapses_runs", False, True, "on pages since September 2026, not on the one of 2026-08-21"),
    Unknown(
        "breaking",
        Breaking(_THINKING, _BREAKING.before_system, _BREAKING.before_messages, images=True),
        _BREAKING,
        "thinking and effort break tools and system by model, the page does not say on which",
    ),
)  # fmt: skip

ANTHROPIC = CacheProfile(
    name="anthropic",
    family=Family.MARKER,
    dialect=Dialect.CACHE_CONTROL,
    read=0.1,
    write=1.25,
    write_long=2.0,
    min_tokens=1024,
    life_s=300.0,
    long_life_s=3600.0,
    max_marks=4,
    lookback=20,
    breaking=_BREAKING,
    tool_mark=True,
    result_mark=MarkPlace.MESSAGE,
    message_mark=True,
    # "Text messages: Content blocks in the messages.content array, for both user and assistant turns" (the same page).
    answer_mark=True,
    body_mark=True,
    declares_tools=True,
    thinks_in_calls=True,
    usage=UsageForm.ANTHROPIC,
    unknowns=_UNKNOWNS,
    sources=(_PAGE, _LITELLM, _TOOLS, _THINKING_FIRST),
)
FOUNDRY = replace(
    ANTHROPIC, name="foundry", sources=(*ANTHROPIC.sources, "as the Claude API; isolated by workspace (same page)")
)
# litellm turns each marker into a cachePoint. For a tool result the cachePoint stands behind the result, wherever the
# marker stands in it. A marker on the whole request goes to additionalModelRequestFields; its effect there is unknown.
BEDROCK = replace(
    ANTHROPIC,
    name="bedrock",
    collapses_runs=False,
    result_mark=MarkPlace.EITHER,
    body_mark=False,
    begins_with_user=True,
    unknowns=tuple(u for u in _UNKNOWNS if u.field != "collapses_runs")
    + (Unknown("collapses_runs", False, True, "stated for the Claude API only; AWS: about 20 content blocks"),),
    sources=(
        "https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html (2026-10)",
        "litellm 1.109.1, run: llms/bedrock/chat/converse_transformation.py",
        # "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        "https://github.com/vxcontrol/pentagi/pull/196 (2026-03-11)",
        # "A conversation must start with a user message." litellm adds none unless it is told to (``modify_params``).
        "https://github.com/langgenius/dify/issues/12340 (2025-01-03)",
    ),
)
# Requests are spread over stores by a hash of the head of the raw body: static members first, messages last.
VERTEX = replace(
    ANTHROPIC,
    name="vertex",
    collapses_runs=False,
    unknowns=(
        *BEDROCK.unknowns,
        Unknown("stores", 4, 1, "several stores are known of, their number is not (maximhq/bifrost #6406)"),
    ),
    sources=(
        "https://docs.cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/prompt-caching",
        "https://github.com/maximhq/bifrost/issues/6406 (2026-08-21)",
        "https://github.com/anthropics/anthropic-sdk-python/pull/1927 (2026-09-11)",
    ),
)
# A conversation stays with one provider for 10 idle minutes, which is less than the longer life.
OPENROUTER_ANTHROPIC = replace(
    ANTHROPIC,
    name="openrouter-anthropic",
    routing=STICKY,
    begins_with_user=True,  # it may be served by Bedrock
    unknowns=(
        *_UNKNOWNS,
        Unknown(
            "long_life_s", 600.0, 3600.0, "a provider flip after 10 idle minutes (OpenRouterTeam/ai-sdk-provider #499)"
        ),
    ),
    sources=(
        _PAGE,
        "https://openrouter.ai/docs/features/prompt-caching",
        "litellm 1.109.1, run: llms/openrouter/chat/transformation.py",
    ),
)


# If nothing is known about a provider, messages have the form that every server accepts.
NONE = CacheProfile(name="none", family=Family.NONE, begins_with_user=True, answers_results=True, plain_call_ids=True)
# The profile that plans use if nothing is known: most servers keep prefixes by themselves and charge less for them.
ASSUMED = replace(NONE, family=Family.GRID, read=0.5, min_tokens=1024)

_CLAUDE = (ANTHROPIC, BEDROCK, VERTEX, FOUNDRY)
_OPENAI = (OPENAI, OPENAI_EXPLICIT, AZURE, AZURE_EXPLICIT)
_HOSTED = (
    GEMINI, VERTEX_GEMINI, DEEPSEEK, XAI, MISTRAL, GROQ, KIMI, GLM, QWEN, QWEN_IMPLICIT, MINIMAX, MINIMAX_PASSIVE,
    FIREWORKS, TOGETHER,
)  # fmt: skip
_OPENROUTER = (
    OPENROUTER_ANTHROPIC, OPENROUTER_OPENAI, OPENROUTER_OPENAI_EXPLICIT, OPENROUTER_GEMINI, OPENROUTER_DEEPSEEK,
    OPENROUTER_XAI,
)  # fmt: skip
_SELF_HOSTED = (VLLM, SGLANG, LLAMACPP, OLLAMA)

PROFILES: Mapping[str, CacheProfile] = MappingProxyType(
    {profile.name: profile for profile in (*_CLAUDE, *_OPENAI, *_HOSTED, *_OPENROUTER, *_SELF_HOSTED, NONE)}
)
"""Every profile by the name that the configuration and ``--profile`` use for it."""

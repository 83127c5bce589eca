"""Claude on all platforms that serve it: an entry exists only where a marker stood, and writing an entry costs extra.

The order is tools, system, messages. There is one entry per marker, and there are at most four markers. From each
marker at most 20 positions are looked at, including its own, then the next earlier marker follows. An entry is readable
once the first answer begins. Its life runs from the start of the request that wrote or read it, and each use renews it.
Below the model's minimum a marker is ignored silently (``models``). The request that produced an output does not cache
it.
"""

from dataclasses import replace

from proxy.protocol.providers.profile import (
    STICKY,
    Breaking,
    CacheProfile,
    Dialect,
    Family,
    MarkPlace,
    Unknown,
    UsageForm,
)

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

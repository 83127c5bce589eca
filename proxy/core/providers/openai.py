"""OpenAI and Azure. Up to GPT-5.5 every prefix is stored for free. GPT-5.6 and newer write at boundaries, for a price.

For GPT-5.6 and newer, a boundary is exact, not rounded to a block. Four boundaries are written. In implicit mode (the
default) these are the end of the latest eligible message and the latest three explicit boundaries. In explicit mode
they are the latest four explicit boundaries; without any, nothing is cached and nothing is charged. Further boundaries
are still looked up. The longest boundary that matches is read. An entry lives for 30 minutes from its last use.
"""

from dataclasses import replace

from proxy.core.providers.profile import (
    STICKY,
    Breaking,
    CacheProfile,
    Dialect,
    Family,
    MarkPlace,
    Routing,
    Unknown,
    UsageForm,
)

_GUIDE = "https://developers.openai.com/api/docs/guides/prompt-caching (2026-09-20)"
_SDK = "openai 3.54.0: types/chat/completion_create_params.py, types/responses/response_create_params.py"
_AZURE = "https://learn.microsoft.com/azure/ai-foundry/openai/how-to/prompt-caching (2026-08-12)"

# "tool_choice: none and allowed_tools keep the prefix" (guide).
_BREAKING = Breaking(
    before_tools=(
        "prompt_cache_key", "response_format", "reasoning_effort", "verbosity", "parallel_tool_calls", "service_tier",
    )
)  # fmt: skip

OPENAI = CacheProfile(
    name="openai",
    family=Family.GRID,
    read=0.1,
    min_tokens=1024,
    step=128,
    report_step=128,
    life_s=600.0,
    breaking=_BREAKING,
    # With a key, hits rose from 60 to 87 % (OpenAI cookbook, "Prompt Caching 201").
    routing=Routing("body", "prompt_cache_key", by_prefix=True, servers=("openai",)),
    refuses_unknown=True,
    mid_system=True,
    usage=UsageForm.OPENAI,
    unknowns=(
        Unknown("life_s", 300.0, 1800.0, "in memory 5 - 10 idle minutes, at most an hour; 24h: typically 30 minutes"),
        Unknown("hidden_tokens", 127, 0, "the grid counts from a hidden system message whose length is not told"),
        Unknown("hit_chance", 0.8, 1.0, "beyond about 15 requests a minute, prefix and key another machine takes over"),
    ),
    sources=(_GUIDE, "https://raw.githubusercontent.com/openai/openai-cookbook/main/examples/Prompt_Caching_201.ipynb"),
)
OPENAI_EXPLICIT = CacheProfile(
    name="openai-explicit",
    family=Family.MARKER,
    dialect=Dialect.BREAKPOINT,
    read=0.1,
    write=1.25,
    write_long=1.25,
    min_tokens=1024,
    life_s=1800.0,
    max_marks=4,
    # There is no look-back: a boundary is found only if a boundary stands at its position again.
    lookback=1,
    implicit_marks=1,
    first_marks=2,
    latest_marks=50,
    endings=20,
    refresh="hit",
    breaking=_BREAKING,
    # A changed key is a documented reason for a miss. The guide asks for a key only to keep accounts apart.
    routing=Routing("body", "prompt_cache_key", is_needed=False, by_prefix=True, servers=("openai",)),
    result_mark=MarkPlace.PART,
    refuses_unknown=True,
    mid_system=True,
    ttls=("30m", "12h"),
    usage=UsageForm.OPENAI_WRITES,
    unknowns=(
        # The SDK's text: "up to the latest 80 breakpoints, without a content-block lookback limit".
        Unknown("first_marks", 0, 2, "guide: the first 2 and the latest 50; SDK: the latest 80; Azure: the latest 50"),
        Unknown("latest_marks", 80, 80, "guide: 50; SDK: 80; Azure: 50"),
        Unknown("endings", 0, 20, "earlier message endings are the guide's; the SDK names none (ax-llm/ax #573)"),
        Unknown("delay_s", 30.0, 0.0, "not documented; 24 - 30 s on the Codex backend (askalf/dario #1259)"),
        Unknown("life_s", 1500.0, 1800.0, "30 minutes; gone between 25 and 35 on the Codex backend"),
    ),
    sources=(_GUIDE, _SDK),
)
AZURE = replace(
    OPENAI,
    name="azure",
    routing=Routing("body", "prompt_cache_key", by_prefix=True, servers=("azure",)),
    sources=(_AZURE, "litellm 1.109.1, run: cache_control is forwarded to Azure unchanged"),
)
# Breakpoints and metered writes exist only on Standard pay-as-you-go. The operator must know the plan.
AZURE_EXPLICIT = replace(
    OPENAI_EXPLICIT,
    name="azure-explicit",
    first_marks=0,
    latest_marks=50,
    routing=Routing("body", "prompt_cache_key", by_prefix=True, servers=("azure",)),
    unknowns=tuple(u for u in OPENAI_EXPLICIT.unknowns if u.field not in ("first_marks", "latest_marks")),
    sources=(_AZURE, _SDK),
)

_ROUTER = "https://openrouter.ai/docs/features/prompt-caching"
OPENROUTER_OPENAI = replace(OPENAI, name="openrouter-openai", routing=STICKY, sources=(*OPENAI.sources, _ROUTER))
OPENROUTER_OPENAI_EXPLICIT = replace(
    OPENAI_EXPLICIT,
    name="openrouter-openai-explicit",
    routing=STICKY,
    sources=(*OPENAI_EXPLICIT.sources, _ROUTER, "litellm 1.109.1, run: native breakpoints pass"),
)

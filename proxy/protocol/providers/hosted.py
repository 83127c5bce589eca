"""The profiles of hosted providers except those of Claude, and of servers that an operator runs, and the providers that
answer at known hosts.

OpenAI and Azure: up to GPT-5.5 every prefix is stored for free. GPT-5.6 and newer write at boundaries, for a price.

For GPT-5.6 and newer, a boundary is exact, not rounded to a block. Four boundaries are written. In implicit mode (the
default) these are the end of the latest eligible message and the latest three explicit boundaries. In explicit mode
they are the latest four explicit boundaries; without any, nothing is cached and nothing is charged. Further boundaries
are still looked up. The longest boundary that matches is read. An entry lives for 30 minutes from its last use.

Most hosted providers store every prefix by themselves. Qwen and MiniMax take markers, too. If a provider's page gives
no block size, the block size is a parameter whose default is the common one (128). If it gives no life, the default is
one hour (the middle of 5 minutes, 1 hour, 2 hours).

On an operator's own server, computed tokens stay in memory as long as there is room, at no price. A cached token saves
its computation but costs no money, so reads are free. Only full blocks are stored, and the last token is always
computed, so at most floor((n - 1) / B) * B tokens are read. Output is cached. The least recently used blocks are
dropped first, and within one request the last blocks first. The model's chat template decides which messages are
accepted. Messages have the form that the strictest templates accept: Mistral's (NousResearch/hermes-agent#20154,
jundot/omlx#1997), and those that raise an error if roles do not alternate, beginning with the user's.
"""

from dataclasses import replace

from proxy.protocol.providers.profile import (
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

_TEMPLATE_SETTINGS = ("response_format", "reasoning_effort", "parallel_tool_calls")
_TEMPLATE = Unknown(
    "breaking", Breaking(before_tools=_TEMPLATE_SETTINGS), Breaking(), "no page says which parameters break the prefix"
)
_STEP = Unknown("step", 512, 1, "the block size is not documented")
_LIFE = Unknown("life_s", 300.0, 7200.0, "the life is not documented")
_ROUTER = "https://openrouter.ai/docs/features/prompt-caching"

_GUIDE = "https://developers.openai.com/api/docs/guides/prompt-caching (2026-09-20)"
_SDK = "openai 3.54.0: types/chat/completion_create_params.py, types/responses/response_create_params.py"
_AZURE = "https://learn.microsoft.com/azure/ai-foundry/openai/how-to/prompt-caching (2026-08-12)"

# "tool_choice: none and allowed_tools keep the prefix" (guide).
_OPENAI_BREAKING = Breaking(
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
    breaking=_OPENAI_BREAKING,
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
    breaking=_OPENAI_BREAKING,
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

OPENROUTER_OPENAI = replace(OPENAI, name="openrouter-openai", routing=STICKY, sources=(*OPENAI.sources, _ROUTER))
OPENROUTER_OPENAI_EXPLICIT = replace(
    OPENAI_EXPLICIT,
    name="openrouter-openai-explicit",
    routing=STICKY,
    sources=(*OPENAI_EXPLICIT.sources, _ROUTER, "litellm 1.109.1, run: native breakpoints pass"),
)

# Google: implicit caching is on by default, without a guarantee, a write fee or a storage fee.
GEMINI = CacheProfile(
    name="gemini",
    family=Family.GRID,
    begins_with_user=True,
    read=0.1,
    min_tokens=4096,
    step=128,
    life_s=600.0,
    usage=UsageForm.OPENAI,
    unknowns=(
        Unknown("hit_chance", 0.5, 1.0, "no guarantee of a hit; measured from nearly always down to never"),
        Unknown("life_s", 300.0, 86400.0, "5 minutes to 24 hours, most entries much shorter than that"),
        _STEP,
        _TEMPLATE,
    ),
    sources=(
        "https://ai.google.dev/gemini-api/docs/caching (2026-10-13)",
        # "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
        "https://github.com/google-gemini/gemini-cli/issues/11814 (2025-10-23)",
    ),
)
VERTEX_GEMINI = replace(
    GEMINI,
    name="vertex-gemini",
    sources=(
        "https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/context-cache/context-cache-overview",
        "https://github.com/googleapis/python-genai/issues/1880",
    ),
)

# Units end at the end of the input, at the end of the output, at fixed intervals, and at the end of a prefix that
# several requests were seen to share. A hit is a unit that matches as a whole.
DEEPSEEK = CacheProfile(
    name="deepseek",
    family=Family.UNIT,
    read=0.1,
    min_tokens=128,
    step=128,
    life_s=3600.0,
    caches_output=True,
    breaking=Breaking(before_tools=("user_id",)),
    usage=UsageForm.DEEPSEEK,
    unknowns=(
        Unknown("interval_tokens", 1024, 64, "fixed intervals, without a number; hits seen are multiples of 128"),
        Unknown("delay_s", 10.0, 0.0, "built in seconds"),
        Unknown("life_s", 1800.0, 86400.0, "cleared after hours to days"),
    ),
    sources=(
        "https://api-docs.deepseek.com/guides/kv_cache (2026-09)",
        "https://github.com/QwenLM/qwen-code/pull/4518 (3712 and 896 of 3770 tokens)",
    ),
)

# Each server has its own cache. Reasoning content must be sent back unchanged.
XAI = CacheProfile(
    name="xai",
    family=Family.GRID,
    read=0.25,
    min_tokens=128,
    step=128,
    life_s=3600.0,
    routing=Routing("header", "x-grok-conv-id", servers=("xai",)),
    usage=UsageForm.OPENAI,
    unknowns=(
        Unknown("life_s", 300.0, 7200.0, "entries can be evicted at any time"),
        Unknown("hit_chance", 0.8, 1.0, "a request may reach another server"),
        Unknown("min_tokens", 1024, 128, "not documented; blocks of 128 were measured"),
        _TEMPLATE,
    ),
    sources=("https://docs.x.ai/developers/advanced-api-usage/prompt-caching/best-practices (2026-10)",),
)
# Mistral's API forbids fields that it does not know (partITech/php-mistral #76: extra_forbidden).
MISTRAL = CacheProfile(
    name="mistral",
    family=Family.GRID,
    read=0.1,
    min_tokens=64,
    step=64,
    life_s=3600.0,
    breaking=Breaking(before_tools=("prompt_cache_key",)),
    routing=Routing("body", "prompt_cache_key", by_prefix=True, servers=("mistral", "codestral")),
    refuses_unknown=True,
    answers_results=True,
    plain_call_ids=True,
    usage=UsageForm.OPENAI,
    unknowns=(
        Unknown("key_required", True, False, "the page enables caching by a key, and says that it raises chances"),
        Unknown("life_s", 300.0, 7200.0, "life and scope are not documented"),
    ),
    sources=(
        "https://docs.mistral.ai/studio-api/conversations/advanced/prompt-caching (2026-10)",
        # "Unexpected role 'user' after role 'tool'"
        "https://github.com/zed-industries/zed/issues/37021 (2025-08-27)",
        # "Tool call id was ... but must be a-z, A-Z, 0-9, with a length of 9."
        "https://github.com/nearai/ironclaw/issues/1241 (2026-03-16)",
    ),
)
# Any unknown property is answered with a 400, also prompt_cache_key and cache_control (eigent-ai/eigent #1827).
GROQ = CacheProfile(
    name="groq",
    family=Family.GRID,
    read=0.5,
    min_tokens=128,
    step=128,
    life_s=7200.0,
    refuses_unknown=True,
    usage=UsageForm.OPENAI,
    unknowns=(
        Unknown("min_tokens", 1024, 128, "128 to 1024 by model, not confirmed"),
        Unknown("hit_chance", 0.8, 1.0, "Groq tries to maximize hits, without a guarantee"),
        _STEP,
        _TEMPLATE,
    ),
    sources=("https://console.groq.com/docs/prompt-caching (2026-10)",),
)
# Caching is automatic, and writes are metered: at the input price for 5 minutes (so without a surcharge), at twice the
# input price for an hour (prompt_cache_options).
KIMI = CacheProfile(
    name="kimi",
    family=Family.GRID,
    read=0.1,
    write=1.0,
    write_long=2.0,
    meters_writes=True,
    min_tokens=256,
    step=128,
    life_s=300.0,
    long_life_s=3600.0,
    breaking=Breaking(before_tools=("reasoning_effort", "thinking")),
    # kimi-code 2.1.0 sends one key per session.
    routing=Routing("body", "prompt_cache_key", servers=("moonshot",)),
    usage=UsageForm.KIMI,
    unknowns=(
        Unknown("write", 2.0, 1.0, "platform.kimi.ai: the input price; one note has twice that for either life"),
        _STEP,
    ),
    sources=("https://forum.moonshot.ai/t/context-caching-upgrade-5-min-1-hour-ttl-options/613 (2026-09)",),
)
GLM = CacheProfile(
    name="glm",
    family=Family.GRID,
    read=0.19,
    min_tokens=512,
    step=128,
    life_s=3600.0,
    usage=UsageForm.OPENAI,
    unknowns=(
        Unknown("delay_s", 30.0, 0.0, "built asynchronously"),
        Unknown("min_tokens", 1024, 128, "hints speak of 500 tokens"),
        _STEP,
        _LIFE,
        _TEMPLATE,
    ),
    sources=("https://docs.z.ai/guides/capabilities/cache (2026-10)",),
)

# Qwen: a request with a marker uses the explicit cache, a request without a marker uses the implicit cache, and no
# request uses both. The marker is read only on content parts (agentscope-ai/agentscope-java #1363), also on those of
# tool results. litellm leaves the marker where it stands.
QWEN = CacheProfile(
    name="qwen",
    family=Family.MARKER,
    dialect=Dialect.PART_CACHE_CONTROL,
    read=0.1,
    write=1.25,
    write_long=1.25,
    listed_read=False,
    min_tokens=1024,
    life_s=300.0,
    after_answer=True,
    max_marks=4,
    lookback=20,
    collapses_runs=False,
    breaking=Breaking(before_tools=("enable_thinking",)),
    result_mark=MarkPlace.PART,
    usage=UsageForm.DASHSCOPE,
    unknowns=(
        Unknown("refresh", "hit", "prefix", "the life is reset on a hit; of which entries is not said"),
        Unknown("collapses_runs", False, True, "20 content blocks; nothing is said about runs"),
    ),
    sources=(
        "https://www.alibabacloud.com/help/en/model-studio/context-cache (2026-10-11)",
        "litellm 1.109.1, run: llms/dashscope/chat/transformation.py",
    ),
)
QWEN_IMPLICIT = CacheProfile(
    name="qwen-implicit",
    family=Family.GRID,
    read=0.2,
    min_tokens=256,
    step=128,
    life_s=3600.0,
    breaking=Breaking(before_tools=("enable_thinking",)),
    usage=UsageForm.OPENAI,
    unknowns=(
        Unknown("hit_chance", 0.5, 1.0, "the page: hits are not guaranteed"),
        Unknown("life_s", 300.0, 7200.0, "unused data is cleared periodically"),
        _STEP,
    ),
    sources=QWEN.sources,
)
# MiniMax takes markers only on its Anthropic-compatible API. Its other API caches by itself.
MINIMAX = CacheProfile(
    name="minimax",
    family=Family.MARKER,
    dialect=Dialect.CACHE_CONTROL,
    read=0.1,
    write=1.25,
    write_long=1.25,
    min_tokens=512,
    life_s=300.0,
    max_marks=4,
    lookback=20,
    collapses_runs=False,
    tool_mark=True,
    message_mark=True,
    usage=UsageForm.ANTHROPIC,
    unknowns=(
        Unknown("min_tokens", 1024, 512, "512 is stated for the passive cache"),
        Unknown("refresh", "hit", "prefix", "renewed by use; of which entries is not said"),
        _TEMPLATE,
    ),
    sources=("https://platform.minimax.io/docs/api-reference/anthropic-api-compatible-cache (2026-10)",),
)
MINIMAX_PASSIVE = CacheProfile(
    name="minimax-passive",
    family=Family.GRID,
    read=0.1,
    min_tokens=512,
    step=128,
    life_s=3600.0,
    usage=UsageForm.OPENAI,
    unknowns=(Unknown("life_s", 300.0, 7200.0, "adjusted to the load"), _STEP, _TEMPLATE),
    sources=("https://platform.minimax.io/docs/api-reference/text-prompt-caching (2026-10)",),
)

# Unknown fields are refused: "Extra inputs are not permitted, field: 'messages[0].cache_control'" (routatic/proxy #53).
FIREWORKS = CacheProfile(
    name="fireworks",
    family=Family.GRID,
    read=0.5,
    min_tokens=128,
    step=128,
    life_s=3600.0,
    breaking=Breaking(before_tools=("prompt_cache_isolation_key", "prompt_cache_key", "user")),
    routing=Routing("header", "x-session-affinity", servers=("fireworks_ai",), reads_hint=True),
    refuses_unknown=True,
    usage=UsageForm.OPENAI,
    unknowns=(_LIFE, _STEP, Unknown("hit_chance", 0.8, 1.0, "replicas have caches of their own")),
    sources=("https://docs.fireworks.ai/guides/prompt-caching (2026-10)",),
)
TOGETHER = CacheProfile(
    name="together",
    family=Family.GRID,
    read=0.5,
    min_tokens=128,
    step=128,
    life_s=3600.0,
    breaking=Breaking(before_tools=("reasoning", "reasoning_effort", "chat_template_kwargs")),
    usage=UsageForm.OPENAI,
    unknowns=(Unknown("read", 0.9, 0.1, "priced by model; litellm's map has no such prices"), _LIFE, _STEP),
    sources=("https://docs.together.ai/docs/inference/chat/prompt-caching (2026-10)",),
)

OPENROUTER_GEMINI = replace(GEMINI, name="openrouter-gemini", routing=STICKY, sources=(*GEMINI.sources, _ROUTER))
OPENROUTER_DEEPSEEK = replace(
    DEEPSEEK, name="openrouter-deepseek", routing=STICKY, sources=(*DEEPSEEK.sources, _ROUTER)
)
OPENROUTER_XAI = replace(XAI, name="openrouter-xai", routing=STICKY, sources=(*XAI.sources, _ROUTER))


# The life of entries that have no TTL: longer than any time that is forecast.
_NEVER_S = 30 * 86400.0
_MEMORY = Unknown("capacity_tokens", 262_144, 0, "what is left of the GPU's memory, shared with everyone's requests")

# vLLM reports its reads only with --enable-prompt-tokens-details.
VLLM = CacheProfile(
    name="vllm",
    family=Family.GRID,
    read=0.0,
    min_tokens=16,
    step=16,
    life_s=_NEVER_S,
    caches_output=True,
    begins_with_user=True,
    answers_results=True,
    plain_call_ids=True,
    breaking=Breaking(before_tools=("cache_salt", "chat_template_kwargs")),
    usage=UsageForm.OPENAI,
    unknowns=(
        _MEMORY,
        Unknown("step", 256, 16, "the block size depends on the device; hybrid models keep state at coarse steps only"),
    ),
    sources=(
        "https://docs.vllm.ai/en/latest/design/prefix_caching.html (2026-09)",
        "vllm: v1/core/kv_cache_manager.py",
    ),
)
# SGLang keeps a radix tree over tokens. It reports its reads only with --enable-cache-report.
SGLANG = CacheProfile(
    name="sglang",
    family=Family.GRID,
    read=0.0,
    min_tokens=1,
    step=1,
    life_s=_NEVER_S,
    caches_output=True,
    begins_with_user=True,
    answers_results=True,
    plain_call_ids=True,
    breaking=Breaking(before_tools=("cache_salt", "extra_key", "chat_template_kwargs")),
    usage=UsageForm.OPENAI,
    unknowns=(_MEMORY, Unknown("step", 64, 1, "page_size is the operator's choice")),
    sources=("https://docs.sglang.ai/advanced_features/server_arguments.html (2026-09)", "sgl-project/sglang #34553"),
)
# Each slot of llama.cpp keeps the tokens of its latest request. The next request that begins with them computes only
# the rest. The tokens that a slot gives up go to host memory (--cache-ram). ``timings.cache_n`` reports the reads.
LLAMACPP = replace(
    SGLANG,
    name="llamacpp",
    breaking=Breaking(before_tools=("cache_prompt", "id_slot", "chat_template_kwargs")),
    unknowns=(_MEMORY, Unknown("hit_chance", 0.5, 1.0, "another request may have taken the slot")),
    sources=("https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md (2026-09)",),
)
# Ollama uses llama.cpp's engine. Its OpenAI-compatible API has reported reads since September 2026 (stdapi #252).
# litellm's adapter for Ollama's own API leaves that report out (1.109.1, read).
OLLAMA = replace(
    LLAMACPP,
    name="ollama",
    breaking=Breaking(before_tools=("options", "think", "keep_alive")),
    sources=("https://github.com/ollama/ollama/blob/main/docs/api.md (2026-09)",),
)


HOSTS = (
    ("api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("openai.azure.com", "azure"),
    ("cognitiveservices.azure.com", "azure"),
    ("openrouter.ai", "openrouter"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("api.deepseek.com", "deepseek"),
    ("api.x.ai", "xai"),
    ("api.mistral.ai", "mistral"),
    ("api.groq.com", "groq"),
    ("api.z.ai", "zai"),
    ("moonshot.ai", "moonshot"),
    ("moonshot.cn", "moonshot"),
    ("aliyuncs.com", "dashscope"),
    ("minimax.io", "minimax"),
    ("minimaxi.com", "minimax"),
    ("api.fireworks.ai", "fireworks_ai"),
    ("api.together.xyz", "together_ai"),
    ("api.cerebras.ai", "cerebras"),
)
"""The provider of each host. It is also the provider of all hosts below that host."""
_PROVIDERS = dict(HOSTS)


def provider_at(host: str) -> str:
    """The provider at a host. Empty if the host belongs to no known provider."""
    while host and host not in _PROVIDERS:
        host = host.partition(".")[2]
    return _PROVIDERS.get(host, "")

"""Servers that an operator runs: what they computed stays in memory as long as there is room, at no price.

A cached token costs no money here but saves its computation: reads are free. Only full blocks are stored, the last
token is always computed, so that at most floor((n - 1) / B) * B tokens are read; output is cached; the least recently
used blocks go, of one request the last ones first. What messages may look like is up to the model's chat template: they
have the form that the strictest ones take, which are Mistral's (NousResearch/hermes-agent#20154, jundot/omlx#1997) and
those that raise an error where roles do not alternate from the user's on.
"""

from dataclasses import replace

from proxy.core.providers.profile import Breaking, CacheProfile, Family, Unknown, UsageForm

_NEVER_S = 30 * 86400.0
"""No time to live: longer than anything that is forecast."""
_MEMORY = Unknown("capacity_tokens", 262_144, 0, "what is left of the GPU's memory, shared with everyone's requests")

# --enable-prompt-tokens-details makes it report what it read.
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
# A radix tree over tokens; --enable-cache-report makes it report what it read.
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
# Each slot keeps the tokens of its latest request; the next one that begins with them computes the rest alone. What a
# slot gives up goes to host memory (--cache-ram). ``timings.cache_n`` is what it read.
LLAMACPP = replace(
    SGLANG,
    name="llamacpp",
    breaking=Breaking(before_tools=("cache_prompt", "id_slot", "chat_template_kwargs")),
    unknowns=(_MEMORY, Unknown("hit_chance", 0.5, 1.0, "another request may have taken the slot")),
    sources=("https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md (2026-09)",),
)
# llama.cpp's engine. Its OpenAI-compatible API reports what it read since September 2026 (stdapi #252); litellm's
# adapter for its own API leaves that out (1.109.1, read).
OLLAMA = replace(
    LLAMACPP,
    name="ollama",
    breaking=Breaking(before_tools=("options", "think", "keep_alive")),
    sources=("https://github.com/ollama/ollama/blob/main/docs/api.md (2026-09)",),
)

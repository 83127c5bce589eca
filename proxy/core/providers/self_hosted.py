"""Servers that an operator runs: computed tokens stay in memory as long as there is room, at no price.

A cached token saves its computation here but costs no money, so reads are free. Only full blocks are stored, and the
last token is always computed, so at most floor((n - 1) / B) * B tokens are read. Output is cached. The least recently
used blocks are dropped first, and within one request the last blocks first. The model's chat template decides which
messages are accepted. Messages have the form that the strictest templates accept: Mistral's
(NousResearch/hermes-agent#20154, jundot/omlx#1997), and those that raise an error if roles do not alternate, beginning
with the user's.
"""

from dataclasses import replace

from proxy.core.providers.profile import Breaking, CacheProfile, Family, Unknown, UsageForm

_NEVER_S = 30 * 86400.0
"""The life of entries that have no TTL: longer than any time that is forecast."""
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

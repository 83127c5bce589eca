"""Servers that an operator runs: blocks of tokens in the memory of the GPU, no prices, no time to live.

A cached token costs no money here but saves its computation: reads are free. Only full blocks are stored, the last
token is always computed, so that at most floor((n - 1) / B) * B tokens are read; output is cached; the least recently
used blocks go, of one request the last ones first. What messages may look like is up to the model's chat template: they
have the form that the strictest ones take, which are Mistral's (NousResearch/hermes-agent#20154, jundot/omlx#1997) and
those that raise an error where roles do not alternate from the user's on.
"""

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

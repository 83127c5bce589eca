"""Cache profiles: the rules of every provider's prompt cache, as data. This is the only place for these facts.

A ``CacheProfile`` says what stores an entry, what finds it, its minimum, granularity and life, the prices of reads and
writes, which request members break it, and how markers and routing keys are written. ``proxy.protocol.caches`` turns a
profile into a model that bills and stores. The planner's shadow cache and the embedded provider use the same model.

A fact that no source states is a parameter with a default. ``unknowns`` holds a bad and a good value for it
(``pessimistic``, ``optimistic``) and the reason. Facts about single models are in ``models``.
``proxy.models.deployments`` says which profile a deployment has. Multipliers are relative to the model's input price;
the price map's own prices take precedence (``proxy.models.deployments``). Facts carry their source and its date; all
were compiled in November 2026.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from proxy.protocol.providers.claude import ANTHROPIC, BEDROCK, FOUNDRY, OPENROUTER_ANTHROPIC, VERTEX
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

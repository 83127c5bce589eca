"""Cache profiles: what every provider's prompt cache does, as data. The one place for these facts.

A ``CacheProfile`` says what stores an entry, what finds it, its minimum, granularity and life, what reading and writing
cost, which request members break it, and how markers and routing keys are written. ``proxy.core.caches`` turns a
profile into a model that bills and stores; the planner's shadow cache and the embedded provider use the same one.

What no source says is a parameter with a default; ``unknowns`` holds its values for a bad and for a good day
(``pessimistic``, ``optimistic``) and why. What is particular to single models is in ``models``; which profile a
deployment has, in ``proxy.deployments.choice``. Multipliers are relative to the model's input price; the price map's
own prices win (``proxy.deployments.table``). Facts carry their source and its date; all were compiled in November 2026.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from proxy.core.providers.claude import ANTHROPIC, BEDROCK, FOUNDRY, OPENROUTER_ANTHROPIC, VERTEX
from proxy.core.providers.hosted import (
    DEEPSEEK,
    FIREWORKS,
    GEMINI,
    GLM,
    GROQ,
    KIMI,
    MINIMAX,
    MINIMAX_PASSIVE,
    MISTRAL,
    OPENROUTER_DEEPSEEK,
    OPENROUTER_GEMINI,
    OPENROUTER_XAI,
    QWEN,
    QWEN_IMPLICIT,
    TOGETHER,
    VERTEX_GEMINI,
    XAI,
)
from proxy.core.providers.models import PRICES, fitted, sources_of
from proxy.core.providers.openai import (
    AZURE,
    AZURE_EXPLICIT,
    OPENAI,
    OPENAI_EXPLICIT,
    OPENROUTER_OPENAI,
    OPENROUTER_OPENAI_EXPLICIT,
)
from proxy.core.providers.profile import (
    DEFAULTS,
    Breaking,
    CacheProfile,
    Dialect,
    Family,
    MarkPlace,
    Routing,
    Unknown,
    UsageForm,
    optimistic,
    pessimistic,
)
from proxy.core.providers.self_hosted import LLAMACPP, OLLAMA, SGLANG, VLLM

__all__ = [
    "ANTHROPIC",
    "ASSUMED",
    "DEEPSEEK",
    "DEFAULTS",
    "NONE",
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
    "optimistic",
    "pessimistic",
    "sources_of",
]

# Where nothing is known, messages have the form that every server takes.
NONE = CacheProfile(name="none", family=Family.NONE, begins_with_user=True, answers_results=True, plain_call_ids=True)
# What is planned with where nothing is known: most servers keep prefixes by themselves and charge less for them.
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
"""Every profile by its name, as the configuration and ``--profile`` have it."""

"""What is particular to single models: the shortest prefix that is cached, the price of a read, the grid.

Anthropic's minimums, read prices and models with system messages inside the conversation: "Prompt caching", "Pricing",
"Mid-conversation system messages" (2026-08-21 and later copies). AWS has its own minimums. OpenAI's reads: litellm
1.109 price map, "Prompt caching" (2026-09-20). Gemini's minimums: ai.google.dev (2026-10-13) and the Vertex AI page.
Mythos Preview: 2048 by the page, 512 by litellm's map.
"""

from dataclasses import dataclass, replace
from typing import Any

from proxy.core.providers.profile import CacheProfile

_CLAUDE = ("anthropic", "vertex", "foundry", "openrouter-anthropic")
_ALL_CLAUDE = (*_CLAUDE, "bedrock")
_OPENAI = ("openai", "azure", "openrouter-openai")
_OPENAI_EXPLICIT = ("openai-explicit", "azure-explicit", "openrouter-openai-explicit")
_GEMINI = ("gemini", "vertex-gemini", "openrouter-gemini")
_DEEPSEEK = ("deepseek", "openrouter-deepseek")
_XAI = ("xai", "openrouter-xai")


@dataclass(frozen=True, slots=True)
class Particular:
    """A field of these profiles has this value for models with one of these names in theirs."""

    field: str
    value: Any
    profiles: tuple[str, ...]
    names: tuple[str, ...]


PARTICULARS = (
    Particular(
        "min_tokens", 512, _ALL_CLAUDE, ("opus-5", "opus-5-5", "sonnet-5-5", "haiku-5-5", "fable-5", "mythos-5"),
    ),
    Particular("min_tokens", 2048, _ALL_CLAUDE, ("mythos-preview", "haiku-3-5", "3-5-haiku")),
    Particular("min_tokens", 2048, _CLAUDE, ("opus-4-7",)),
    Particular("min_tokens", 4096, ("bedrock",), ("opus-4-7",)),
    Particular("min_tokens", 4096, _ALL_CLAUDE, ("opus-4-6", "opus-4-5", "haiku-4-5")),
    Particular("read", 0.05, _ALL_CLAUDE, ("opus-5-5", "sonnet-5-5")),
    Particular("read", 0.025, _ALL_CLAUDE, ("fable-5-1", "mythos-5-1")),
    Particular("mid_system", True, _CLAUDE, ("opus-4-8", "opus-5", "sonnet-5-5", "fable-5", "mythos-5")),
    # One breakpoint every 2048 tokens, kept for 24 hours at most, typically for 30 minutes.
    Particular("step", 2048, _OPENAI, ("gpt-5-5",)),
    Particular("life_s", 1800.0, _OPENAI, ("gpt-5-5",)),
    Particular("read", 0.25, _OPENAI, ("gpt-4-1", "o3", "o4-mini")),
    Particular("read", 0.5, _OPENAI, ("gpt-4o",)),
    Particular("read", 0.05, _OPENAI_EXPLICIT, ("gpt-6-1",)),
    Particular("min_tokens", 2048, _GEMINI, ("gemini-2-5",)),
    Particular(
        "min_tokens", 6144, ("vertex-gemini",),
        ("gemini-3-flash-preview", "gemini-3-1-pro", "gemini-3-7-flash", "gemini-3-8-flash"),
    ),
    Particular("read", 0.05, _GEMINI, ("gemini-4-argon",)),
    Particular("read", 0.25, _GEMINI, ("gemini-2-0", "gemini-1-5")),
    Particular("read", 0.02, _DEEPSEEK, ("deepseek-flash", "deepseek-v4-flash", "deepseek-v4-1-flash")),
    Particular("read", 0.033, _DEEPSEEK, ("deepseek-v4-pro",)),
    Particular("read", 0.15, _XAI, ("grok-4-5",)),
    Particular("read", 0.16, _XAI, ("grok-4-3", "grok-4-20")),
    Particular("read", 0.2, _XAI, ("grok-build", "grok-code-fast")),
    # No write item, hence one life.
    Particular("read", 0.2, ("kimi",), ("kimi-k2",)),
    Particular("write_long", 1.0, ("kimi",), ("kimi-k2",)),
    Particular("long_life_s", 0.0, ("kimi",), ("kimi-k2",)),
)  # fmt: skip


def fitted(profile: CacheProfile, model: str) -> CacheProfile:
    """The profile with what is particular to a model; of several names that fit, the longest one wins."""
    name = model.rpartition("/")[2].lower().replace(".", "-")
    found: dict[str, tuple[int, Any]] = {}
    for particular in PARTICULARS:
        if profile.name not in particular.profiles:
            continue
        length = max((len(part) for part in particular.names if _names(name, part)), default=0)
        if length > found.get(particular.field, (0, None))[0]:
            found[particular.field] = length, particular.value
    return replace(profile, **{field: value for field, (_, value) in found.items()}) if found else profile


def _names(name: str, part: str) -> bool:
    """Whether the part stands in the name as a whole: ``opus-5`` is not in ``opus-50`` by accident of digits."""
    at = name.find(part)
    while at >= 0:
        before, behind = name[at - 1 : at] if at else "", name[at + len(part) : at + len(part) + 1]
        if not (before.isascii() and before.isalnum()) and not behind.isdecimal():
            return True
        at = name.find(part, at + 1)
    return False

"""Facts about single models: the shortest prefix that is cached, the price of a read, the grid, and the prices of
models that litellm's price map does not know yet.

Every row has its source with the date of the copy (``Source``). ``stratiform check-config`` names the models of a
configuration whose rows are old. For Mythos Preview, Anthropic's page says 2048 and litellm's map says 512.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from proxy.core.providers.profile import CacheProfile
from proxy.core.value import dataclass, replace

_CLAUDE = ("anthropic", "vertex", "foundry", "openrouter-anthropic")
_ALL_CLAUDE = (*_CLAUDE, "bedrock")
_OPENAI = ("openai", "azure", "openrouter-openai")
_OPENAI_EXPLICIT = ("openai-explicit", "azure-explicit", "openrouter-openai-explicit")
_GEMINI = ("gemini", "vertex-gemini", "openrouter-gemini")
_DEEPSEEK = ("deepseek", "openrouter-deepseek")
_XAI = ("xai", "openrouter-xai")


class Source(NamedTuple):
    """A page, and the day (YYYY-MM-DD) of the copy that was read."""

    page: str
    read_on: str


_CLAUDE_PAGE = Source("https://platform.claude.com/docs/en/build-with-claude/prompt-caching", "2026-10-08")
_CLAUDE_PRICES = Source("https://platform.claude.com/docs/en/about-claude/pricing", "2026-11-09")
_AWS = Source("https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html", "2026-10-01")
_OPENAI_PAGE = Source("https://developers.openai.com/api/docs/guides/prompt-caching", "2026-09-20")
_GPT_6_2 = Source("https://developers.openai.com/api/docs/models/gpt-6.2-sol", "2026-11-18")
_GEMINI_PAGE = Source("https://ai.google.dev/gemini-api/docs/caching", "2026-10-13")
_PRICE_MAP = Source("litellm 1.109.1: model_prices_and_context_window_backup.json", "2026-11-21")


@dataclass(frozen=True, slots=True)
class Particular:
    """A ``field`` of the ``profiles`` has this ``value`` for models whose name contains one of the ``names``."""

    field: str
    value: Any
    profiles: tuple[str, ...]
    names: tuple[str, ...]
    source: Source


PARTICULARS = (
    Particular(
        "min_tokens", 512, _ALL_CLAUDE, ("opus-5", "opus-5-5", "sonnet-5-5", "haiku-5-5", "fable-5", "mythos-5"),
        _CLAUDE_PAGE,
    ),
    Particular("min_tokens", 2048, _ALL_CLAUDE, ("mythos-preview", "haiku-3-5", "3-5-haiku"), _CLAUDE_PAGE),
    Particular("min_tokens", 2048, _CLAUDE, ("opus-4-7",), _CLAUDE_PAGE),
    Particular("min_tokens", 4096, ("bedrock",), ("opus-4-7",), _AWS),
    Particular("min_tokens", 4096, _ALL_CLAUDE, ("opus-4-6", "opus-4-5", "haiku-4-5"), _CLAUDE_PAGE),
    Particular("read", 0.05, _ALL_CLAUDE, ("opus-5-5", "sonnet-5-5"), _CLAUDE_PRICES),
    Particular(
        "read", 0.025, _ALL_CLAUDE, ("fable-5-1", "mythos-5-1", "fable-5-2", "mythos-5-2"), _CLAUDE_PRICES,
    ),
    Particular(
        "mid_system", True, _CLAUDE, ("opus-4-8", "opus-5", "sonnet-5-5", "fable-5", "mythos-5"),
        Source(
            "https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages",
            "2026-10-08",
        ),
    ),
    # There is one breakpoint every 2048 tokens. It is kept for 24 hours at most, and typically for 30 minutes.
    Particular("step", 2048, _OPENAI, ("gpt-5-5",), _OPENAI_PAGE),
    Particular("life_s", 1800.0, _OPENAI, ("gpt-5-5",), _OPENAI_PAGE),
    Particular("read", 0.25, _OPENAI, ("gpt-4-1", "o3", "o4-mini"), _PRICE_MAP),
    Particular("read", 0.5, _OPENAI, ("gpt-4o",), _PRICE_MAP),
    Particular("read", 0.05, _OPENAI_EXPLICIT, ("gpt-6-1", "gpt-6-2"), _GPT_6_2),
    # 14,000 uncached tokens in each step of an agent became 3 when its system text was sent as a message of the input.
    Particular(
        "caches_instructions", False, _OPENAI_EXPLICIT, ("gpt-6-2",),
        Source("https://github.com/anomalyco/opencode/issues/64542", "2026-11-18"),
    ),
    Particular("min_tokens", 2048, _GEMINI, ("gemini-2-5",), _GEMINI_PAGE),
    Particular(
        "min_tokens", 6144, ("vertex-gemini",),
        ("gemini-3-flash-preview", "gemini-3-1-pro", "gemini-3-7-flash", "gemini-3-8-flash"), _GEMINI_PAGE,
    ),
    Particular("read", 0.05, _GEMINI, ("gemini-4-argon",), _PRICE_MAP),
    Particular("read", 0.25, _GEMINI, ("gemini-2-0", "gemini-1-5"), _PRICE_MAP),
    Particular("read", 0.02, _DEEPSEEK, ("deepseek-flash", "deepseek-v4-flash", "deepseek-v4-1-flash"), _PRICE_MAP),
    Particular("read", 0.033, _DEEPSEEK, ("deepseek-v4-pro",), _PRICE_MAP),
    Particular("read", 0.15, _XAI, ("grok-4-5",), _PRICE_MAP),
    Particular("read", 0.16, _XAI, ("grok-4-3", "grok-4-20"), _PRICE_MAP),
    Particular("read", 0.2, _XAI, ("grok-build", "grok-code-fast"), _PRICE_MAP),
    # The price map has no item for writes, so there is only one life.
    Particular("read", 0.2, ("kimi",), ("kimi-k2",), _PRICE_MAP),
    Particular("write_long", 1.0, ("kimi",), ("kimi-k2",), _PRICE_MAP),
    Particular("long_life_s", 0.0, ("kimi",), ("kimi-k2",), _PRICE_MAP),
)  # fmt: skip

_FABLE_5_2 = {
    "input_cost_per_token": 8e-6,
    "output_cost_per_token": 4e-5,
    "cache_read_input_token_cost": 2e-7,
    "cache_creation_input_token_cost": 1e-5,
    "cache_creation_input_token_cost_above_1hr": 1.6e-5,
}
PRICES: Mapping[str, tuple[Mapping[str, float], Source]] = {
    "claude-fable-5-2": (_FABLE_5_2, _CLAUDE_PRICES),
    "claude-mythos-5-2": (_FABLE_5_2, _CLAUDE_PRICES),
    "gpt-6.2-sol": (
        {
            "input_cost_per_token": 2e-6,
            "output_cost_per_token": 1e-5,
            "cache_read_input_token_cost": 1e-7,
            "cache_creation_input_token_cost": 2.5e-6,
            "cache_creation_input_token_cost_above_12hr": 5e-6,
            "input_cost_per_token_above_272k_tokens": 4e-6,
            "output_cost_per_token_above_272k_tokens": 1.5e-5,
            "cache_read_input_token_cost_above_272k_tokens": 2e-7,
            "cache_creation_input_token_cost_above_272k_tokens": 5e-6,
            "cache_creation_input_token_cost_above_12hr_above_272k_tokens": 1e-5,
        },
        _GPT_6_2,
    ),
}
"""The prices, in USD per token, of models that litellm's price map does not know, with the map's field names. If the
installed map knows a model, the map's prices count."""


def sources_of(profile: CacheProfile, model: str) -> Iterator[Source]:
    """The sources of the rows that apply to a model."""
    name = _plain(model)
    for row in PARTICULARS:
        if profile.name in row.profiles and any(_names(name, part) for part in row.names):
            yield row.source


def fitted(profile: CacheProfile, model: str) -> CacheProfile:
    """The profile with the facts about a model. If several names fit, the longest one wins."""
    name = _plain(model)
    found: dict[str, tuple[int, Any]] = {}
    for particular in PARTICULARS:
        if profile.name not in particular.profiles:
            continue
        length = max((len(part) for part in particular.names if _names(name, part)), default=0)
        if length > found.get(particular.field, (0, None))[0]:
            found[particular.field] = length, particular.value
    return replace(profile, **{field: value for field, (_, value) in found.items()}) if found else profile


def _plain(model: str) -> str:
    return model.rpartition("/")[2].lower().replace(".", "-")


def _names(name: str, part: str) -> bool:
    """Whether the name contains the part as a whole: ``opus-50`` does not contain ``opus-5``."""
    return re.search(rf"(?<![a-z0-9]){re.escape(part)}(?!\d)", name) is not None

"""Cache profiles: what a provider's prompt cache does, as data.

Facts and their sources: Anthropic https://platform.claude.com/docs/en/build-with-claude/prompt-caching (2026-08-21),
OpenAI https://developers.openai.com/api/docs/guides/prompt-caching (2026-09-20), DeepSeek
https://api-docs.deepseek.com/guides/kv_cache. Multipliers are relative to the model's input price.
"""

from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """How entries come to be: at markers, on a grid of tokens, as units (ends and intervals), or not at all."""

    MARKER = "marker"
    GRID = "grid"
    UNIT = "unit"
    NONE = "none"


class Dialect(StrEnum):
    """How a marker is written on the wire."""

    CACHE_CONTROL = "cache_control"
    BREAKPOINT = "prompt_cache_breakpoint"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class CacheProfile:
    """One provider's rules. Tokens, seconds, and price multipliers of the input price."""

    name: str
    family: Family
    dialect: Dialect = Dialect.NONE
    read: float = 1.0
    write: float = 1.0
    write_long: float = 1.0
    min_tokens: int = 1024
    max_marks: int = 4
    lookback: int = 20
    life_s: float = 300.0
    long_life_s: float = 0.0
    step: int = 1
    caches_output: bool = False


ANTHROPIC = CacheProfile(
    name="anthropic", family=Family.MARKER, dialect=Dialect.CACHE_CONTROL, read=0.1, write=1.25, write_long=2.0,
    min_tokens=1024, long_life_s=3600.0,
)  # fmt: skip
OPENAI = CacheProfile(name="openai", family=Family.GRID, read=0.1, min_tokens=1024, step=128, life_s=600.0)
OPENAI_EXPLICIT = CacheProfile(
    name="openai-explicit", family=Family.MARKER, dialect=Dialect.BREAKPOINT, read=0.1, write=1.25, write_long=1.25,
    min_tokens=1024, lookback=80, life_s=1800.0,
)  # fmt: skip
DEEPSEEK = CacheProfile(
    name="deepseek", family=Family.UNIT, read=0.1, min_tokens=128, step=128, life_s=3600.0, caches_output=True
)
NONE = CacheProfile(name="none", family=Family.NONE)
PROFILES = {p.name: p for p in (ANTHROPIC, OPENAI, OPENAI_EXPLICIT, DEEPSEEK, NONE)}

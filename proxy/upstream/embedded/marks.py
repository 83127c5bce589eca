"""Where each provider reads a cache marker in an OpenAI-format request, and where it refuses one.

Anthropic as litellm 1.109 translates (``llms/anthropic/chat/transformation.py``, ``factory.py``): kept on parts and on
string content, dropped at message level beside list content, on a tool result only at message level, refused inside
its content, on thinking blocks and on empty text. OpenAI up to GPT-5.5 knows no marker and refuses unknown parameters;
GPT-5.6 and newer take ``prompt_cache_breakpoint`` on parts of messages that are not the assistant's. Groq, Mistral and
Fireworks refuse what they do not know, others pass over it. DashScope reads markers on content parts alone, also within
a tool result. All of it is in the profile.
"""

from collections.abc import Mapping
from typing import Any

from proxy.core.caches.prompt import Life
from proxy.core.providers import CacheProfile
from proxy.upstream.embedded.blocks import refuse

Json = Mapping[str, Any]

CACHE_CONTROL = "cache_control"
BREAKPOINT = "prompt_cache_breakpoint"
_LIVES: Mapping[str, Life] = {"5m": "5m", "1h": "1h"}


def reads_control(profile: CacheProfile) -> bool:
    """Whether the provider reads ``cache_control``."""
    return profile.dialect.key == CACHE_CONTROL


def reads_breakpoint(profile: CacheProfile) -> bool:
    """Whether the provider reads ``prompt_cache_breakpoint``."""
    return profile.dialect.key == BREAKPOINT


def forbid(owner: Json, at: str, profile: CacheProfile, *, breakpoint_allowed: bool = False) -> None:
    """Refuse a marker field that the provider does not know on this object."""
    if reads_control(profile) or not (reads_breakpoint(profile) or profile.refuses_unknown):
        return
    for field in (CACHE_CONTROL, BREAKPOINT):
        if field in owner and not (field == BREAKPOINT and breakpoint_allowed and reads_breakpoint(profile)):
            name = f"{at}.{field}" if at else field
            raise refuse(f"Unknown parameter: '{name}'.", name, "unknown_parameter")


def cache_control(owner: Json, at: str) -> Life | None:
    """The life that an Anthropic marker asks for."""
    if owner.get(CACHE_CONTROL) is None:
        return None
    control = owner[CACHE_CONTROL]
    if not isinstance(control, Mapping) or control.get("type") != "ephemeral":
        raise refuse(f"{at}.cache_control.type: Input should be 'ephemeral'", f"{at}.cache_control")
    ttl = control.get("ttl", "5m")
    life = _LIVES.get(ttl) if isinstance(ttl, str) else None
    if life is None:
        raise refuse(f"{at}.cache_control.ttl: Input should be '5m' or '1h'", f"{at}.cache_control.ttl")
    return life


def text_mark(owner: Json, at: str, text: str) -> Life | None:
    """An Anthropic marker on text, which must not be empty."""
    life = cache_control(owner, at)
    if life is not None and not text.strip():
        raise refuse(f"{at}: cache_control cannot be set for empty text blocks", f"{at}.cache_control")
    return life


def breakpoint_mark(owner: Json, at: str, profile: CacheProfile) -> Life | None:
    """An OpenAI breakpoint."""
    if owner.get(BREAKPOINT) is None:
        return None
    control = owner[BREAKPOINT]
    if not isinstance(control, Mapping) or control.get("mode") != "explicit":
        raise refuse(f"Invalid value: '{at}.{BREAKPOINT}.mode' must be 'explicit'.", f"{at}.{BREAKPOINT}.mode")
    return named_life(control, f"{at}.{BREAKPOINT}", profile)


def named_life(options: Json, at: str, profile: CacheProfile) -> Life:
    """The life that a ``ttl`` asks for, by the provider's own names."""
    short, long = profile.ttls
    ttl = options.get("ttl", short)
    if ttl == short:
        return "5m"
    if ttl != long or profile.long_life_s <= 0:
        raise refuse(f"Invalid '{at}.ttl'.", f"{at}.ttl", "invalid_value")
    return "1h"

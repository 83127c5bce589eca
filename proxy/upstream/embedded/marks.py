"""Where each provider reads a cache marker in an OpenAI-format request, and where it refuses one.

Anthropic as litellm 1.109 translates (``llms/anthropic/chat/transformation.py``, ``factory.py``): kept on parts and on
string content, dropped at message level beside list content, on a tool result only at message level, refused inside
its content, on thinking blocks and on empty text. OpenAI up to GPT-5.5 knows no marker and refuses unknown parameters;
GPT-5.6 and newer take ``prompt_cache_breakpoint`` on parts of messages that are not the assistant's. Groq, Mistral and
Fireworks refuse what they do not know, others pass over it. DashScope reads markers on content parts alone, also within
a tool result. All of it is in the profile; ``MarkStyle`` is the part of it that a reader of requests needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from proxy.core.caches.prompt import Life
from proxy.core.providers import CacheProfile, MarkPlace
from proxy.upstream.embedded.blocks import refuse

Json = Mapping[str, Any]

CACHE_CONTROL = "cache_control"
BREAKPOINT = "prompt_cache_breakpoint"
_LIVES: Mapping[str, Life] = {"5m": "5m", "1h": "1h"}


class Syntax(StrEnum):
    """How a provider treats the fields ``cache_control`` and ``prompt_cache_breakpoint``."""

    CACHE_CONTROL = CACHE_CONTROL
    BREAKPOINT = BREAKPOINT
    REFUSED = "refused"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class MarkStyle:
    """Which marker a provider reads, and where: on tools, beside string content, in a tool result, on the request."""

    syntax: Syntax
    on_tools: bool
    on_messages: bool
    on_body: bool
    on_results: MarkPlace
    lives: tuple[str, str]
    has_long: bool

    @property
    def is_control(self) -> bool:
        """Whether ``cache_control`` is read."""
        return self.syntax is Syntax.CACHE_CONTROL

    @property
    def is_breakpoint(self) -> bool:
        """Whether ``prompt_cache_breakpoint`` is read."""
        return self.syntax is Syntax.BREAKPOINT


_SYNTAX = {CACHE_CONTROL: Syntax.CACHE_CONTROL, BREAKPOINT: Syntax.BREAKPOINT}


def mark_style(profile: CacheProfile) -> MarkStyle:
    """The style of a profile's provider."""
    unknown = Syntax.REFUSED if profile.refuses_unknown else Syntax.IGNORED
    return MarkStyle(
        syntax=_SYNTAX.get(profile.dialect.key, unknown),
        on_tools=profile.tool_mark,
        on_messages=profile.message_mark,
        on_body=profile.body_mark,
        on_results=profile.result_mark,
        lives=profile.ttls,
        has_long=profile.long_life_s > 0,
    )


def forbid(owner: Json, at: str, style: MarkStyle, *, breakpoint_allowed: bool = False) -> None:
    """Refuse a marker field that the provider does not know on this object."""
    if style.syntax in (Syntax.CACHE_CONTROL, Syntax.IGNORED):
        return
    for field in (CACHE_CONTROL, BREAKPOINT):
        if field in owner and not (field == BREAKPOINT and breakpoint_allowed and style.is_breakpoint):
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


def breakpoint_mark(owner: Json, at: str, style: MarkStyle) -> Life | None:
    """An OpenAI breakpoint."""
    if owner.get(BREAKPOINT) is None:
        return None
    control = owner[BREAKPOINT]
    if not isinstance(control, Mapping) or control.get("mode") != "explicit":
        raise refuse(f"Invalid value: '{at}.{BREAKPOINT}.mode' must be 'explicit'.", f"{at}.{BREAKPOINT}.mode")
    return named_life(control, f"{at}.{BREAKPOINT}", style)


def named_life(options: Json, at: str, style: MarkStyle) -> Life:
    """The life that a ``ttl`` asks for, by the provider's own names."""
    ttl = options.get("ttl", style.lives[0])
    if ttl == style.lives[0]:
        return "5m"
    if ttl != style.lives[1] or not style.has_long:
        raise refuse(f"Invalid '{at}.ttl'.", f"{at}.ttl", "invalid_value")
    return "1h"

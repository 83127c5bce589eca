"""What a provider's own diagnostics say of a cache miss, where an answer carries them.

Anthropic: ``diagnostics.cache_miss_reason.type`` ("Cache diagnostics", 2026-08-21). OpenAI's Responses:
``prompt_cache_diagnostics`` with ``type`` and ``reason`` ("Prompt caching", 2026-09-20). Both compare requests: they
know what the client changed, and nothing of entries that expired.
"""

from collections.abc import Mapping
from types import MappingProxyType

UNTOLD = "untold"
"""The answer has no diagnostics, or none that is ready."""
OTHER = "other"

# By the providers' names; ours where two of them say the same.
_CAUSES = MappingProxyType(
    {
        "model_changed": "model-changed",
        "system_changed": "system-changed",
        "instructions_changed": "system-changed",
        "tools_changed": "tools-changed",
        "messages_changed": "messages-changed",
        "input_changed": "messages-changed",
        "prompt_cache_key_changed": "key-changed",
        "previous_message_not_found": "not-comparable",
        "comparison_response_not_found": "not-comparable",
        "unavailable": "unavailable",
        "cache_hit": "hit",
    }
)
CAUSES = (UNTOLD, OTHER, *dict.fromkeys(_CAUSES.values()))
"""The closed vocabulary."""
CHANGES = frozenset(cause for cause in CAUSES if cause.endswith("-changed"))
"""Causes that name something that the client has changed."""
HOLDERS = ("message", "response")
"""Members of an event in which an answer stands."""


def cause_of(payload: Mapping[str, object]) -> str:
    """The cause in an answer or an event of a stream."""
    for holder in (payload, *(payload.get(name) for name in HOLDERS)):
        if isinstance(holder, Mapping):
            found = _cause_in(holder.get("diagnostics"), holder.get("prompt_cache_diagnostics"))
            if found != UNTOLD:
                return found
    return UNTOLD


def _cause_in(anthropic: object, openai: object) -> str:
    """The cause in either provider's object."""
    if isinstance(anthropic, Mapping):
        reason = anthropic.get("cache_miss_reason")
        if isinstance(reason, Mapping):
            return _named(reason.get("type"))
    if isinstance(openai, Mapping):
        kind, reason = openai.get("type"), openai.get("reason")
        return _named(reason if kind == "cache_miss" and reason else kind)
    return UNTOLD


def _named(name: object) -> str:
    return _CAUSES.get(name, OTHER) if isinstance(name, str) else UNTOLD

"""A bill in the provider's own usage fields.

Anthropic's as litellm 1.109 hands them on (``llms/anthropic/chat/transformation.py``, ``calculate_usage``): inclusive,
with Anthropic's own counters beside. OpenAI's are inclusive; GPT-5.6 and newer add ``cache_write_tokens``. DeepSeek
splits the prompt into hit and miss.
"""

from typing import Any

from proxy.core.profiles import CacheProfile, Dialect, Family
from proxy.core.prompt import Bill


def usage_fields(bill: Bill, output_tokens: int, profile: CacheProfile) -> dict[str, Any]:
    """The ``usage`` object of an answer."""
    usage: dict[str, Any] = {
        "prompt_tokens": bill.total,
        "completion_tokens": output_tokens,
        "total_tokens": bill.total + output_tokens,
    }
    match profile.family, profile.dialect:
        case Family.MARKER, Dialect.CACHE_CONTROL:
            usage.update(_anthropic(bill))
        case Family.MARKER, _:
            usage["prompt_tokens_details"] = {"cached_tokens": bill.read, "cache_write_tokens": bill.write}
        case Family.GRID, _:
            usage["prompt_tokens_details"] = {"cached_tokens": bill.read, "audio_tokens": 0}
        case Family.UNIT, _:
            usage["prompt_cache_hit_tokens"] = bill.read
            usage["prompt_cache_miss_tokens"] = bill.total - bill.read
        case _:
            pass
    return usage


def _anthropic(bill: Bill) -> dict[str, Any]:
    lives = {"ephemeral_5m_input_tokens": bill.write_5m, "ephemeral_1h_input_tokens": bill.write_1h}
    return {
        "prompt_tokens_details": {
            "cached_tokens": bill.read,
            "cache_creation_tokens": bill.write,
            "cache_creation_token_details": lives,
        },
        "cache_read_input_tokens": bill.read,
        "cache_creation_input_tokens": bill.write,
        "cache_creation": lives,
    }

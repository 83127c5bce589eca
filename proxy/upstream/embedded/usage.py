"""A bill in the provider's own usage fields.

Anthropic's as litellm 1.109 hands them on (``llms/anthropic/chat/transformation.py``, ``calculate_usage``): inclusive,
with Anthropic's own counters beside. OpenAI's are inclusive; GPT-5.6 and newer add ``cache_write_tokens``. DeepSeek
splits the prompt into hit and miss; Kimi repeats the read beside the details; DashScope names the explicit cache's
creation in the details (https://www.alibabacloud.com/help/en/model-studio/context-cache).
"""

from typing import Any, assert_never

from proxy.core.caches.prompt import Bill
from proxy.core.providers import CacheProfile, UsageForm


def usage_fields(bill: Bill, output_tokens: int, profile: CacheProfile) -> dict[str, Any]:
    """The ``usage`` object of an answer."""
    return {
        "prompt_tokens": bill.total,
        "completion_tokens": output_tokens,
        "total_tokens": bill.total + output_tokens,
        **_cached(bill, profile.usage),
    }


def _cached(bill: Bill, form: UsageForm) -> dict[str, Any]:
    """What the cache adds."""
    read_and_written = {"cached_tokens": bill.read, "cache_write_tokens": bill.write}
    match form:
        case UsageForm.ANTHROPIC:
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
        case UsageForm.OPENAI:
            return {"prompt_tokens_details": {"cached_tokens": bill.read, "audio_tokens": 0}}
        case UsageForm.OPENAI_WRITES:
            return {"prompt_tokens_details": read_and_written}
        case UsageForm.KIMI:
            return {"cached_tokens": bill.read, "prompt_tokens_details": read_and_written}
        case UsageForm.DASHSCOPE:
            return {
                "prompt_tokens_details": {
                    "cached_tokens": bill.read,
                    "cache_creation_input_tokens": bill.write,
                    "cache_creation": {"ephemeral_5m_input_tokens": bill.write},
                    "cache_type": "ephemeral",
                }
            }
        case UsageForm.DEEPSEEK:
            return {"prompt_cache_hit_tokens": bill.read, "prompt_cache_miss_tokens": bill.total - bill.read}
        case UsageForm.NONE:
            return {}
        case _:
            assert_never(form)

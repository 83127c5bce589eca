"""The usage of an observation of Langfuse's, whose names and meanings are its own.

``input`` leaves out what the cache read and wrote where an integration follows Langfuse's advice ("Token and cost
tracking": the counters of a usage exclude each other), and holds it where one passes the provider's own count on; the
total tells which.
"""

from types import MappingProxyType

from proxy.core.response.usage import Usage, mapping, usage_of
from proxy.core.wire.json_body import Members
from proxy.doctor.readers.fields import first_value

_DETAILS = ("usageDetails", "usage_details", "usage")
_NAMES = MappingProxyType(
    {
        "prompt_tokens": ("input", "input_tokens", "prompt_tokens", "promptTokens", "inputUsage"),
        "completion_tokens": ("output", "output_tokens", "completion_tokens", "completionTokens", "outputUsage"),
        "cache_read_input_tokens": (
            "input_cached_tokens", "cache_read_input_tokens", "input_cache_read", "cached_tokens", "input_cached",
        ),
        "cache_creation_input_tokens": (
            "cache_creation_input_tokens", "input_cache_creation", "input_cache_write", "input_cache_creation_5m",
        ),
        "total_tokens": ("total", "total_tokens", "totalUsage"),
    }
)  # fmt: skip


def langfuse_usage(members: Members) -> Usage | None:
    """The usage; None where the observation has none, as spans and events."""
    details = mapping(first_value(members, _DETAILS))
    tops = [name for names in _NAMES.values() for name in names if name != "input"]
    told = details or {name: first_value(members, (name,)) for name in tops}
    report = {name: next((told[known] for known in names if told.get(known)), 0) for name, names in _NAMES.items()}
    if not report["total_tokens"]:
        # Counters that exclude each other: all of them are the whole.
        report["total_tokens"] = sum(each for each in report.values() if isinstance(each, int))
    usage = usage_of({name: _number(value) for name, value in report.items()})
    return usage if usage is not None and usage.prompt else None


def _number(value: object) -> object:
    """A number that CSV holds as a text."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 13 else value

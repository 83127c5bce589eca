"""Groups rows from the admin API's answers by common values, and sums them up."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

BILLED = ("requests", "read_tokens", "write_tokens", "uncached_tokens", "cost_usd", "saved_usd")
"""The counters that sessions and reports of spend have in common."""


def grouped(rows: Iterable[Mapping[str, Any]], by: Sequence[str], sums: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each group: the common values, the ``sums`` (for ``last_seen`` the latest value), and the share of
    the prompts that was read from the cache, if tokens are counted. The most expensive group comes first, by the sum
    whose name ends in ``usd``."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in by)
        line = found.setdefault(key, dict(zip(by, key, strict=True)) | dict.fromkeys(sums, 0))
        for name in sums:
            line[name] = max(line[name], row[name]) if name == "last_seen" else line[name] + row[name]
    usd = next(name for name in sums if name.endswith("usd"))
    return sorted(map(with_ratio, found.values()), key=lambda line: -line[usd])


def with_ratio(sums: Mapping[str, Any]) -> dict[str, Any]:
    """These sums, with the hit ratio if they have tokens."""
    if "read_tokens" not in sums:
        return dict(sums)
    prompt = sums["read_tokens"] + sums["write_tokens"] + sums["uncached_tokens"]
    return {**sums, "hit_ratio": sums["read_tokens"] / prompt if prompt else 0.0}

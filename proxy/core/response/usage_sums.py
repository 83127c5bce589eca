"""The usage of several calls of one exchange, as one report in the provider's own form. Pure."""

from collections.abc import Mapping

Report = Mapping[str, object]

_MOST_DEPTH = 4
_MOST = 10**12
"""A larger number does not count. The sum of two such numbers could be one that the JSON writer refuses."""
_SUMS = ("tokens", "requests", "tokencount", "cost")


def summed(earlier: Report | None, last: Report, depth: int = 0) -> Report:
    """The last report with the counters of the earlier ones added: tokens, requests of tools, and the cost. All other
    values (times, the tier) stay as the last report has them."""
    if earlier is None:
        return last
    found: dict[str, object] = dict(last)
    for name, before in earlier.items():
        now = found.get(name)
        if isinstance(before, dict) and depth < _MOST_DEPTH:
            if now is None or isinstance(now, dict):
                found[name] = summed(before, now if isinstance(now, dict) else {}, depth + 1)
        elif _is_count(name, before) and (now is None or _is_count(name, now)):
            found[name] = before + (now or 0)  # type: ignore[operator]
    return found


def _is_count(name: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return name.lower().endswith(_SUMS) and abs(value) <= _MOST

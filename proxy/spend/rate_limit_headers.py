"""The headers that tell a client about its rate limits, in the form that OpenAI's clients read.

https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers
"""

import math
from collections.abc import Iterable

from proxy.core.money.budget import Rule
from proxy.ports import Headers
from proxy.storage.port import Balance

PREFIX = "x-ratelimit-"


def rate_headers(limits: Iterable[tuple[Rule, float | None, Balance]], now: float) -> Headers:
    """The headers for limits. Each limit is a rule, the time at which it begins anew, and its balance. Of several
    limits in one unit, the headers show the one with the least left. Rules that are no rate limits are left out."""
    tightest: dict[str, tuple[int, int, float]] = {}
    for rule, resets_at, balance in limits:
        if rule.is_rate and rule.hard is not None:
            left = max(0, rule.hard - balance.spent - balance.reserved)
            told = (left, rule.hard, max(0.0, (resets_at or now) - now))
            tightest[rule.unit] = min(told, tightest.get(rule.unit, told))
    headers = []
    for unit, (left, limit, reset_s) in tightest.items():
        headers += [
            (f"{PREFIX}limit-{unit}", str(limit)),
            (f"{PREFIX}remaining-{unit}", str(left)),
            (f"{PREFIX}reset-{unit}", f"{math.ceil(reset_s)}s"),
        ]
    return headers

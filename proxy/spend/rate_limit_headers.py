"""The headers that tell a client about its rate limits, in the form that OpenAI's clients read.

https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers
"""

import math
from collections.abc import Iterable

from proxy.ports import Headers
from proxy.spend.bookings import Booking
from proxy.storage.port import Balance

PREFIX = "x-ratelimit-"


def rate_headers(limits: Iterable[tuple[Booking, Balance]], now: float) -> Headers:
    """The headers for bookings with their balances. Of several limits in one unit, the headers show the one with the
    least left. Rules that are no rate limits are left out."""
    tightest: dict[str, tuple[int, int, float]] = {}
    for booking, balance in limits:
        rule = booking.rule
        if rule.is_rate and rule.hard is not None:
            left = max(0, rule.hard - balance.spent - balance.reserved)
            told = (left, rule.hard, max(0.0, (booking.window.resets_at or now) - now))
            tightest[rule.unit] = min(told, tightest.get(rule.unit, told))
    headers = []
    for unit, (left, limit, reset_s) in tightest.items():
        headers += [
            (f"{PREFIX}limit-{unit}", str(limit)),
            (f"{PREFIX}remaining-{unit}", str(left)),
            (f"{PREFIX}reset-{unit}", f"{math.ceil(reset_s)}s"),
        ]
    return headers

"""The headers that tell a client about its rate limits."""

from proxy.core.money.budget import Rule
from proxy.spend.bookings import Booking
from proxy.spend.rate_limit_headers import rate_headers
from proxy.spend.windows import Window
from proxy.storage.port import Balance, Charge

BUDGET = Rule("total", "t", hard=5)


def limit(rule: Rule, spent: int, reserved: int, resets_at: float | None = 130.0) -> tuple[Booking, Balance]:
    return Booking(rule, Window("w", resets_at, None), Charge("a", 1)), Balance("a", spent, reserved)


def rate(unit: str, hard: int, whom: str = "key-1") -> Rule:
    return Rule(f"rate/{unit}", "t", unit=unit, hard=hard, window="minute", whom=whom, is_rate=True)  # type: ignore[arg-type]


def test_the_limit_with_the_least_left_is_told() -> None:
    limits = [
        limit(rate("requests", 60), 10, 5),
        limit(rate("requests", 1000, ""), 995, 2),
        limit(rate("tokens", 500), 600, 0),
        limit(BUDGET, 1, 1, resets_at=None),
    ]
    assert rate_headers(limits, now=100.5) == [
        ("x-ratelimit-limit-requests", "1000"),
        ("x-ratelimit-remaining-requests", "3"),
        ("x-ratelimit-reset-requests", "30s"),
        ("x-ratelimit-limit-tokens", "500"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "30s"),
    ]


def test_nothing_is_said_where_there_is_no_rate_limit() -> None:
    assert rate_headers([limit(BUDGET, 1, 1, resets_at=None)], 0.0) == []

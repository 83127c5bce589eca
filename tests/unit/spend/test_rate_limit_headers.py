"""The headers that tell a client about its rate limits."""

from proxy.core.money.budget import Rule
from proxy.spend.rate_limit_headers import rate_headers
from proxy.storage.port import Balance


def rate(unit: str, hard: int, whom: str = "key-1") -> Rule:
    return Rule(f"rate/{unit}", "t", unit=unit, hard=hard, window="minute", whom=whom, is_rate=True)  # type: ignore[arg-type]


def test_the_limit_with_the_least_left_is_told() -> None:
    limits = [
        (rate("requests", 60), 130.0, Balance("a", 10, 5)),
        (rate("requests", 1000, ""), 130.0, Balance("b", 995, 2)),
        (rate("tokens", 500), 130.0, Balance("c", 600, 0)),
        (Rule("total", "t", hard=5), None, Balance("d", 1, 1)),
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
    assert rate_headers([(Rule("total", "t", hard=5), None, Balance("d", 1, 1))], 0.0) == []

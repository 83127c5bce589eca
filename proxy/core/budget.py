"""Hard budgets: whether a request may still be sent, and the most that it can cost. Pure."""

from dataclasses import dataclass, field
from typing import Literal

from proxy.core.prices import Price

# Sums of floats are off by less than this.
_DUST_USD = 1e-9


@dataclass(frozen=True, slots=True)
class Limit:
    """What a team may spend in all. ``assumed_output_tokens`` stands in where a request sets no limit of its own."""

    usd: float
    assumed_output_tokens: int = 8192


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit that holds for one request: a budget, or a rate limit.

    ``whom`` keeps apart what the rule counts apart (a key's id, a user, a model); empty: the whole team together.
    ``hard`` and ``soft`` are in the counter's unit: nano-dollars, tokens (prompt and output), requests. ``window`` is
    "total", "minute", "hour", "day", "week" (from Monday), "month" (calendar, in ``timezone``) or "rolling:SECONDS".
    ``is_rate``: passing it is 429 ``rate_limit_exceeded`` with a time to retry after, not a spent budget.
    """

    id: str
    title: str
    """What an error calls it: "the monthly budget of team 'red'"."""
    unit: Literal["usd", "tokens", "requests"] = "usd"
    hard: int | None = None
    soft: int | None = None
    window: str = "total"
    timezone: str = "UTC"
    whom: str = ""
    assumed_output_tokens: int = 8192
    is_rate: bool = False
    webhook: str = field(default="", repr=False)


def decide(limit: Limit, spent_usd: float, reserved_usd: float, estimate_usd: float) -> str | None:
    """None where the request may be sent; else why not, for the client to read.

    What running requests have reserved counts as spent, so that many at once cannot pass the limit together.
    """
    left_usd = limit.usd - spent_usd - reserved_usd
    if left_usd > _DUST_USD and estimate_usd <= left_usd + _DUST_USD:
        return None
    reserved = f", {_money(reserved_usd)} is reserved by running requests" if reserved_usd > 0 else ""
    state = f"{_money(spent_usd)} of the budget of {_money(limit.usd)} is spent{reserved}"
    if left_usd <= _DUST_USD:
        return state
    return f"{state}, and this request may cost up to {_money(estimate_usd)} (a lower output limit lowers that)"


def upper_bound(price: Price, prompt_tokens: int, output_tokens: int) -> float:
    """USD for a request whose whole prompt is billed at the dearest rate there is for it."""
    rate = price.at(prompt_tokens)
    dearest = max(rate.input, rate.read, rate.write_5m, rate.write_1h)
    return prompt_tokens * dearest + output_tokens * rate.output


def _money(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}" if usd >= 1e-4 else f"${usd:.1e}"

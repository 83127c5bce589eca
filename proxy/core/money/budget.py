"""Limits on spend and traffic: a request's highest cost, its probable cost, and the text of a refusal.

A hard limit holds because a request is sent only if its *worst case* fits: the whole prompt at the dearest rate that
its markers can cause, and all the output that it may have. The estimate is never below the bill on two conditions. The
provider counts no more tokens than the prompt's bound allows for (``proxy.core.money.bound``), and it answers within
the request's own limit (or, if the request sets none, within the model's limit or ``Rule.assumed_output_tokens``). Soft
limits and forecasts use the *expected* cost: the prompt as the shadow cache bills it, and an answer of the usual
length. Pure.
"""

import math
from typing import Literal

from proxy.core.caches.prompt import Bill
from proxy.core.money.prices import Price, input_cost
from proxy.core.value import dataclass, field

Unit = Literal["usd", "tokens", "requests"]

NANOS_PER_USD = 1_000_000_000

MOST_AMOUNT = (1 << 53) - 1
"""The largest amount that a store counts exactly. It is more than any hard limit, and larger amounts count as this
one."""

UNKNOWN_OUTPUT_TOKENS = 8192
"""The longest answer that is assumed for a model without a known limit."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit that holds for one request: a budget, or a rate limit.

    ``whom`` says what the rule counts separately (a key's id, a user, a model); empty: the whole team together.
    ``hard`` and ``soft`` are in the counter's unit: nano-dollars, tokens (prompt and output), requests. ``window`` is
    "total", "minute", "hour", "day", "week" (from Monday), "month" (calendar, in ``timezone``) or "rolling:SECONDS".
    ``assumed_output_tokens`` are used for a request that sets no limit of its own (None: the most that the model can
    answer). ``is_rate``: exceeding the limit is a 429 ``rate_limit_exceeded`` with a time to retry after, and not a
    spent budget.
    """

    id: str
    title: str
    """The rule's name in an error: "the monthly budget of team 'red'"."""
    unit: Unit = "usd"
    hard: int | None = None
    soft: int | None = None
    window: str = "total"
    timezone: str = "UTC"
    whom: str = ""
    assumed_output_tokens: int | None = None
    is_rate: bool = False
    webhook: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The amount of a unit that one request takes: at most, and probably."""

    most: int
    expected: int


def worst_case(price: Price, prompt_tokens: int, output_tokens: int, *, long_life: bool) -> int:
    """Nano-dollars for a prompt that is all written to the cache, with the longer TTL if it is asked for."""
    rate = price.at(prompt_tokens)
    dearest = max(rate.input, rate.read, rate.write_5m, rate.write_1h if long_life else 0.0)
    return nanos_at_most(prompt_tokens * dearest + output_tokens * rate.output)


def expected_cost(price: Price, bill: Bill | None, prompt_tokens: int, output_tokens: int) -> int:
    """Nano-dollars for a prompt as the shadow cache bills it. Without a bill from the shadow cache, the prompt counts
    as plain input."""
    prompt = bill if bill is not None else Bill(0, 0, 0, prompt_tokens)
    return nanos(input_cost(prompt, price) + output_tokens * price.at(prompt.total).output)


def nanos(usd: float) -> int:
    """An amount in nano-dollars, rounded."""
    return round(min(usd * NANOS_PER_USD, MOST_AMOUNT))


def nanos_at_most(usd: float) -> int:
    """An amount in nano-dollars, rounded up."""
    # The rounding errors of float products are smaller than the digits that are cut.
    return math.ceil(round(min(usd * NANOS_PER_USD, MOST_AMOUNT), 3))


def refusal(rule: Rule, spent: int, reserved: int, amount: int, again: str, why: str = "") -> str:
    """The reason for a refusal, as a text for the client. ``again`` says when the window ends ("" for never), and
    ``why`` says what the request's bound was made from."""
    limit = rule.hard or 0
    running = f", {amount_text(rule.unit, reserved)} reserved by running requests" if reserved > 0 else ""
    state = f"{amount_text(rule.unit, spent)} of {amount_text(rule.unit, limit)} spent{running}"
    if spent + reserved < limit and rule.unit != "requests":
        verb = "cost" if rule.unit == "usd" else "take"
        need = amount_text(rule.unit, amount)
        state += f", and this request may {verb} up to {need}{why and f' ({why})'}"
    text = f"{rule.title[:1].upper()}{rule.title[1:]} does not allow this request: {state}."
    return f"{text} It begins anew at {again}." if again else text


def amount_text(unit: Unit, amount: int) -> str:
    """An amount for people: "$1.25", "1200 tokens", "3 requests"."""
    if unit != "usd":
        return f"{amount} {unit}"
    usd = amount / NANOS_PER_USD
    return f"${usd:.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}" if usd >= 1e-4 else f"${usd:.1e}"

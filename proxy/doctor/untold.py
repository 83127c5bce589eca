"""What broke the cache of a call whose prompt the log does not hold, as far as its usage and its time tell."""

from dataclasses import dataclass, replace

from proxy.core.caches.prompt import Bill
from proxy.core.diagnosis.breaks import Break, BreakKind
from proxy.core.diagnosis.diagnose import MODEL
from proxy.core.money.prices import input_cost
from proxy.core.response.usage import Usage
from proxy.core.shadow.deviations import Deviation, tolerance
from proxy.doctor.rules import ModelRules

UNTOLD_CULPRIT = "prompt"
"""The culprit of a break that the log does not explain; its kind is ``BreakKind.CHANGED``."""

# A conversation that loses this share at once was cut, summarised, or begun anew.
_SHRUNK = 0.6


@dataclass(frozen=True, slots=True)
class Seen:
    """The last call of a session: what it has left in the cache, in tokens, and for how long."""

    at: float
    model: str
    usage: Usage
    is_long: bool


def seen(at: float, model: str, usage: Usage, before: Seen | None) -> Seen:
    """The session after this call. An entry that was written for an hour keeps that life while it is read."""
    is_long = usage.write_1h > 0 or (before is not None and before.is_long and not usage.write_5m)
    return Seen(at, model, usage, is_long)


def untold_break(
    before: Seen, at: float, model: str, usage: Usage, rules: ModelRules, *, is_compacted: bool
) -> Break | None:
    """The break of a call, by the one before it; None where as much was read as could be."""
    profile = rules.profile
    held = before.usage.read + before.usage.write if before.usage.writes_told else before.usage.prompt
    expected = min(held, usage.prompt) * profile.hit_chance
    if held < profile.min_tokens or usage.read >= expected - tolerance(usage, profile):
        return None
    life_s = (profile.long_life_s if before.is_long else profile.life_s) + profile.slack_s
    is_shrunk = usage.prompt < _SHRUNK * before.usage.prompt
    if model != before.model:
        found = Break(BreakKind.MODEL_SWITCHED, model, MODEL)
    elif at - before.at > life_s:
        found = Break(Deviation.EXPIRED)
    elif is_compacted or is_shrunk:
        # What a summary has taken the place of could not have been read again.
        return None
    else:
        found = Break(BreakKind.CHANGED, UNTOLD_CULPRIT, is_waste=True)
    return _priced(found, usage, round(expected) - usage.read, rules)


def _priced(found: Break, usage: Usage, lost: int, rules: ModelRules) -> Break:
    """The break with its price: so many tokens would have been read instead of being written, or processed plainly."""
    written = min(lost, usage.write)
    short = min(written, usage.write_5m)
    frozen = Bill(
        usage.read + lost, usage.write_5m - short, usage.write_1h - (written - short), usage.plain - (lost - written)
    )
    usd = input_cost(usage, rules.price) - input_cost(frozen, rules.price) if rules.price is not None else 0.0
    return replace(found, before=usage.read, behind=usage.prompt - usage.read, lost=lost, usd=max(0.0, usd))

"""What each mode would cost for the requests of a client whose bodies were kept: the planner itself, on a provider that
caches by the rules of the model's profile, in the recorded time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from proxy.core.modes import Mode
from proxy.doctor.intake import Body
from proxy.doctor.rules import Rules
from proxy.replay.runner import Ours, Setting
from proxy.replay.trace import Step

MODES = (Mode.PASSTHROUGH, Mode.MARK, Mode.TIER)


@dataclass(slots=True)
class ModeBill:
    """What the kept requests cost in one mode. ``plain`` counts plain input tokens, ``usd`` those with a price."""

    plain: float = 0.0
    usd: float = 0.0
    read: int = 0
    prompt: int = 0
    refused: int = 0


def mode_bills(bodies: Sequence[Body], rules: Rules, setting: Setting) -> dict[Mode, ModeBill]:
    """The bills by mode. Each model has a cache, and a planner, of its own."""
    found = {mode: ModeBill() for mode in MODES}
    ordered = sorted(bodies, key=lambda body: (body.model, body.provider, body.at))
    for (model, provider), some in groupby(ordered, key=lambda body: (body.model, body.provider)):
        held, steps = rules.of(model, provider), [Step(body.at, body.session, body.content) for body in some]
        for mode, bill in found.items():
            ours = Ours(replace(setting, profile=held.profile, mode=mode))
            for step in steps:
                ours.send(step, ours.assembled(step))
            total, cost = ours.total, ours.total.cost(held.profile)
            bill.plain += cost
            bill.usd += cost * held.price.input if held.price is not None else 0.0
            bill.read += total.read
            bill.prompt += total.prompt
            bill.refused += total.refused
    return found

"""What each mode would cost for the requests of a client whose bodies were kept: the planner itself, on a provider that
caches by the rules of the model's profile, in the recorded time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from proxy.core.modes import Mode
from proxy.doctor.readers.call import Call
from proxy.doctor.rules import ModelRules, Rules
from proxy.replay.runner import Ours, Setting
from proxy.replay.totals import Total
from proxy.replay.trace import Step

MODES = (Mode.PASSTHROUGH, Mode.MARK, Mode.TIER)

Runs = Mapping[Mode, Sequence[tuple[Total, ModelRules]]]
"""The bills by mode; each model has a cache, and a planner, of its own."""


def mode_runs(calls: Sequence[Call], rules: Rules, setting: Setting) -> Runs:
    """Run the calls, all of which have bodies."""
    found: dict[Mode, list[tuple[Total, ModelRules]]] = {mode: [] for mode in MODES}
    ordered = sorted(calls, key=lambda call: (call.model, call.provider, call.at or 0.0))
    for (model, provider), some in groupby(ordered, key=lambda call: (call.model, call.provider)):
        held = rules.of(model, provider)
        steps = [Step(call.at or 0.0, call.session, call.body or b"") for call in some]
        for mode, runs in found.items():
            ours = Ours(replace(setting, profile=held.profile, mode=mode))
            for step in steps:
                ours.send(step, ours.assembled(step))
            runs.append((ours.total, held))
    return found

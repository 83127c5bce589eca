"""Orders that are not looked up in the cache would not have been sent."""

import json
from dataclasses import replace
from unittest.mock import patch

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proxy.planner import candidates
from proxy.protocol.providers import PROFILES
from tests.examples import examples
from tests.property.conversations import Step, conversations
from tests.talk import Body, Talk, assistant, chat, system, user

QUIRKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def under(*heads: str) -> list[Step]:
    """A conversation whose instructions change from request to request."""
    turns: list[Body] = []
    steps = []
    for number, head in enumerate(heads):
        turns.append(user(f"{number} fix"))
        steps.append(Step(5.0, chat(system(head), *turns)))
        turns.append(assistant("fix"))
    return steps


FIXED = "Be exact.\nsection 1\n{}Be exact.\nBe exact.\nsection 3"
# What is left of the last request's instructions without their volatile line was the whole of the first one's.
AS_BEFORE = under(
    FIXED.format(""),
    "M a.py\n" + FIXED.format("M a.py\nM a.py\n"),
    FIXED.format("M a.py\n"),
    "M a.py\n" + FIXED.format(""),
)


@example(AS_BEFORE, "anthropic")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=QUIRKS)
@given(conversations(least=3), st.sampled_from(["anthropic", "minimax", "qwen"]))
def test_a_bound_by_what_was_sent_before_leaves_out_nothing_that_would_win(steps: list[Step], name: str) -> None:
    profile = replace(PROFILES[name], min_tokens=1)
    bounded, unbounded = Talk(profile=profile), Talk(profile=profile)
    for step in steps:
        plan = bounded.send(step.body, after_s=step.after_s)
        with patch.object(candidates, "_shared", lambda *_: 1 << 30):  # as if all of an order might be held
            other = unbounded.send(step.body, after_s=step.after_s)
        assert json.loads(plan.body) == json.loads(other.body)

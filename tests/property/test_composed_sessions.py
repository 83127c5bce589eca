"""Sessions through the whole chain, composed, fitted to a window and planned: what goes out is the client's, in whole
turns and groups, under the operator's texts."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from proxy.engine.ports import ComposedRequest
from proxy.kit.errors import ContextTooLong
from proxy.kit.modes import Edit, Mode, Reason
from proxy.lab import Step, read_trace
from proxy.lab.demo.tool_agent import tool_agent
from proxy.models import Deployment, Transport
from proxy.prompts.window import Capability, CapabilityProfile
from proxy.protocol.providers import PROFILES
from proxy.protocol.request import Inset, parse_body, with_system
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services import ModelFacts
from proxy.services.windows import ContextWindows
from tests.economics.made import environment_agent
from tests.examples import in_turn, sampled
from tests.fidelity.checker import check
from tests.fidelity.recorded import trace_files
from tests.talk import Body, Talk
from tests.windows import TEXTS, unpaired

SYSTEM, INSET = "Follow the rules.\n\nNever guess.", Inset("Question:", "Be brief.")
PROFILE_NAMES = ("anthropic", "openai", "none")
SESSIONS = {"tools": tool_agent, "environment": environment_agent}


@dataclass
class Chain:
    """Composing, fitting and planning, as the proxy does them one after another."""

    profile: str
    mode: Mode
    window_tokens: int
    talk: Talk = field(init=False)
    trimmed: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        rules = PROFILES[self.profile]
        self.talk = Talk(profile=rules, mode=self.mode)
        self.talk.route = replace(self.talk.route, inset=INSET, repeats=False)
        self.deployment = Deployment("m", "m", Transport.EMBEDDED, rules)
        self.windows = ContextWindows(self.talk.planner.reader, bytes_over_four, ModelFacts(), TEXTS)
        self.capability = CapabilityProfile(
            "mine", Capability.CHAT, window_tokens=self.window_tokens, output_tokens=0, margin_tokens=0
        )

    def send(self, step: Step) -> None:
        """One request, under the checker. One that cannot fit is refused, and nothing is planned for it."""
        parsed = self.talk.planner.reader.parse(with_system(parse_body(step.body), SYSTEM))
        self.talk.now = step.at
        composed = ComposedRequest(profile=self.capability, inset=INSET)
        fitting = self.windows.fitted(parsed, composed, self.deployment)
        try:
            fitted = asyncio.run(fitting)
        except ContextTooLong:
            self.refused += 1
            return
        assert fitted.sizes["prompt"] <= self.window_tokens
        self.trimmed += fitted.edits.get(Edit.WINDOW_TRIMMED, 0)
        plan = self.talk.send(fitted.body)
        assert plan.reason is not Reason.INTERNAL_ERROR
        original: Body = json.loads(step.body)
        for sent in (plan.body, plan.original):
            found = check(
                original, json.loads(sent), mode=self.mode.name.lower(), profile=self.profile,
                system=SYSTEM, is_trimmed=True, inset=(INSET.before, INSET.after),
            )  # fmt: skip
            assert found == [], (plan.reason, *map(str, found))
        if not unpaired(original["messages"]):
            assert not unpaired(json.loads(plan.body)["messages"])


def window_of(steps: Sequence[Step], share: float) -> int:
    """A window with room for the shortest request, for this share of what the longest has more, and for the answer."""
    sizes = [bytes_over_four(step.body.decode()) for step in steps]
    bodies = [json.loads(step.body) for step in steps]
    output = max(body.get(name) or 0 for body in bodies for name in ("max_tokens", "max_completion_tokens"))
    return int(min(sizes) + share * (max(sizes) - min(sizes))) + output


def hold(steps: Sequence[Step], profile: str, mode: Mode, share: float) -> Chain:
    """A session over a window that becomes full."""
    chain = Chain(profile, mode, window_of(steps, share))
    for step in steps:
        chain.send(step)
    assert chain.refused < len(steps)
    return chain


@pytest.mark.parametrize("profile", sampled(PROFILE_NAMES, 3))
@pytest.mark.parametrize("session", sampled(SESSIONS, 2))
def test_sessions_hold_at_a_full_window(session: str, profile: str) -> None:
    steps = SESSIONS[session]().trace().steps[:60]
    chain = hold(steps, profile, Mode.TIER, share=0.5)
    assert chain.trimmed


@pytest.mark.parametrize("mode", sampled([Mode.PASSTHROUGH, Mode.OBSERVE, Mode.MARK], 3))
def test_sessions_hold_in_every_mode(mode: Mode) -> None:
    assert hold(tool_agent().trace().steps[:40], "anthropic", mode, share=0.5).trimmed


@pytest.mark.slow
@pytest.mark.parametrize(("path", "profile"), in_turn(trace_files(), PROFILE_NAMES))
def test_recorded_sessions_hold_at_a_full_window(path: Path, profile: str) -> None:
    hold(read_trace(path).steps[:30], profile, Mode.TIER, share=0.5)

"""What stands in front of signed thinking goes out as it went out when the thinking was made: whatever the mode, the
worker, the deployment or the start that serves the request."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.core.modes import Mode
from proxy.core.planner.incoming_chat import IncomingChat
from proxy.core.planner.plan import Plan
from proxy.core.planner.planner import TierPlanner
from proxy.core.providers import ANTHROPIC, PROFILES
from proxy.core.reasons import Reason
from proxy.core.request.route import Route
from proxy.core.request.tokens import bytes_over_four
from tests.examples import examples, sampled
from tests.fidelity.recorded import requests_of, trace_files
from tests.fidelity.signed import SignedThinking
from tests.property.conversations import Step, conversations
from tests.signed_thinking import SignedForm, signed
from tests.talk import RECOGNISERS

TINY = replace(ANTHROPIC, min_tokens=1)
HOISTING, AUTOMATIC = replace(TINY, hoists_system=True), replace(PROFILES["openai"], min_tokens=1)
DEPLOYMENTS = [
    Route("team", "m", model, profile, upstream=model)
    for model, profile in zip("abcde", (TINY, TINY, HOISTING, AUTOMATIC, PROFILES["none"]), strict=True)
]
TRACES = trace_files()
MODES = (Mode.TIER, Mode.TIER, Mode.TIER, Mode.MARK, Mode.OBSERVE, Mode.PASSTHROUGH)


@dataclass
class Fleet:
    """Workers that share a store. Who serves a request, how, and from where it is answered is drawn by the ``seed``."""

    seed: int = 0
    modes: Sequence[Mode] = MODES
    policy: str = "economic"
    deployments: Sequence[Route] = tuple(DEPLOYMENTS)
    blobs: dict[str, bytes] = field(default_factory=dict)
    now: float = 1_700_000_000.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.workers = [self._started() for _ in range(2)]
        self.history = SignedThinking()

    def _started(self) -> TierPlanner:
        return TierPlanner(bytes_over_four, RECOGNISERS, self.policy)

    def send(self, step: Step) -> None:
        """One request, held against the rules."""
        draw = self.random
        self.now += step.after_s
        if draw.random() < 0.2:
            self.workers[draw.randrange(2)] = self._started()
        route, mode = draw.choice(self.deployments), draw.choice(self.modes)
        raw = json.dumps(step.body).encode("utf-8", "surrogatepass")
        plan = self._planned(self.workers[draw.randrange(2)], raw, route, mode)
        assert plan.reason is not Reason.INTERNAL_ERROR
        found = self.history.check(
            step.body,
            json.loads(plan.body),
            mode=mode.name.lower(),
            profile=route.profile.name,
            tools_seen_reordered=True,
        )
        assert found == [], (mode, plan.reason, *map(str, found))

    def _planned(self, worker: TierPlanner, raw: bytes, route: Route, mode: Mode) -> Plan:
        incoming = worker.read(worker.reader.parse(raw), route, mode, self.now)
        if not isinstance(incoming, IncomingChat):
            return incoming
        wanted, asked = worker.state_lookup(incoming), set[str]()
        while names := [name for name in wanted.names() if name not in asked]:
            asked.update(names)
            wanted.adopt({name: self.blobs[name] for name in names if name in self.blobs})
        plan = worker.decide(incoming).written()
        if plan.rewritten and self.random.random() < 0.1:
            worker.barred(plan)
            plan = replace(plan, body=plan.original)
        worker.on_accepted(plan, self.now)
        worker.on_completed(plan, None, self.now)
        self.blobs.update(worker.export_state(plan)[1])
        return plan


def hold(fleet: Fleet, steps: Sequence[Step], form: SignedForm, one_of: int) -> None:
    """One conversation under the rules."""
    for step in steps:
        fleet.send(replace(step, body=signed(step.body, form, one_of)))


SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large]
FLEETS = st.builds(
    Fleet,
    st.integers(0, 2**32),
    st.sampled_from([MODES, [Mode.TIER], [Mode.TIER]]),
    st.sampled_from(["economic", "economic", "classic"]),
)


@given(FLEETS, conversations(), st.sampled_from(SignedForm), st.sampled_from([1, 1, 2, 3]))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=SLOW_DRAWS)
def test_what_signed_thinking_binds_goes_out_as_before(
    fleet: Fleet, steps: list[Step], form: SignedForm, one_of: int
) -> None:
    hold(fleet, steps, form, one_of)


@pytest.mark.slow
@given(FLEETS, conversations(), st.sampled_from(SignedForm), st.sampled_from([1, 1, 2, 3]))
@settings(max_examples=4000, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_signed_thinking_binds_goes_out_as_before_at_length(
    fleet: Fleet, steps: list[Step], form: SignedForm, one_of: int
) -> None:
    hold(fleet, steps, form, one_of)


@pytest.mark.skipif(not TRACES, reason="no recorded sessions beside the repository")
@pytest.mark.parametrize("path", sampled(TRACES, 6), ids=[path.name.removesuffix(".jsonl.xz") for path in TRACES])
def test_recorded_sessions_keep_what_signed_thinking_binds(path: Path) -> None:
    for number, form in enumerate(SignedForm):
        fleet = Fleet(number, [Mode.TIER], deployments=DEPLOYMENTS[:1])
        hold(fleet, [Step(20.0, body) for body in requests_of(path)], form, 1 + number % 2)

"""What stands in front of signed thinking goes out as it went out when the thinking was made: whatever the mode, the
worker, the deployment or the start that serves the request."""

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.kit.modes import Mode, Reason
from proxy.planner import TierPlanner
from proxy.planner.candidates import IncomingChat
from proxy.planner.plan import Plan
from proxy.protocol.providers import ANTHROPIC, PROFILES
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import bytes_over_four
from tests.examples import examples, in_turn, sampled
from tests.fidelity.chats import File
from tests.fidelity.recorded import requests_of, trace_files
from tests.fidelity.signed import SignedThinking
from tests.property.conversations import Step, conversations
from tests.signed_thinking import SignedForm, signed
from tests.talk import RECOGNISERS, Body, assistant, chat, lines, shown, system, tool, user

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
        plan = worker.decide(incoming, wanted).written()
        if plan.rewritten and self.random.random() < 0.1:
            worker.barred(plan)
            plan = replace(plan, body=plan.original)
        self.blobs.update(worker.sent_front(worker.on_accepted(plan, self.now)[1]))
        if self.random.random() < 0.1:
            return plan  # the worker dies before the answer has ended
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
@settings(max_examples=examples(400), deadline=None, suppress_health_check=SLOW_DRAWS)
def test_what_signed_thinking_binds_goes_out_as_before(
    fleet: Fleet, steps: list[Step], form: SignedForm, one_of: int
) -> None:
    hold(fleet, steps, form, one_of)


@st.composite
def crowds(draw: st.DrawFn) -> list[Step]:
    """Conversations side by side that begin alike and keep all that they show: the time of their beginning, tools in
    another order each, and files, some of them shown again."""
    opening = draw(st.sampled_from([[], [user("hello"), assistant("hi")]]))
    pool = [File(name, lines(40, name + "1")) for name in ("a.py", "b.py")]
    shown_ = st.builds(
        lambda kept, version, at: [*kept[:at], File("hot.py", lines(40, "hot") + f"{version}\n"), *kept[at:]],
        st.permutations(pool),
        st.integers(0, 3),
        st.integers(0, 2),
    )
    definitions = draw(st.sampled_from([[], [tool(name) for name in "abcd"]]))
    talks: list[Body] = []
    for number in range(draw(st.integers(2, 12))):
        head = system(f"You are kind.\n{lines(20, 'rule')}It is 10:{number:02}.\nBe brief.")
        turns = [head, *opening, *shown(*draw(shown_)), user("What?" if number % 2 else f"What, {number}?")]
        ordered = draw(st.permutations(definitions))
        talks.append(chat(*turns, **({"tools": ordered} if ordered else {})))
    steps: list[Step] = []
    for turn in range(draw(st.integers(2, 4))):
        for number, body in enumerate(talks):
            steps.append(Step(draw(st.sampled_from([1.0, 20.0, 400.0])), copy.deepcopy(body)))
            more = shown(*draw(shown_)) if draw(st.booleans()) else []
            body["messages"] += [assistant(f"It is {number}, {turn}."), *more, user("go on")]
    return steps


@given(FLEETS, crowds(), st.sampled_from(SignedForm), st.sampled_from([1, 1, 2]))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW_DRAWS)
def test_conversations_that_begin_alike_are_bound_each_to_its_own(
    fleet: Fleet, steps: list[Step], form: SignedForm, one_of: int
) -> None:
    hold(fleet, steps, form, one_of)


@pytest.mark.skipif(not TRACES, reason="no recorded sessions beside the repository")
@pytest.mark.parametrize(("path", "form"), sampled(in_turn(TRACES, SignedForm), 13))
def test_recorded_sessions_keep_what_signed_thinking_binds(path: Path, form: SignedForm) -> None:
    for one_of in (1, 2):
        fleet = Fleet(one_of, [Mode.TIER], deployments=DEPLOYMENTS[:1])
        hold(fleet, [Step(20.0, body) for body in requests_of(path)], form, one_of)

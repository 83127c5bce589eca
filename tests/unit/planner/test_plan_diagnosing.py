"""The diagnosis of what the planner sends: named by its pieces, remembered with the session, shared with it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from plugins.aider import AiderRecogniser
from plugins.fenced import FencedRecogniser
from plugins.system_text import SystemTextRecogniser
from proxy.kit.modes import Mode
from proxy.kit.value import digest
from proxy.planner import TierPlanner
from proxy.planner.diagnose import MARKERS
from proxy.planner.plan import Plan
from proxy.planner.record import Break, BreakKind
from proxy.protocol.prices import Price
from proxy.protocol.providers import ANTHROPIC, OPENAI, CacheProfile
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import bytes_over_four
from tests.economics.billing import Provider
from tests.fidelity.chats import EDITABLE_ACK, File
from tests.talk import file_text
from tests.unit.planner.test_diagnose_losses import MARKED, clock, session

GRID = replace(OPENAI, hit_chance=1.0)
RECOGNISERS = (AiderRecogniser(), FencedRecogniser(), SystemTextRecogniser())


class Client:
    """One client of one planner, in front of a provider that bills."""

    def __init__(self, profile: CacheProfile = GRID, mode: Mode = Mode.OBSERVE, prefix: str = "s") -> None:
        self.planner = TierPlanner(bytes_over_four, RECOGNISERS, prefix=prefix)
        self.provider = Provider(profile)
        self.profile, self.mode, self.at = profile, mode, 0.0

    def send(self, body: dict[str, Any], model: str = "m", upstream: str = "u") -> tuple[Plan, Break | None]:
        """Send a request; its plan, and what broke."""
        self.at += 20
        route = Route("scope", model, model, self.profile, upstream=upstream)
        plan = self.planner.plan(json.dumps(body).encode(), route, self.mode, self.at)
        assert plan.surprise is None
        profile = self.profile
        plan = replace(plan, price=Price.relative(profile.read, profile.write, profile.write_long))
        usage = self.provider.send(plan.body, self.at)
        self.planner.on_accepted(plan, self.at + 1)
        return plan, self.planner.on_completed(plan, usage, self.at + 2).broke


def test_a_clock_is_named_with_its_line_and_its_price() -> None:
    client, frozen = Client(), Client()
    bodies, same = session(8, GRID), session(8, GRID)
    breaks = []
    for number, body in enumerate(bodies):
        clock(body, number)
        clock(same[number], 0)
        _, broke = client.send(body)
        assert frozen.send(same[number])[1] is None
        breaks += [broke] if broke is not None else []
    assert {(one.kind, one.culprit, one.line, one.is_waste) for one in breaks} == {
        (BreakKind.CHANGED, "system", 3, True)
    }
    assert len(breaks) == 7
    assert sum(one.usd for one in breaks) == pytest.approx(client.provider.cost - frozen.provider.cost, rel=0.01)


def test_what_is_expected_is_told_by_our_own_count_whatever_the_provider_counts() -> None:
    first, second = session(2, MARKED)
    clock(first, 0), clock(second, 1)
    lost = []
    for scale in (1.0, 1.5):
        client = Client(MARKED)
        client.provider.count = lambda text, scale=scale: round(scale * bytes_over_four(text))
        client.send(first)
        plan, _ = client.send(second)
        lost.append(plan.in_flight.expected_break(plan.predicted).lost)
    assert lost[0] == lost[1] > 0


def test_what_is_expected_is_told_before_the_answer() -> None:
    client = Client()
    first, second, third = session(3, GRID)
    for number, body in enumerate((first, second)):
        clock(body, number)
    client.send(first)
    plan, _ = client.send(second)
    expected = plan.in_flight.expected_break(plan.predicted)
    assert (expected.culprit, expected.line) == ("system", 3)
    clock(third, 1)
    plan, _ = client.send(third)
    assert plan.in_flight.expected_break(plan.predicted) is None


def test_a_clock_that_the_layout_puts_last_breaks_nothing_before_nor_behind_the_answer() -> None:
    client = Client(ANTHROPIC, Mode.TIER)
    told = []
    for number, body in enumerate(session(9, ANTHROPIC)):
        clock(body, number)
        plan, broke = client.send(body)
        told.append((plan.in_flight.expected_break(plan.predicted), broke))
    assert plan.rewritten
    assert told[-4:] == [(None, None)] * 4


@pytest.mark.parametrize(("mode", "told"), [(Mode.PASSTHROUGH, None), (Mode.OBSERVE, MARKERS), (Mode.TIER, None)])
def test_markers_that_are_missing_are_the_clients_where_the_proxy_sets_none(mode: Mode, told: str | None) -> None:
    client = Client(ANTHROPIC, mode)
    *before, last = session(4, MARKED)
    for body in before:
        client.send(body)
    for part in last["messages"][-1]["content"]:
        del part["cache_control"]
    broke = client.send(last)[1]
    assert (broke and broke.culprit) == told


def test_an_edited_file_is_named_and_is_no_waste() -> None:
    client = Client()
    files = [File(f"src/{n}.py", f"{n} = 1\n" * 200) for n in range(4)]
    talk: list[dict[str, Any]] = []
    found = []
    for number in range(3):
        files[1] = replace(files[1], content=f"number = {number}\n" * 200)
        head = [
            {"role": "system", "content": "You edit code.\n" * 100},
            {"role": "user", "content": file_text(files)},
            {"role": "assistant", "content": EDITABLE_ACK},
        ]
        talk += [{"role": "user", "content": f"Now count to {number}." * 90}]
        found.append(client.send({"model": "m", "messages": [*head, *talk]})[1])
        talk += [{"role": "assistant", "content": f"I counted to {number}." * 90}]
    assert found[0] is None
    for broke in found[1:]:
        assert (broke.kind, broke.culprit_kind, broke.is_waste) == (BreakKind.CHANGED, "file", False)
        assert broke.culprit.endswith("src/1.py")


def test_a_conversation_at_another_model_or_route_has_switched() -> None:
    client = Client()
    bodies = session(5, GRID)
    for body in bodies[:3]:
        assert client.send(body)[1] is None
    broke = client.send(bodies[3], upstream="u2")[1]
    assert broke is None or broke.kind is BreakKind.ROUTE_SWITCHED
    other = client.send(bodies[4], model="m2")[1]
    # The provider of this test keeps one cache for all of them: what was read anyhow is no loss.
    assert other is None
    plan, _ = client.send(session(6, GRID)[5], model="m3")
    expected = plan.in_flight.expected_break(None)
    assert (expected.kind, expected.culprit) == (BreakKind.MODEL_SWITCHED, "m3")


def test_another_process_goes_on_with_what_a_session_remembers() -> None:
    one, other = Client(prefix="a"), Client(prefix="b")
    bodies = session(4, GRID)
    for number, body in enumerate(bodies):
        clock(body, number)
    one.send(bodies[0])
    plan, _ = one.send(bodies[1])
    _, blobs = one.planner.export_state(plan)
    parsed = other.planner.reader.parse(json.dumps(bodies[2]).encode())
    route = Route("scope", "m", "m", GRID, upstream="u")
    incoming = other.planner.read(parsed, route, Mode.OBSERVE, 50.0)
    assert not isinstance(incoming, Plan)
    lookup = other.planner.state_lookup(incoming)
    for _ in range(3):
        lookup.adopt({name: blobs[name] for name in lookup.names() if name in blobs})
    other.at, other.provider = one.at, one.provider
    plan, broke = other.send(bodies[2])
    assert (broke.culprit, broke.line) == ("system", 3)


def test_the_parameters_of_a_record_are_those_of_its_request_whether_they_are_taken_over_or_not() -> None:
    client = Client(replace(GRID, breaking=ANTHROPIC.breaking))
    for body, choice in zip(
        session(7, GRID), ("required", "required", "none", "none", None, "none", "none"), strict=True
    ):
        plan, _ = client.send({**body, "tool_choice": choice})
        told = {} if choice is None else {"tool_choice": digest(json.dumps(choice).encode())}
        assert plan.in_flight.sent.record.parameters == told

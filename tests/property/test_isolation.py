"""What one client sends changes nothing for another: layouts, markers, plans and what is believed of a cache."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.planner.plan import Plan
from proxy.protocol.request.reader import Route
from tests.examples import examples
from tests.fidelity.strategies import bodies
from tests.talk import TINY, Body, Talk, assistant, chat, lines, system, user

QUIRKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
THEIRS = Route(scope="red", name="m", model="m", profile=TINY)


def shown(plan: Plan) -> tuple[object, ...]:
    """Everything of a plan that a client, or its bill, could tell."""
    return (plan.body, plan.reason, plan.rewritten, plan.own, plan.predicted, plan.tier_tokens, plan.segment_tokens)


def grown(body: Body, turns: int) -> list[Body]:
    """A conversation that goes on."""
    found, messages = [], list(body["messages"])
    for turn in range(turns):
        found.append({**body, "messages": list(messages)})
        messages += [assistant(f"answer {turn}"), user(f"question {turn}")]
    return found


def as_theirs(talk: Talk, body: Body) -> Plan:
    """Planned and settled for the other scope, and back."""
    ours, talk.route = talk.route, THEIRS
    try:
        return talk.send(json.dumps(body).encode(), after_s=0.0)
    finally:
        talk.route = ours


@given(bodies(), st.integers(1, 3), st.sampled_from(["economic", "classic"]))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=QUIRKS)
def test_another_scopes_traffic_changes_no_plan(body: Any, turns: int, policy: str) -> None:
    alone, beside = Talk(policy=policy), Talk(policy=policy)
    for request in grown(body, turns):
        raw = json.dumps(request).encode()
        # The neighbour sends the very same requests, and sends them first.
        for _ in range(2):
            as_theirs(beside, request)
        assert shown(alone.send(raw)) == shown(beside.send(raw))


def clock(minute: int, turns: int) -> Body:
    """A system prompt with a line that changes, which evidence makes known as such."""
    text = lines(40, "rule") + f"Open tickets as of now: {minute}\n" + lines(40, "more")
    return chat(system(text), *(m for n in range(turns) for m in (user(f"q{n}"), assistant(f"a{n}"))), user("go"))


def test_what_one_scope_teaches_of_its_instructions_is_not_used_for_another() -> None:
    alone, beside = Talk(), Talk()
    for minute in range(6):
        as_theirs(beside, clock(minute, minute))
    for minute in range(2):
        assert shown(alone.send(clock(minute, minute))) == shown(beside.send(clock(minute, minute)))


def test_a_session_id_is_a_scopes_own() -> None:
    alone, beside = Talk(), Talk()
    for talk in (alone, beside):
        talk.route = Route(scope="blue", name="m", model="m", profile=TINY, hint="session-1")
    beside.route, ours = Route(scope="red", name="m", model="m", profile=TINY, hint="session-1"), beside.route
    beside.send(clock(0, 3))
    beside.route = ours
    assert shown(alone.send(clock(0, 3))) == shown(beside.send(clock(0, 3)))


def test_deployments_of_one_name_have_caches_of_their_own() -> None:
    talk = Talk()
    first = talk.send(clock(0, 3))
    talk.route = Route(scope=talk.route.scope, name="m", model="m", profile=TINY, upstream="m#2")
    moved = talk.send(clock(0, 3))
    assert first.predicted is not None
    assert moved.predicted is not None
    assert (first.predicted.read, moved.predicted.read) == (0, 0)
    assert talk.send(clock(0, 3)).predicted.read > 0  # type: ignore[union-attr]

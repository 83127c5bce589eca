"""The planner's shadow and the embedded provider are the same model: what a plan predicts is what is billed."""

from random import Random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.kit.modes import Mode
from proxy.planner import TierPlanner
from proxy.protocol.providers import PROFILES, CacheProfile, Family
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded.provider import Provider
from tests.examples import examples, sampled

MARKERS = [p for p in PROFILES.values() if p.family is Family.MARKER]
OTHERS = [p for p in PROFILES.values() if p.family in (Family.GRID, Family.UNIT)]
# Framing is counted a little differently by the two; a position more or less is hundreds of tokens.
_FRAMING_TOKENS = 12


def words(label: str, count: int = 150) -> str:
    return " ".join(f"{label}{i}" for i in range(count))


def growing_chat() -> list[dict[str, object]]:
    """Requests of one session: rounds of tool calls, and settings that break the prefix on the way."""
    tool = {"type": "function", "function": {"name": "read", "description": words("d"), "parameters": {}}}
    messages: list[dict[str, object]] = [{"role": "system", "content": words("s")}]
    requests = []
    for turn in range(12):
        messages.append({"role": "user", "content": words(f"u{turn}_")})
        requests.append({"messages": [*messages], "tools": [tool]})
        calls = [
            {"id": f"{turn}-{i}", "type": "function", "function": {"name": "read", "arguments": "{}"}} for i in range(3)
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": words(f"r{c['id']}_")} for c in calls]
        requests.append({"messages": [*messages], "tools": [tool]})
        messages.append({"role": "assistant", "content": words(f"a{turn}_", 20)})
    for request, member in zip(
        requests[5:], ({"tool_choice": "none"}, {"response_format": {"type": "text"}}), strict=False
    ):
        request.update(member)
    return [{"model": "m", **request} for request in requests]


def bills(profile: CacheProfile):
    planner, provider = TierPlanner(bytes_over_four, ()), Provider(profile, bytes_over_four)
    route = Route(scope="s", name="n", model="", profile=profile)
    for number, request in enumerate(growing_chat()):
        now = 100.0 * number
        plan = planner.plan(orjson.dumps(request), route, Mode.TIER, now)
        assert plan.surprise is None
        assert plan.predicted is not None
        reply = provider.chat(plan.body, "account", now, 1)
        yield plan.predicted, reply.bill
        reply.store(now)
        planner.on_accepted(plan, now)
        planner.on_completed(plan, None, now)


@pytest.mark.parametrize("profile", sampled(MARKERS, 3), ids=lambda p: p.name)
def test_markers_are_billed_as_predicted(profile: CacheProfile) -> None:
    total = 0
    for predicted, billed in bills(profile):
        assert abs(predicted.read - billed.read) <= _FRAMING_TOKENS
        assert abs(predicted.write - billed.write) <= _FRAMING_TOKENS
        total += billed.read
    assert total > 20_000


@pytest.mark.parametrize("profile", sampled(OTHERS, 5), ids=lambda p: p.name)
def test_caches_without_markers_read_at_least_what_is_predicted(profile: CacheProfile) -> None:
    # They find a prefix within any message, too, where the shadow knows whole turns only.
    total = 0
    for predicted, billed in bills(profile):
        assert predicted.read <= billed.read + profile.step + _FRAMING_TOKENS
        total += billed.read
    assert total > 20_000


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(60, 800), st.floats(0, 1), st.booleans(), st.integers())
def test_the_beginning_of_instructions_that_change_is_predicted_to_be_read(
    count: int, place: float, is_known: bool, seed: int
) -> None:
    """Up to a quarter of the text: the shadow knows the ends of at most eight of its parts."""
    profile, chance = PROFILES["openai"], Random(seed)
    planner, provider = TierPlanner(bytes_over_four, ()), Provider(profile, bytes_over_four)
    route = Route(scope="s", name="n", model="", profile=profile, hint="one")
    lines = [words(f"line {number} ", 12) for number in range(count)]
    for number in range(6 if is_known else 2):
        lines[round(place * (count - 1))] = words(str(chance.random()), 3)
        messages = [{"role": "system", "content": "\n".join(lines)}, {"role": "user", "content": f"Question {number}"}]
        body, now = orjson.dumps({"model": "m", "messages": messages}), 10.0 * number
        plan, reply = planner.plan(body, route, Mode.TIER, now), provider.chat(body, "account", now, 1)
        reply.store(now)
        planner.on_accepted(plan, now)
        planner.on_completed(plan, None, now)
    assert plan.own is not None
    span = max(500, reply.bill.total / 4)
    assert reply.bill.read - span - profile.min_tokens <= plan.own.read <= reply.bill.read + _FRAMING_TOKENS
    assert plan.own.read > 0 or place < 0.8

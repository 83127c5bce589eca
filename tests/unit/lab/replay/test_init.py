"""Replays: the sums are those of the provider's rules, and every policy meets a provider of its own."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.kit.modes import Mode, Reason
from proxy.lab import Step, Trace
from proxy.lab.replay import AS_SENT, CLIENT, COMPARED, OURS, SYSTEM_LAST, Ours, counted_once, replay
from proxy.lab.replay.comparison import compare
from proxy.planner import TierPlanner
from proxy.planner.plan import Plan
from proxy.planner.shadow import cost_of
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, NONE, OPENAI, OPENAI_EXPLICIT, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from tests.examples import sampled
from tests.unit.lab.replay.sessions import MARK, Message, body, growing, say, setting, text

TAIL = 3  # framing tokens behind every prompt of the embedded provider


def test_the_sums_of_a_growing_conversation_can_be_done_by_hand() -> None:
    result = replay(growing(3), setting())
    system, turn = 2000 + 4, 300 + 4
    prompts = [system + turn, system + 3 * turn, system + 5 * turn]
    assert result.plain == sum(prompts) + 3 * TAIL
    assert result.totals[AS_SENT].plain == result.plain
    marked = result.totals[SYSTEM_LAST]
    # Each request reads what the one before it wrote, and writes the rest.
    assert (marked.read, marked.write_5m, marked.plain) == (prompts[0] + prompts[1], prompts[2], 3 * TAIL)
    assert result.share(OURS) == pytest.approx(result.share(SYSTEM_LAST))
    assert result.violations == []
    assert result.requests == sum(result.reasons.values()) == 3


def test_entries_die_when_the_recorded_gap_is_longer_than_their_life() -> None:
    assert replay(growing(3, gap_s=299.0), setting()).totals[SYSTEM_LAST].read > 0
    assert replay(growing(3, gap_s=301.0), setting()).totals[SYSTEM_LAST].read == 0


def test_the_clients_markers_count_for_the_client() -> None:
    history = [say("system", text("a", 2000), cache_control=MARK), say("user", "one")]
    trace = Trace("t", [Step(float(t), "", body(*history)) for t in range(3)])
    result = replay(trace, setting())
    assert result.totals[CLIENT].read == 2 * 2004
    assert result.totals[AS_SENT].read == 0


@pytest.mark.parametrize("profile", [OPENAI, OPENAI_EXPLICIT, DEEPSEEK, NONE])
def test_no_provider_refuses_what_is_compared(profile: CacheProfile) -> None:
    history = [say("system", text("a", 2000), cache_control=MARK), say("user", "one")]
    trace = Trace("t", [Step(float(10 * t), "", body(*history)) for t in range(3)])
    result = replay(trace, setting(profile=profile))
    assert [total.refused for total in result.totals.values()] == [0, 0, 0, 0]
    # All of them but one read the prompt again that they have had twice before.
    assert result.share(AS_SENT) == (1.0 if profile is NONE else pytest.approx(0.45, abs=0.1))


@pytest.mark.parametrize("mode", list(Mode))
def test_every_mode_sends_what_it_may(mode: Mode) -> None:
    sent: list[Plan] = []
    trace = growing(3)
    result = replay(trace, setting(mode=mode, on_sent=lambda step, plan: sent.append(plan)))
    assert [plan.body == step.body for plan, step in zip(sent, trace.steps, strict=True)] == [mode < Mode.MARK] * 3
    assert (result.ours.read > 0) == (mode >= Mode.MARK)


def test_on_sent_and_on_step_are_told_of_every_request() -> None:
    seen, steps = list[float](), list[int]()
    replay(growing(4), setting(on_sent=lambda step, plan: seen.append(step.at)), lambda: steps.append(1))
    assert (seen, len(steps)) == ([1000.0, 1010.0, 1020.0, 1030.0], 4)


def test_a_body_that_the_provider_refuses_is_counted_and_teaches_nothing() -> None:
    broken = body(say("assistant", None, tool_calls=[{"id": "1", "function": {"name": "f"}}]), say("user", "hi"))
    result = replay(Trace("t", [Step(0.0, "", broken), *growing(2).steps]), setting())
    assert {name: total.refused for name, total in result.totals.items()} == dict.fromkeys(result.totals, 1)
    assert result.plain == result.totals[AS_SENT].prompt


def test_messages_that_are_no_objects_are_refused_whoever_sends_them() -> None:
    odd = b'{"model": "m", "messages": ["cache_control", 3]}'
    result = replay(Trace("t", [Step(0.0, "", odd)]), setting())
    assert {name: total.refused for name, total in result.totals.items()} == dict.fromkeys(result.totals, 1)
    assert result.reasons == {Reason.UNREADABLE: 1}


def test_a_refused_rewrite_is_sent_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(self: TierPlanner, request: bytes, *rest: Any) -> Plan:
        return Plan(b"{}", request, Mode.TIER, Reason.ORDERED)

    monkeypatch.setattr(TierPlanner, "plan", plan)
    sent: list[bytes] = []
    trace = growing(2)
    result = replay(trace, setting(on_sent=lambda step, plan: sent.append(plan.body)))
    assert sent == [step.body for step in trace.steps]
    assert (result.ours.refused, result.ours.prompt) == (2, result.totals[AS_SENT].prompt)


def test_a_surprise_of_the_planner_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(self: TierPlanner, request: bytes, *rest: Any) -> Plan:
        return Plan(request, request, Mode.TIER, Reason.INTERNAL_ERROR, surprise=ZeroDivisionError("secret text"))

    monkeypatch.setattr(TierPlanner, "plan", plan)
    expected = [f"request {n}: ZeroDivisionError while planning" for n in (1, 2)]
    assert replay(growing(2), setting()).surprises == expected
    assert compare(growing(2), setting()).violations == expected


def test_harm_done_by_the_planner_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(self: TierPlanner, request: bytes, *rest: Any) -> Plan:
        return Plan(request.replace(b"question", b"quest"), request, Mode.TIER, Reason.ORDERED)

    monkeypatch.setattr(TierPlanner, "plan", plan)
    result = replay(growing(1), setting())
    assert result.violations[0].startswith("request 1: ")


def test_every_text_is_counted_once() -> None:
    asked: list[str] = []

    def encode(words: str) -> int:
        asked.append(words)
        return bytes_over_four(words)

    count = counted_once(encode)
    assert [count("abcdefgh"), count("abcdefgh"), count("\ud800"), count("\ud800")] == [2, 2, 1, 1]
    assert len(asked) == 2


def test_ours_alone_is_what_a_replay_says_of_us() -> None:
    ours = Ours(setting())
    for step in growing(3).steps:
        ours.send(step)
    assert ours.total == replay(growing(3), setting()).ours


def test_keep_alive_bridges_pauses_and_its_cost_is_counted() -> None:
    # One life, so that nothing else bridges them.
    profile = replace(ANTHROPIC, min_tokens=1, long_life_s=0.0)
    turns, steps, at = [{"role": "system", "content": "a rule. " * 400}], [], 0.0
    for number in range(24):
        turns.append({"role": "user", "content": f"question {number} " * 20})
        steps.append(Step(at, "", orjson.dumps({"model": "m", "messages": turns})))
        turns.append({"role": "assistant", "content": f"answer {number}"})
        at += 480.0 if number % 2 else 10.0
    trace = Trace("pauses", steps)
    left = replay(trace, setting(profile=profile))
    kept = replay(trace, setting(profile=profile, keep_alive=True))
    assert left.ours.refreshes == 0
    assert kept.ours.refreshes > 5
    assert cost_of(profile, kept.ours.refresh_bills) > 0
    assert kept.share(OURS) < 0.8 * left.share(OURS)
    assert not kept.violations


def noticing(turns: int) -> Trace:
    """A growing conversation with a system message behind every third answer."""
    steps: list[Step] = []
    for step in growing(turns).steps:
        messages: list[Message] = []
        for message in orjson.loads(step.body)["messages"]:
            messages.append(message)
            if message["role"] == "assistant" and len(messages) % 7 == 3:
                messages.append(say("system", f"budget {len(messages)}"))
        steps.append(replace(step, body=body(*messages)))
    return Trace("noticing", steps)


@pytest.mark.slow
@pytest.mark.parametrize("is_told", sampled([False, True], 2))
def test_an_upstream_that_hoists_system_messages_refuses_nothing_and_is_marked_as_well_as_can_be(is_told: bool) -> None:
    hoists = replace(ANTHROPIC, hoists_system=True)
    for gap_s in (10.0, 400.0):
        trace = noticing(24)
        steps = [replace(step, at=1000.0 + n * 10 + (n // 8) * gap_s) for n, step in enumerate(trace.steps)]
        wanted = setting(profile=hoists) if is_told else setting(served=hoists)
        result = replay(replace(trace, steps=steps), replace(wanted, baselines=COMPARED))
        assert result.ours.refused == 0
        assert not result.violations
        cheapest = min(total.cost(ANTHROPIC) for total in result.totals.values())
        assert result.ours.cost(ANTHROPIC) <= 1.02 * cheapest


def test_an_hour_that_nothing_comes_back_for_is_not_bought_early() -> None:
    """Three pauses in a row, and then none any more."""
    gaps = [0, 86, 1400, 2500, 2500, 45, 88, 39, 82, 95, 37, 86]
    sizes = [12000, 200, 800, 800, 800, 200, 40, 40, 800, 40, 200, 40]
    history, steps, now = [say("system", text("rules", 30))], [], 1000.0
    for number, (gap_s, size) in enumerate(zip(gaps, sizes, strict=True)):
        now += gap_s
        history.append(say("user", text(f"question {number}", size)))
        steps.append(Step(now, "s", body(*history)))
        history.append(say("assistant", text(f"answer {number}", [100, 1100, 400][number % 3])))
    trace = Trace("paused", steps)
    short = replay(trace, setting(profile=replace(ANTHROPIC, long_life_s=0.0))).ours.cost(ANTHROPIC)
    assert replay(trace, setting()).ours.cost(ANTHROPIC) <= 1.04 * short

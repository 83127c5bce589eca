"""Modes are told by their names. Every reason can be given, and is given where it is meant."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from proxy.kit.modes import Mode, Reason
from proxy.lab.replay.explain import MEANINGS
from proxy.planner.plan import Plan, PlannerOptions
from proxy.protocol.providers import ANTHROPIC, DEEPSEEK, NONE, OPENAI, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from tests.examples import for_every
from tests.fidelity.chats import File
from tests.talk import MARK, Body, Talk, assistant, calling, chat, lines, result, shown, system, text_part, tool, user

SYSTEM = system(lines(40, "rule"))
A, B = (File(f"{name}.py", lines(60, name)) for name in "ab")
CALL: Body = calling("1")["tool_calls"][0]


@pytest.mark.parametrize("text", ["tier", " Tier ", "TIER"])
def test_a_mode_is_parsed_by_its_name(text: str) -> None:
    assert Mode.parse(text) is Mode.TIER


@pytest.mark.parametrize("text", ["", "3", "tiers", "tier;"])
def test_any_other_name_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(ValueError, match="passthrough, observe, mark, tier"):
        Mode.parse(text)


def test_a_lower_mode_changes_less() -> None:
    assert Mode.PASSTHROUGH < Mode.OBSERVE < Mode.MARK < Mode.TIER
    assert min(Mode.parse("mark"), Mode.TIER) is Mode.MARK


def test_reasons_can_be_metric_labels() -> None:
    assert len(set(Reason)) == len(list(Reason))
    for reason in Reason:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason.value), reason


def plain(talk: Talk) -> Plan:
    return talk.send(chat(SYSTEM, user("a")))


def barred(talk: Talk) -> Plan:
    talk.planner.barred(talk.plan(chat(SYSTEM, user("a"))))
    return plain(talk)


def broken(talk: Talk) -> Plan:
    class Broken:
        name, priority = "broken", 0

        def recognise(self, role: str, text: str) -> None:
            raise ZeroDivisionError

    planner = type(talk.planner)(bytes_over_four, [Broken()])
    return planner.plan(b'{"model":"m","messages":[{"role":"user","content":"a"}]}', talk.route, talk.mode, 1.0)


def edited(talk: Talk, requests: int) -> Plan:
    turns: list[Body] = []
    for number in range(requests):
        changed = File("b.py", lines(60, "b") + f"edit {number}\n")
        plan = talk.send(chat(SYSTEM, *turns, *shown(changed, A), user(f"q{number}")))
        turns += [user(f"q{number}"), assistant(lines(3, f"a{number}"))]
    return plan


def bound(talk: Talk) -> Plan:
    """An answer with signed thinking to a request that was laid out anew."""
    edited(talk, 1)
    first = [SYSTEM, *shown(File("b.py", lines(60, "b") + "edit 0\n"), A), user("q0")]
    thought = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    return talk.send(chat(*first, assistant("a", thinking_blocks=[thought]), user("q1")))


def one_shots(talk: Talk, system_of: Callable[[int], Body] = lambda n: system("Write a title.")) -> Plan:
    """Side calls that nobody goes on with."""
    plans = [talk.send(chat(system_of(n), user(lines(120, f"text {n}")))) for n in range(8)]
    return plans[-1]


def slow(talk: Talk) -> Plan:
    """A client with tools that comes back long after everything has expired."""
    turns: list[Body] = [SYSTEM]
    for number in range(12):
        turns += [user(f"q{number}")]
        plan = talk.send(chat(*turns, tools=[tool("t")]), after_s=9000)
        turns += [assistant(f"a{number}")]
    return plan


def marked_well(talk: Talk) -> Plan:
    """Markers on the instructions, the newest answer and the newest question."""
    turns: list[Body] = [system([text_part(lines(40), **MARK)])]
    for number in range(3):
        answer = [assistant([text_part(lines(5, f"a{number}"), **MARK)])] if number else []
        plan = talk.send(chat(*turns, *answer, user([text_part(lines(10, f"q{number}"), **MARK)])))
        turns += [*([assistant(lines(5, f"a{number}"))] if number else []), user(lines(10, f"q{number}"))]
    return plan


def regretted(talk: Talk) -> Plan:
    """The provider reports that what we send costs far more than it should."""
    turns: list[Body] = [SYSTEM]
    for number in range(20):
        turns += [user(lines(5, f"q{number}"))]
        plan = talk.plan(chat(*turns))
        total = plan.predicted.total
        talk.planner.on_accepted(plan, talk.now)
        talk.planner.on_completed(plan, Usage(total, 5, 0, 0, total), talk.now)
        talk.now += 10
        turns += [assistant(f"a{number}")]
    return plan


def deaf(talk: Talk) -> Plan:
    """Nothing of what is marked is ever stored."""
    turns: list[Body] = [system(lines(900, "rule"))]
    for number in range(6):
        turns += [user(f"q{number}")]
        plan = talk.plan(chat(*turns))
        talk.planner.on_accepted(plan, talk.now)
        talk.planner.on_completed(plan, Usage(plan.predicted.total, 5, writes_told=True), talk.now)
        talk.now += 10
        turns += [assistant(f"a{number}")]
    return plan


def clocks(talk: Talk) -> Plan:
    text = lines(40, "rule")
    return one_shots(talk, lambda n: system(f"{text}Current time: 2026-01-01 10:0{n}\n"))


def shuffled(talk: Talk) -> Plan:
    for order in ("ab", "ba"):
        plan = talk.send(chat(system(lines(200)), user("q"), tools=[tool(name) for name in order]))
    return plan


def noticed(talk: Talk) -> Plan:
    turns: list[Body] = [SYSTEM, user(lines(20, "q")), assistant("a")]
    talk.send(chat(*turns[:2]))
    return talk.send(chat(*turns, system("The budget is another."), user("go on")))


def marked_in_vain(talk: Talk) -> Plan:
    return talk.send(chat(system([text_part(lines(200), **MARK)]), user("q")))


@for_every(
    product(
        [OPENAI, DEEPSEEK],
        [
            chat(system([text_part(lines(200), **MARK)]), user("q")),
            chat(system("Be brief."), user([text_part("q", **MARK)])),
            chat(system(lines(200)), user("q"), tools=[tool("t", **MARK)]),
            chat(
                system(lines(200)), user("q"), {"role": "assistant", "tool_calls": [CALL | MARK]}, result("1", "done")
            ),
        ],
    )
)
def test_a_plan_whose_bytes_differ_does_not_say_that_the_client_was_left_alone(
    profile: CacheProfile, body: Body
) -> None:
    plan = Talk(profile=profile).send(body)
    assert b"cache_control" not in plan.body
    assert plan.rewritten
    assert plan.reason == Reason.MARKERS_REMOVED


CASES: dict[Reason, tuple[Talk, Callable[[Talk], Plan]]] = {
    Reason.PASSTHROUGH_MODE: (Talk(mode=Mode.PASSTHROUGH), plain),
    Reason.OBSERVE_MODE: (Talk(mode=Mode.OBSERVE), plain),
    Reason.HOLD_OUT: (Talk(options=PlannerOptions(holdout=1.0)), plain),
    Reason.UNREADABLE: (Talk(), lambda talk: talk.send(b'{"model":"m","messages":[1]}')),
    Reason.SIGNED_THINKING: (Talk(), bound),
    Reason.INTERNAL_ERROR: (Talk(), broken),
    Reason.BARRED: (Talk(), barred),
    Reason.NO_PROFILE: (Talk(profile=NONE), lambda talk: talk.send(chat(system(lines(200)), user("q")))),
    Reason.MARKS_WITHOUT_PROFILE: (Talk(profile=NONE), marked_well),
    Reason.BELOW_MINIMUM: (Talk(profile=ANTHROPIC), plain),
    Reason.MARKERS_IGNORED: (Talk(profile=ANTHROPIC), deaf),
    Reason.ONE_SHOT: (Talk(profile=ANTHROPIC), one_shots),
    Reason.CLIENT_OPTIMAL: (Talk(), marked_well),
    Reason.HOISTED_NOTICE: (Talk(profile=replace(ANTHROPIC, min_tokens=1, hoists_system=True)), noticed),
    Reason.MARKERS_REMOVED: (Talk(profile=OPENAI), marked_in_vain),
    Reason.NOTHING_STABLE: (Talk(profile=replace(ANTHROPIC, min_tokens=1, long_life_s=0.0)), slow),
    Reason.REGRET_BOUND: (Talk(), regretted),
    Reason.STEADY_TOOLS: (Talk(profile=OPENAI), shuffled),
    Reason.MARKED: (Talk(), plain),
    Reason.SPLIT: (Talk(mode=Mode.MARK), clocks),
    Reason.ORDERED: (Talk(), lambda talk: edited(talk, 1)),
    Reason.KEPT: (Talk(), lambda talk: edited(talk, 8)),
    Reason.NATURAL_ORDER: (Talk(profile=OPENAI), lambda talk: talk.send(chat(system(lines(200)), user("q")))),
}


def test_every_reason_has_a_case_and_a_meaning() -> None:
    # Neither a refresh nor a refused request nor one on another path is planned, and structured context is assembled in
    # front of the planner: these are tested where they are sent.
    unplanned = {Reason.KEEP_ALIVE, Reason.COMPACTION, Reason.NOT_CHAT, Reason.NOT_PLANNED}
    elsewhere = {*unplanned, Reason.ASSEMBLED_TIERS, Reason.ASSEMBLED_FLAT}
    assert set(CASES) == set(Reason) - elsewhere
    assert set(MEANINGS) == set(Reason)


@for_every(list(CASES))
def test_every_reason_occurs(reason: Reason) -> None:
    talk, make = CASES[reason]
    assert make(talk).reason is reason

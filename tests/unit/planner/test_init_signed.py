"""A layout that was sent before thinking was signed is part of the conversation from then on."""

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.kit.modes import Mode, Reason
from proxy.planner.candidates import IncomingChat
from proxy.planner.plan import PlannerOptions
from proxy.protocol.request import Inset
from tests.fidelity.chats import File
from tests.signed_thinking import SignedForm, signed
from tests.talk import Body, Talk, assistant, calling, chat, lines, result, sent, shown, system, tool, user

SYSTEM = system(lines(40, "rule"))
FILES = [File("a.py", lines(60, "a")), File("b.py", lines(60, "b"))]
FIRST = [SYSTEM, *shown(*FILES), user("q")]
ANSWER = assistant("Hm.", thinking_blocks=[{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}])
SECOND = [*FIRST, ANSWER, user("go on")]


def bare(messages: list[Body]) -> list[Any]:
    """The messages without markers."""
    texts = [
        m["content"] if isinstance(m["content"], str) else "".join(p["text"] for p in m["content"]) for m in messages
    ]
    return [(m["role"], text) for m, text in zip(messages, texts, strict=True)]


def begun(talk: Talk) -> list[Any]:
    """A conversation whose first request went out in another order than the client's."""
    edited = File("b.py", lines(60, "b") + "edit\n")
    talk.send(chat(SYSTEM, *shown(edited, FILES[0]), user("before")))
    plan = talk.send(chat(*FIRST))
    assert plan.reason in (Reason.ORDERED, Reason.KEPT)
    return bare(sent(plan)["messages"])


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.mark.parametrize("mode", Mode)
def test_in_every_mode_the_front_goes_out_as_it_did(talk: Talk, mode: Mode) -> None:
    front = begun(talk)
    assert front != bare(FIRST)
    talk.mode = mode
    plan = talk.send(chat(*SECOND))
    assert plan.reason is Reason.SIGNED_THINKING
    for body in (plan.body, plan.original):
        assert bare(json.loads(body)["messages"]) == [*front, *bare(SECOND[len(FIRST) :])]


def test_a_control_and_a_barred_session_keep_it(talk: Talk) -> None:
    front = begun(talk)
    plan = talk.plan(chat(*SECOND))
    talk.planner.barred(plan)
    talk.planner.on_accepted(plan, talk.now)
    again = talk.send(chat(*SECOND))
    assert bare(sent(again)["messages"])[: len(front)] == front
    talk.planner._options = PlannerOptions(holdout=1.0)
    assert bare(sent(talk.send(chat(*SECOND)))["messages"])[: len(front)] == front


def test_what_was_retried_as_the_client_sent_it_stays_so(talk: Talk) -> None:
    begun(talk)
    plan = talk.plan(chat(*FIRST))
    assert plan.rewritten
    talk.planner.barred(plan)
    talk.planner.on_accepted(plan, talk.now)
    assert bare(sent(talk.send(chat(*SECOND)))["messages"]) == bare(SECOND)


def test_thinking_that_nobody_saw_made_stays_behind_what_the_client_sends(talk: Talk) -> None:
    plan = talk.send(chat(*SECOND[:-1], *shown(*FILES[:1]), user("go on")))
    assert bare(sent(plan)["messages"])[: len(FIRST)] == bare(FIRST)


def test_thinking_without_a_seal_binds_nothing(talk: Talk) -> None:
    begun(talk)
    unsigned = {**ANSWER, "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": ""}]}
    assert talk.send(chat(*FIRST, unsigned, user("go on"))).reason is not Reason.SIGNED_THINKING


def test_changed_instructions_leave_nothing_bound(talk: Talk) -> None:
    """The client itself has changed what stands in front: the time is relocated as in any other session."""

    def request(minute: int, turns: list[Body]) -> Body:
        return signed(chat(system(lines(90) + f"Current time: 2026-01-01 10:{minute:02}\n"), *turns), SignedForm.PARTS)

    turns: list[Body] = [user("q")]
    for minute in range(4):
        plan = talk.send(request(minute, turns))
        turns += [calling(str(minute), content="I look."), result(str(minute), lines(5))]
    assert "Current time" not in str(sent(plan)["messages"][0])
    (last,) = [i for i, m in enumerate(sent(plan)["messages"]) if "Current time" in str(m)]
    again = sent(talk.send(request(3, turns)))["messages"]
    assert "Current time" in str(again[last])
    assert "Current time" not in str([*again[:last], *again[last + 1 :]])


def test_steady_tools_stay_as_they_went_out(talk: Talk) -> None:
    tools = [tool("a"), tool("b")]
    talk.send(chat(SYSTEM, user("before"), tools=tools))
    first = talk.send(chat(SYSTEM, user("q"), tools=tools[::-1]))
    for mode in (Mode.MARK, Mode.PASSTHROUGH, Mode.TIER):
        talk.mode = mode
        body = sent(talk.send(chat(SYSTEM, user("q"), ANSWER, user("go on"), tools=tools[::-1])))
        assert [each["function"] for each in body["tools"]] == [each["function"] for each in sent(first)["tools"]]
    # Thinking that was made with the tools as they came stays behind them.
    fresh = chat(SYSTEM, user("other"), ANSWER, user("go on"), tools=tools[::-1])
    assert [each["function"] for each in sent(talk.send(fresh))["tools"]] == [each["function"] for each in tools[::-1]]


def test_the_operators_texts_stay_with_their_turns() -> None:
    talk = Talk(options=PlannerOptions())
    talk.route = replace(talk.route, inset=Inset(after=lines(200, "note")))
    first = bare(sent(talk.send(chat(SYSTEM, user("q"))))["messages"])
    talk.route = replace(talk.route, inset=Inset(after="Another."))
    in_loop = chat(SYSTEM, user("q"), {**calling("1", content=""), **ANSWER}, result("1", "done"))
    assert bare(sent(talk.send(in_loop))["messages"])[:2] == first
    later = bare(sent(talk.send(chat(*in_loop["messages"], ANSWER, user("go on"))))["messages"])
    assert later[:2] == first
    assert later[-1][1].endswith("Another.")


def test_tools_keep_the_order_in_which_they_went_out_on_another_worker() -> None:
    talk, other = Talk(), Talk()
    tools = [tool(name) for name in "abc"]
    talk.send(chat(SYSTEM, user("before"), tools=tools))
    plan = talk.send(chat(SYSTEM, user("q"), tools=tools[::-1]))
    first = sent(plan)
    later = chat(SYSTEM, user("q"), ANSWER, user("go on"), tools=tools[::-1])
    incoming = other.planner.read(
        other.planner.reader.parse(json.dumps(later).encode()), other.route, other.mode, other.now
    )
    assert isinstance(incoming, IncomingChat)
    lookup = other.planner.state_lookup(incoming)
    lookup.adopt(talk.planner.sent_front(talk.planner.on_accepted(plan, talk.now)[1]))
    found = json.loads(other.planner.decide(incoming, lookup).written().body)
    assert [each["function"] for each in found["tools"]] == [each["function"] for each in first["tools"]]
    assert [each["function"] for each in found["tools"]] == [each["function"] for each in tools]


def test_a_front_that_cannot_be_made_again_goes_out_as_the_client_sends_it() -> None:
    """The other worker does not know the operator's text that stood in the front."""
    talk, other = Talk(), Talk()
    talk.route = replace(talk.route, inset=Inset(after="Be brief."))
    begun(talk)
    plan = talk.plan(chat(*FIRST))
    incoming = other.planner.read(
        other.planner.reader.parse(json.dumps(chat(*SECOND)).encode()), other.route, other.mode, other.now
    )
    assert isinstance(incoming, IncomingChat)
    lookup = other.planner.state_lookup(incoming)
    lookup.adopt(talk.planner.sent_front(talk.planner.on_accepted(plan, talk.now)[1]))
    found = other.planner.decide(incoming, lookup).written()
    assert found.surprise is None
    assert bare(sent(found)["messages"])[: len(FIRST)] == bare(FIRST)

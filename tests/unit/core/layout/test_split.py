"""A system text in two parts: at its clock line, or in front of its documents."""

import json
from dataclasses import replace

import pytest

from proxy.core.layout.layout import Layout, PrefixSettings
from proxy.core.layout.split import split_layout
from proxy.core.modes import Mode
from proxy.core.planner.plan import Plan
from proxy.core.providers import ANTHROPIC
from proxy.core.reasons import Reason
from proxy.core.request.element import ElementKind
from proxy.core.request.tokens import TokenCounter, bytes_over_four
from tests.fidelity.checker import check
from tests.talk import TINY, Body, Talk, assistant, chat, lines, marks_in, sent, system, text_part, user, view_of

FIXED, REST = lines(40, "rule"), "Be brief.\n"


def clock(minute: int, rest: str = REST) -> str:
    return f"{FIXED}Current time: 2026-01-01 10:{minute:02}\n{rest}"


def layout_of(*messages: Body, movable: bool = True) -> Layout | None:
    recognised = view_of(*messages, movable=movable)
    natural = Layout(PrefixSettings(b"s", b""), recognised.transcript.elements)
    return split_layout(recognised, natural, TokenCounter(bytes_over_four))


def test_two_parts_that_are_the_text() -> None:
    found = layout_of(system(clock(1)), user("a"))
    assert found is not None
    assert [e.kind for e in found.elements] == [ElementKind.SYSTEM, ElementKind.REST, ElementKind.MESSAGE]
    assert [e.lead for e in found.elements[:2]] == [FIXED, clock(1).removeprefix(FIXED)]


def test_what_a_message_says_beside_its_text_is_a_part_of_it() -> None:
    plain, named = layout_of(system(clock(1)), user("a")), layout_of(system(clock(1), name="bob"), user("a"))
    assert plain is not None
    assert named is not None
    assert plain.parts[0].digest != named.parts[0].digest
    assert plain.parts[1:] == named.parts[1:]


@pytest.mark.parametrize("text", ["no clock", "Current time: 2026-01-01 10:00\n" + FIXED, "Current time: 10:00\n"])
def test_nothing_to_split(text: str) -> None:
    assert layout_of(system(text), user("a")) is None


def sessions(talk: Talk, count: int) -> list[tuple[Body, Plan]]:
    """Requests that nobody continues, each at another minute."""
    found = []
    for number in range(count):
        body = chat(system(clock(number, "")), user(f"question {number}"))
        found.append((body, talk.send(body)))
    return found


def test_where_nothing_follows_a_split_is_cheaper_than_a_tag() -> None:
    found = sessions(Talk(), 8)
    for body, plan in found:
        assert check(body, sent(plan), mode="tier", profile="anthropic") == []
    body, plan = found[-1]
    assert plan.reason is Reason.SPLIT
    parts = sent(plan)["messages"][0]["content"]
    assert "".join(part["text"] for part in parts) == body["messages"][0]["content"]
    assert marks_in(sent(plan)) == ["0.0"]
    assert plan.predicted is not None
    assert plan.predicted.read > 0.8 * plan.predicted.total


def test_in_mode_mark_nothing_moves_and_all_before_the_clock_is_marked() -> None:
    talk, turns = Talk(mode=Mode.MARK), []
    for number in range(6):
        body = chat(system(clock(number)), *turns, user(f"q{number}"))
        plan = talk.send(body)
        assert check(body, sent(plan), mode="mark", profile="anthropic") == []
        turns += [user(f"q{number}"), assistant("ok")]
    assert plan.reason is Reason.SPLIT
    assert plan.predicted is not None
    assert plan.predicted.read >= 480


def test_a_client_that_marks_is_not_split_in_mode_mark() -> None:
    part = {"type": "text", "text": clock(1), "cache_control": {"type": "ephemeral"}}
    talk = Talk(mode=Mode.MARK)
    for _ in range(3):
        body = chat(system([part]), user("q"))
        assert check(body, sent(talk.send(body)), mode="mark", profile="anthropic") == []


def test_a_conversation_has_its_clock_relocated() -> None:
    talk, turns = Talk(), []
    for number in range(4):
        plan = talk.send(chat(system(clock(number)), *turns, user(f"q{number}")))
        turns += [user(f"q{number}"), assistant("ok")]
    assert "<stratiform-context>" in json.dumps(sent(plan))


def test_no_part_below_the_minimum_is_worth_a_marker() -> None:
    talk = Talk(profile=replace(ANTHROPIC, min_tokens=TINY.min_tokens + 5000))
    assert {plan.reason for _, plan in sessions(talk, 4)} == {Reason.BELOW_MINIMUM}


DOCUMENTS = "".join(f'<document id="{{}}{n}">\n{lines(12, "fact")}</document>\n\n' for n in range(3))


def prompt(which: str) -> str:
    return FIXED + DOCUMENTS.format(*[which] * 3)


@pytest.mark.parametrize("rest", ["", REST])
def test_documents_are_a_part_of_their_own_with_all_that_stands_behind_them(rest: str) -> None:
    found = layout_of(system(prompt("a") + rest), user("a"))
    assert found is not None
    assert [e.kind for e in found.elements] == [ElementKind.SYSTEM, ElementKind.REST, ElementKind.MESSAGE]
    assert [e.lead for e in found.elements[:2]] == [FIXED, DOCUMENTS.format("a", "a", "a") + rest]


def test_documents_that_begin_the_text_leave_nothing_to_split() -> None:
    assert layout_of(system(DOCUMENTS.format("a", "a", "a") + REST), user("a")) is None


@pytest.mark.parametrize("clock", ["", "Current time: 10:00\n"])
def test_what_stands_in_front_of_the_documents_is_read_when_they_change_for_the_first_time(clock: str) -> None:
    talk, turns = Talk(), []
    for which in "ab":
        body = chat(system(clock + prompt(which)), *turns, user(f"q{which}"))
        plan = talk.send(body)
        assert check(body, sent(plan), mode="tier", profile="anthropic") == []
        turns += [user(f"q{which}"), assistant("ok")]
        if which == "a":
            parts = [part["text"] for part in sent(plan)["messages"][0]["content"]]
            assert parts[0] == FIXED
            assert "".join(parts) == prompt("a")
    assert plan.predicted is not None
    assert plan.predicted.read >= 480


def test_documents_that_never_change_are_read_with_all_that_follows_them() -> None:
    talk, turns = Talk(), []
    for number in range(6):
        body = chat(system(prompt("a")), *turns, user(f"q{number}"))
        plan = talk.send(body)
        system_text = sent(plan)["messages"][0]["content"]
        assert system_text == prompt("a") or "".join(part["text"] for part in system_text) == prompt("a")
        turns += [user(f"q{number}"), assistant("ok")]
    assert plan.predicted is not None
    assert plan.predicted.read > 0.95 * plan.predicted.total


def test_between_parts_that_there_are_already_nothing_is_cut() -> None:
    talk, turns = Talk(mode=Mode.MARK), list[Body]()
    for number in range(5):
        parts = [lines(150, "rule"), f"You help.\nCurrent time: 2026-01-01 10:0{number}\nGo on.\n", lines(150, "more")]
        plan = talk.send(chat(system([text_part(text) for text in parts]), *turns, user(f"q{number}")))
        turns += [user(f"q{number}"), assistant(lines(3, f"a{number}"))]
    assert plan.reason is Reason.SPLIT
    written = sent(plan)["messages"][0]["content"]
    assert [part["text"] for part in written] == parts
    assert ["cache_control" in part for part in written] == [True, False, False]

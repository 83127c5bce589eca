"""Volatile lines that no pattern knows are found by what changed between two requests."""

import json

import pytest

from proxy.core.evidence import Evidence, HeadLines, line_hashes, with_evidence
from proxy.core.message import Message, MessageReader
from proxy.core.modes import Mode
from proxy.core.plan import Plan, Route
from proxy.core.planner import TierPlanner
from proxy.core.profiles import PROFILES
from proxy.core.recognition import PieceKind
from proxy.core.tokens import TokenCounter
from proxy.core.wire import elements

LINES = [f"Rule {number}: do this, and mind what it says about it." for number in range(80)]


def read(text: str | list[dict[str, str]]) -> Message:
    raw = elements(json.dumps([{"role": "system", "content": text}]).encode())[0]
    return MessageReader(TokenCounter(), []).read(raw)


def with_lines(*changed: str, at: int = 40) -> str:
    return "\n".join([*LINES[:at], *changed, *LINES[at:]])


def learnt(first: str, second: str, place: int = 0) -> Evidence:
    evidence = Evidence()
    evidence.learn(place, line_hashes(read(first)), line_hashes(read(second)))
    return evidence


def volatile(text: str, evidence: Evidence, place: int = 0) -> list[str]:
    known = with_evidence(read(text), place, evidence).recognition
    cuts = known.cuts if known is not None else ()
    assert "".join(text[c.start : c.end] for c in cuts) in ("", text)
    return [text[c.start : c.end] for c in cuts if c.kind is PieceKind.VOLATILE]


def test_a_line_that_changed_is_volatile_whatever_it_says_next() -> None:
    evidence = learnt(with_lines("Open tickets: 5"), with_lines("Open tickets: 7"))
    assert volatile(with_lines("Open tickets: none at all"), evidence) == ["Open tickets: none at all\n"]


def test_lines_that_come_and_go_take_their_heading_along() -> None:
    evidence = learnt(with_lines("git status:", "end"), with_lines("git status:", " M b.py", "end"))
    changed = with_lines("git status:", " M c.py", " M d.py", "end")
    assert volatile(changed, evidence) == ["git status:\n M c.py\n M d.py\n"]
    # Where there are none the heading goes, too: what stays is the same text.
    assert volatile(with_lines("git status:", "end"), evidence) == ["git status:\n"]


def test_unchanged_text_and_other_places_are_left_alone() -> None:
    evidence = learnt(with_lines("Open tickets: 5"), with_lines("Open tickets: 7"))
    other = read(with_lines("Open tickets: 5"))
    assert with_evidence(other, 1, evidence) is other
    assert volatile("\n".join(LINES[:20]), evidence) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\n".join(LINES), "\n".join(f"Another rule {n} altogether" for n in range(80))),
        (with_lines(*[f"old {n}" for n in range(30)]), with_lines(*[f"new {n}" for n in range(30)])),
        ("one line", "another line"),
    ],
)
def test_another_text_is_no_evidence(before: str, after: str) -> None:
    assert learnt(before, after).regions == ()


def test_a_system_message_of_its_own_may_change_as_a_whole() -> None:
    evidence = learnt("Branch: main", "Branch: fix-42", place=1)
    assert volatile("Branch: release", evidence, place=1) == ["Branch: release"]


def test_a_list_of_one_text_is_read_like_a_string() -> None:
    text = with_lines("Open tickets: 5")
    assert line_hashes(read(text)) == line_hashes(read([{"type": "text", "text": text}]))


def test_sessions_are_compared_only_while_they_have_as_many_system_messages() -> None:
    evidence, lines = Evidence(), HeadLines()
    lines.follow([read(with_lines("a: 1"))], evidence)
    lines.follow([read(with_lines("a: 2")), read("more")], evidence)
    assert evidence.regions == ()
    lines.follow([read(with_lines("a: 3")), read("more")], evidence)
    assert len(evidence.regions) == 1


def sent(planner: TierPlanner, system: str, turns: list[dict[str, str]], at: float) -> Plan:
    body = json.dumps({"model": "m", "messages": [{"role": "system", "content": system}, *turns]}).encode()
    plan = planner.plan(body, Route("s", "m", "m", PROFILES["anthropic"]), Mode.TIER, at)
    assert plan.surprise is None
    planner.began(plan, at)
    planner.settled(plan, None, at)
    return plan


def test_the_next_session_of_the_client_is_laid_out_right_at_once() -> None:
    planner = TierPlanner(len, [])
    turns: list[dict[str, str]] = []
    for number in range(6):
        turns += [{"role": "user", "content": f"question {number}"}]
        sent(planner, with_lines(f"Open tickets: {number}"), turns, number * 20.0)
        turns += [{"role": "assistant", "content": f"answer {number}"}]
    plan = sent(planner, with_lines("Open tickets: 77"), [{"role": "user", "content": "something new"}], 200.0)
    messages = json.loads(plan.body)["messages"]
    assert "Open tickets" not in json.dumps(messages[0])
    assert messages[1]["content"] == "<stratiform-context>\nOpen tickets: 77\n</stratiform-context>"


def test_instructions_that_take_anothers_place_are_no_evidence() -> None:
    """A client goes over to another mode and back: most of the text is another."""
    architect = "\n".join([*LINES[:14], "Always reply in English."])
    ask = "\n".join(["Answer questions about the code.", "Change nothing.", "Always reply in English."])
    evidence, lines = Evidence(), HeadLines()
    for text in (architect, architect, ask, architect, ask):
        lines.follow([read(text)], evidence)
    assert evidence.regions == ()

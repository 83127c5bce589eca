"""Volatile lines that no pattern knows are found by what changed between two requests."""

import json
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.kit.modes import Mode
from proxy.planner import TierPlanner
from proxy.planner.candidates import IncomingChat
from proxy.planner.plan import Plan
from proxy.planner.volatile_lines import (
    PreambleChanges,
    Regions,
    changed_places,
    learnt_lines,
    line_hashes,
    overlaid,
    with_evidence,
)
from proxy.protocol.providers import PROFILES
from proxy.protocol.recognition import TAG_CLOSE, TAG_OPEN, Cut, PieceKind
from proxy.protocol.request.message import Message, MessageReader
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import TokenCounter
from proxy.protocol.wire.json_body import elements
from tests.examples import examples
from tests.fidelity.checker import check
from tests.growth import steps_of
from tests.talk import Body, Talk, assistant, chat, lines, system, text_part, user
from tests.talk import sent as sent_by

LINES = [f"Rule {number}: do this, and mind what it says about it." for number in range(80)]


def read(text: str | list[dict[str, str]]) -> Message:
    raw = elements(json.dumps([{"role": "system", "content": text}]).encode())[0]
    return MessageReader(TokenCounter(), []).read(raw)


def with_lines(*changed: str, at: int = 40) -> str:
    return "\n".join([*LINES[:at], *changed, *LINES[at:]])


def learnt(first: str, second: str, place: int = 0) -> Regions:
    head = [read("Be brief.")] * place
    return learnt_lines([line_hashes(one) for one in (*head, read(first))], [*head, read(second)], ())[1]


def volatile(text: str, evidence: Regions, place: int = 0) -> list[str]:
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
    assert learnt(before, after) == ()


@pytest.mark.parametrize(("place", "is_moved"), [(0, False), (1, True)])
def test_a_text_that_is_one_changing_list_moves_as_a_whole_unless_it_is_the_first(place: int, is_moved: bool) -> None:
    before, after, then = ("\n".join(f"- item {n}" for n in items) for items in ((0, 1, 2, 3), (0, 1, 2, 4), (0, 7)))
    assert volatile(then, learnt(before, after, place), place) == ([then] if is_moved else [])


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), max_size=6), st.integers(0, 12), st.integers(1, 3))
@settings(max_examples=examples(200))
def test_volatile_lines_cut_a_text_into_pieces_that_hold_each_character_once(
    spans: list[tuple[int, int]], known: int, length: int
) -> None:
    lines_of = [f"line {number}\n" for number in range(16)]
    at = [sum(map(len, lines_of[:number])) for number in range(17)]
    text, was = "".join(lines_of), (at[known], at[known + length])
    base = [(PieceKind.SECTION, 0, was[0]), (PieceKind.VOLATILE, *was), (PieceKind.SECTION, was[1], len(text))]
    cuts = overlaid([Cut("", *cut) for cut in base], [(at[a], at[a + n]) for a, n in spans], [(0, len(text))], text)
    assert "".join(text[cut.start : cut.end] for cut in cuts) == text
    moved = {number for a, n in spans for number in range(a, a + n)}
    moved |= set(range(known, known + length)) if spans else set()
    told = "".join(text[cut.start : cut.end] for cut in cuts if cut.kind is PieceKind.VOLATILE)
    assert not spans or told == "".join(lines_of[number] for number in sorted(moved))


def test_a_list_of_one_text_is_read_like_a_string() -> None:
    text = with_lines("Open tickets: 5")
    assert line_hashes(read(text)) == line_hashes(read([{"type": "text", "text": text}]))


def test_sessions_are_compared_only_while_they_have_as_many_system_messages() -> None:
    lines, regions = learnt_lines([], [read(with_lines("a: 1"))], ())
    lines, regions = learnt_lines(lines, [read(with_lines("a: 2")), read("more")], regions)
    assert regions == ()
    _, regions = learnt_lines(lines, [read(with_lines("a: 3")), read("more")], regions)
    assert len(regions) == 1


def parted(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize("gap", ["\n", "\n\n", "\n\n\n", "\n---\n\n"])
def test_neighbours_that_stand_elsewhere_too_do_not_matter(gap: str) -> None:
    """Blank lines and rules are everywhere in a Markdown prompt."""

    def text(left: int, more: str = "") -> str:
        return gap.join([*LINES[:40], f"Open tickets: {left}", *LINES[40:60], more or "No more.", *LINES[60:]])

    evidence = learnt(text(5), text(7))
    assert volatile(text(9), evidence) == ["Open tickets: 9\n"]
    # Text that is added elsewhere, in front of it or behind it, does not hide it.
    assert volatile("A new rule.\n\n" + text(9, "Another rule."), evidence) == ["Open tickets: 9\n"]


def test_a_line_is_found_in_a_text_that_says_everything_twice() -> None:
    half = "\n".join(LINES)
    evidence = learnt(f"{half}\nLeft: 5\nUsed: 1\n{half}", f"{half}\nLeft: 4\nUsed: 2\n{half}")
    assert volatile(f"{half}\nLeft: 3\nUsed: 3\n{half}", evidence) == ["Left: 3\nUsed: 3\n"]


def test_lines_that_are_far_apart_are_found_both() -> None:
    def text(number: int) -> str:
        rules = "\n\n".join(f"Rule {n}: mind what it says." for n in range(600))
        return f"Request id: {number}\n\n{rules}\n\nRequests left: {number}\n\nBe brief."

    assert volatile(text(3), learnt(text(1), text(2))) == ["Request id: 3\n", "Requests left: 3\n"]


def test_lines_with_nothing_that_tells_the_place_between_them_are_one_region() -> None:
    evidence = learnt(with_lines("", "Left: 5", "", "Used: 1", ""), with_lines("", "Left: 4", "", "Used: 2", ""))
    assert volatile(with_lines("", "Left: 3", "", "Used: 3", ""), evidence) == ["Left: 3\n\nUsed: 3\n"]


def test_a_line_beside_one_that_is_known_to_move_is_found() -> None:
    first, second, third = (with_lines("", f"Left: {n}", "", "Used: 1", "") for n in range(3))
    evidence = learnt(first, second)
    fourth, fifth = with_lines("", "Left: 2", "", "Used: 5", ""), with_lines("", "Left: 9", "", "Used: 7", "")
    _, evidence = learnt_lines([line_hashes(read(third))], [with_evidence(read(fourth), 0, evidence)], evidence)
    assert volatile(fifth, evidence) == ["Left: 9\n\nUsed: 7\n"]


def test_a_list_goes_as_a_whole_whatever_of_it_changes() -> None:
    def todo(done: int, count: int = 9) -> str:
        items = [f"- [{'x' if n < done else ' '}] step {n}" for n in range(count)]
        return with_lines("<todo>", *items, "</todo>")

    evidence = learnt(todo(1), todo(2))
    for text in (todo(3), todo(9), todo(4, 12)):
        assert volatile(text, evidence) == [text[text.index("<todo>") : text.index("</todo>\n") + len("</todo>\n")]]


def test_items_that_are_taken_out_or_put_in_are_a_part_of_their_list() -> None:
    def status(*files: str) -> str:
        return with_lines("", "Status:", *[f" M {file}.py" for file in files], "", "Recent commits:", "0af fix", "")

    for before, after in ((("a",), ("a", "b")), (("a", "b", "c"), ("a", "c"))):
        evidence = learnt(status(*before), status(*after))
        assert volatile(status("a", "x", "y", "z"), evidence) == ["Status:\n M a.py\n M x.py\n M y.py\n M z.py\n"]


def test_an_item_of_a_list_that_is_too_long_to_move_stays() -> None:
    def text(done: int) -> str:
        return "\n".join(f"- [{'x' if n == done else ' '}] a step of the plan, number {n}" for n in range(200))

    assert volatile(text(7), learnt(text(5), text(6))) == []


def test_a_part_that_changes_is_volatile_as_a_whole() -> None:
    def parts(left: int) -> list[dict[str, str]]:
        return parted("\n".join(LINES[:40]), f"\nOpen tickets: {left}\n\n", "\n".join(LINES[40:]))

    _, evidence = learnt_lines([line_hashes(read(parts(5)))], [read(parts(7))], ())
    known = with_evidence(read(parts(9)), 0, evidence)
    assert known.text is not None
    cuts = [(known.text[c.start : c.end], c.kind) for c in known.recognition.cuts]
    assert cuts == [
        ("\n".join(LINES[:40]), PieceKind.SECTION),
        ("\nOpen tickets: 9\n\n", PieceKind.VOLATILE),
        ("\n".join(LINES[40:]), PieceKind.SECTION),
    ]


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("\n\nRequests left: {}\n\n", "Requests left: {}"),
        ("\n<env>\n\nBranch: b{}\n\n</env>\n", "<env>\n\nBranch: b{}\n\n</env>"),
        ("\n\n## Context\n\nUser: bob (session {})\n\n## More\n", "## Context\n\nUser: bob (session {})"),
    ],
)
@pytest.mark.parametrize("as_parts", [False, True])
def test_a_line_that_changes_does_not_cost_the_prompt(text: str, tag: str, as_parts: bool) -> None:
    """All requests but those that it is learnt from read everything in front of it, and everything behind it."""
    talk = Talk()
    turns: list[Body] = []
    above, below = lines(120, "rule"), lines(120, "law")
    for number in range(6):
        turns.append(user(f"question {number}"))
        texts = (above, text.format(number), below)
        body = chat(system([text_part(t) for t in texts] if as_parts else "".join(texts)), *turns)
        plan = talk.send(body)
        assert check(body, sent_by(plan), mode="tier", profile="anthropic") == []
        if number >= 3:
            assert plan.predicted.read > 0.9 * plan.predicted.total
            tags = [m["content"] for m in sent_by(plan)["messages"] if "<stratiform-context>" in m["content"]]
            assert [one.split() for one in tags] == [f"{TAG_OPEN}{tag.format(number)}{TAG_CLOSE}".split()]
        turns.append(assistant(f"answer {number}"))


def sent(planner: TierPlanner, system: str, turns: list[dict[str, str]], at: float) -> Plan:
    body = json.dumps({"model": "m", "messages": [{"role": "system", "content": system}, *turns]}).encode()
    plan = planner.plan(body, Route("s", "m", "m", PROFILES["anthropic"]), Mode.TIER, at)
    assert plan.surprise is None
    planner.on_accepted(plan, at)
    planner.on_completed(plan, None, at)
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
    regions, lines = (), list[tuple[int, ...]]()
    for text in (architect, architect, ask, architect, ask):
        lines, regions = learnt_lines(lines, [read(text)], regions)
    assert regions == ()


def test_very_many_lines_of_several_system_messages_take_no_more_time_than_those_of_one() -> None:
    def work(count: int) -> int:
        """How much is done for three requests that change all of so many system messages of 4,500 short lines."""
        talk, steps = Talk(), 0
        turns: list[Body] = []
        for turn in range(3):
            texts = ["\n".join([*map(str, range(2_250)), f"{turn}", *map(str, range(2_250))]) for _ in range(count)]
            turns.append(user(f"What, {turn}?"))
            raw = json.dumps(chat(*map(system, texts), *turns)).encode()
            incoming = talk.planner.read(talk.planner.reader.parse(raw), talk.route, talk.mode, turn)
            assert isinstance(incoming, IncomingChat)
            steps += steps_of(partial(decide_and_complete, talk.planner, incoming))
            turns.append(assistant("That."))
        return steps

    sessions: set[str] = set()

    def decide_and_complete(planner: TierPlanner, incoming: IncomingChat) -> None:
        plan = planner.decide(incoming)
        planner.on_completed(plan, None, incoming.now)
        sessions.add(plan.session)

    one, many = work(2), work(24)
    assert sessions == {"s1"}
    assert many < 2.5 * one, (one, many)


def test_a_text_that_changed_in_part_once_is_no_visit() -> None:
    records = PreambleChanges()
    for _ in range(10):
        records.add((b"t", b"home"), (b"t", b"home"))
    edited, replaced = records.hazard(1, 0.02, is_edited=True), records.hazard(1, 0.02, is_fresh=True)
    assert records.hazard(1, 0.02) < edited < 0.15 < 0.5 < replaced
    # Where it is new, one change says that it may change each time.
    assert PreambleChanges().hazard(1, 0.02, is_edited=True) > 0.5


def test_head_records_begin_with_the_prior() -> None:
    records = PreambleChanges()
    assert records.hazard(3, 0.9) > records.hazard(3, 0.02)
    records.add((b"a", b"b"), (b"a", b"c", b"d"))
    assert [(place.seen, place.changes) for place in records.places] == [(1, 0), (1, 1), (1, 1)]


def test_head_records_tell_a_visit_from_a_text_that_stays() -> None:
    records = PreambleChanges()
    home, visit = (b"t", b"home"), (b"t", b"visit")
    fresh: frozenset[int] = frozenset()
    for before, after in pairwise([*[home] * 9, visit] * 4):
        records.add(before, after, fresh)
        fresh = changed_places(before, after)
    assert changed_places(home, visit) == {1}
    assert records.hazard(1, 0.02, is_fresh=True) > 2 * records.hazard(1, 0.02)
    assert records.hazard(0, 0.02) < 0.1
    assert records.of(1) == (39, 7)
    assert records.of(2) == (0, 0)

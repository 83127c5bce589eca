"""A system text in two parts: at its clock line, or in front of its documents."""

from dataclasses import replace

import pytest

from proxy.kit.modes import Mode, Reason
from proxy.planner.layout import Layout, PrefixSettings
from proxy.planner.orders import RequestElements, behind_prefix, moved_elements, request_elements, split_layout
from proxy.planner.plan import Plan
from proxy.protocol.providers import ANTHROPIC, PROFILES
from proxy.protocol.request.element import ElementKind
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from tests.fidelity.checker import check
from tests.talk import (
    TINY,
    Body,
    Talk,
    as_parts,
    assistant,
    calling,
    chat,
    lines,
    marks_in,
    result,
    said,
    sent,
    system,
    text_part,
    user,
    view_of,
)

CLOCK = "Current time: 2026-01-01 10:00"
PROMPT = f"You are kind.\n{CLOCK}\nRules follow.\n"
DOCUMENTS = 'Answer.\n<document id="1">\none\n</document>\n<document id="2">\ntwo\n</document>\nBrief.\n'


def moved(*messages: Body) -> RequestElements | None:
    recognised = view_of(*messages)
    counter = TokenCounter(bytes_over_four)
    return moved_elements(recognised, request_elements(recognised, (), counter), counter)


def order(*messages: Body) -> list[str]:
    found = moved(*messages)
    assert found is not None
    return [e.kind.value for e in behind_prefix(found, (), lambda _: 0.0)]


def test_nothing_moves_in_a_still_prompt() -> None:
    assert moved(system("You are kind."), user("go")) is None


def test_the_clock_goes_into_the_tag_directly_before_the_last_user_message() -> None:
    messages = [system(PROMPT), user("a"), assistant("b"), user("go")]
    found = moved(*messages)
    assert found.preamble[0].lead == "You are kind.\nRules follow.\n"
    assert found.tail[0].lead == f"<stratiform-context>\n{CLOCK}\n</stratiform-context>"
    assert (found.tail[0].role, found.tail[0].kind) == ("user", ElementKind.TAG)
    assert order(*messages) == ["system", "message", "message", "tag", "message"]


CALLED = assistant(None, function_call={"name": "run", "arguments": "{}"})


@pytest.mark.parametrize("last", [[calling("1"), result("1", "x")], [CALLED, said("function", "x", name="run")]])
def test_inside_a_tool_loop_the_tag_stands_behind_the_newest_results(last: list[Body]) -> None:
    loop = [system(PROMPT), user("go"), *last]
    assert order(*loop) == ["system", "message", "message", "message", "tag"]
    ended = [*loop, assistant("done"), user("more")]
    assert order(*ended) == ["system", "message", "message", "message", "message", "tag", "message"]


def test_results_in_a_users_message_are_not_parted_from_their_calls() -> None:
    loop = [system(PROMPT), user("go"), calling("1", "2"), result("1", "x"), result("2", "y")]
    assert order(*as_parts(*loop)) == ["system", "message", "message", "message", "tag"]
    ended = [*loop, assistant("done"), user("more")]
    assert order(*as_parts(*ended)) == ["system", "message", "message", "message", "message", "tag", "message"]


def test_the_tag_carries_no_marker() -> None:
    found = moved(system(PROMPT), user("go"))
    assert [p.markable for p in found.tail[0].parts] == [False]


def test_lines_of_several_system_messages_keep_their_order_in_one_tag() -> None:
    later = "Now: 2026-01-01 11:00"
    found = moved(system(PROMPT), said("developer", f"More rules.\n{later}\n"), user("go"))
    assert found.tail[0].lead == f"<stratiform-context>\n{CLOCK}\n{later}\n</stratiform-context>"
    assert [e.role for e in found.preamble] == ["system", "developer"]
    assert sum(e.kind is ElementKind.TAG for e in found.tail) == 1


def test_documents_are_pieces_of_their_own() -> None:
    found = moved(system(DOCUMENTS), user("go"))
    assert found.preamble[0].lead == "Answer.\nBrief.\n"
    assert len(found.documents) == 2
    assert found.tail[0].kind is ElementKind.MESSAGE
    assert set(found.sizes) == set(found.items) == set(found.documents)
    assert found.is_movable


def test_the_fixed_text_is_the_same_whatever_the_time() -> None:
    one, other = (moved(system(PROMPT.replace("10:00", t)), user("go")) for t in ("10:00", "23:59"))
    assert one.preamble[0].digest == other.preamble[0].digest
    assert one.tail[0].digest != other.tail[0].digest


@pytest.mark.parametrize("content", [PROMPT, [text_part(PROMPT), text_part("More.")]])
def test_what_a_message_says_beside_its_text_is_a_part_of_it(content: object) -> None:
    plain, named = moved(system(content), user("go")), moved(system(content, name="bob"), user("go"))
    assert plain.preamble[0].parts[0].digest != named.preamble[0].parts[0].digest
    assert plain.preamble[0].parts[1:] == named.preamble[0].parts[1:]


RULES = "\n".join(f"Rule {number}: a rule of the house, of some length." for number in range(150))


def retrieved(name: str) -> str:
    return f'<document source="{name}">\n{name} says this and that, at some length.\n</document>\n'


@pytest.mark.parametrize("profile", ["anthropic", "openai"])
def test_documents_move_with_a_clients_first_request_and_the_rules_behind_them_are_read_in_the_second(
    profile: str,
) -> None:
    talk = Talk(profile=replace(PROFILES[profile], min_tokens=256))
    for names, question in (("ab", "one?"), ("bc", "two?")):
        prompt = f"You answer by the documents.\n{''.join(map(retrieved, names))}{RULES}"
        body = chat(system(prompt), user(question))
        plan = talk.send(body)
        parts = [part["text"] for part in sent(plan)["messages"][0]["content"]]
        assert parts[0] == f"You answer by the documents.\n{RULES}"
        assert sorted(part.strip() for part in parts[1:]) == [retrieved(name).strip() for name in names]
        assert check(body, sent(plan), mode="tier", profile=profile) == []
    assert plan.predicted.read > 1000


def in_parts(clock: str) -> Body:
    """A system message of three parts; the one in the middle tells the time."""
    return system([text_part(lines(150, "rule")), text_part(clock), text_part(lines(150, "more"))])


@pytest.mark.parametrize(("around", "rest"), [("", []), ("You help.\n", ["You help.\nGo on.\n"])])
def test_a_system_message_in_parts_loses_its_clock_and_keeps_its_other_parts(around: str, rest: list[str]) -> None:
    talk, turns, plans = Talk(), list[Body](), []
    for number in range(6):
        clock = f"{around}Current time: 2026-01-01 10:0{number}\n{'Go on.' + chr(10) if around else ''}"
        plans.append(talk.send(chat(in_parts(clock), *turns, user(f"q{number}"))))
        turns += [user(f"q{number}"), assistant(lines(3, f"a{number}"))]
    messages = sent(plans[-1])["messages"]
    assert [part["text"] for part in messages[0]["content"]] == [lines(150, "rule"), *rest, lines(150, "more")]
    assert "cache_control" in messages[0]["content"][-1]
    tag = messages[-2]["content"]
    assert "Current time: 2026-01-01 10:05" in (tag if isinstance(tag, str) else tag[0]["text"])
    assert plans[-1].predicted.read > 0.9 * plans[-1].predicted.total


FIXED, REST = lines(40, "rule"), "Be brief.\n"


def clock(minute: int, rest: str = REST) -> str:
    return f"{FIXED}Current time: 2026-01-01 10:{minute:02}\n{rest}"


def layout_of(*messages: Body, movable: bool = True) -> Layout | None:
    recognised = view_of(*messages, movable=movable)
    natural = Layout(PrefixSettings(b"s", b""), recognised.transcript.elements)
    return split_layout(recognised, natural, TokenCounter(bytes_over_four))


def test_two_parts_that_are_the_text() -> None:
    found = layout_of(system(clock(1)), user("a"))
    assert [e.kind for e in found.elements] == [ElementKind.SYSTEM, ElementKind.REST, ElementKind.MESSAGE]
    assert [e.lead for e in found.elements[:2]] == [FIXED, clock(1).removeprefix(FIXED)]


def test_what_a_split_message_says_beside_its_text_is_a_part_of_it() -> None:
    plain, named = layout_of(system(clock(1)), user("a")), layout_of(system(clock(1), name="bob"), user("a"))
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
    assert plan.predicted.read > 0.8 * plan.predicted.total


def test_in_mode_mark_nothing_moves_and_all_before_the_clock_is_marked() -> None:
    talk, turns = Talk(mode=Mode.MARK), []
    for number in range(6):
        body = chat(system(clock(number)), *turns, user(f"q{number}"))
        plan = talk.send(body)
        assert check(body, sent(plan), mode="mark", profile="anthropic") == []
        turns += [user(f"q{number}"), assistant("ok")]
    assert plan.reason is Reason.SPLIT
    assert plan.predicted.read >= 480


def test_a_client_that_marks_is_not_split_in_mode_mark() -> None:
    part = {"type": "text", "text": clock(1), "cache_control": {"type": "ephemeral"}}
    talk = Talk(mode=Mode.MARK)
    for _ in range(3):
        body = chat(system([part]), user("q"))
        assert check(body, sent(talk.send(body)), mode="mark", profile="anthropic") == []


def test_no_part_below_the_minimum_is_worth_a_marker() -> None:
    talk = Talk(profile=replace(ANTHROPIC, min_tokens=TINY.min_tokens + 5000))
    assert {plan.reason for _, plan in sessions(talk, 4)} == {Reason.BELOW_MINIMUM}


SHEETS = "".join(f'<document id="{{}}{n}">\n{lines(12, "fact")}</document>\n\n' for n in range(3))


def prompt(which: str) -> str:
    return FIXED + SHEETS.format(*[which] * 3)


@pytest.mark.parametrize("rest", ["", REST])
def test_documents_are_a_part_of_their_own_with_all_that_stands_behind_them(rest: str) -> None:
    found = layout_of(system(prompt("a") + rest), user("a"))
    assert [e.kind for e in found.elements] == [ElementKind.SYSTEM, ElementKind.REST, ElementKind.MESSAGE]
    assert [e.lead for e in found.elements[:2]] == [FIXED, SHEETS.format("a", "a", "a") + rest]


def test_documents_that_begin_the_text_leave_nothing_to_split() -> None:
    assert layout_of(system(SHEETS.format("a", "a", "a") + REST), user("a")) is None


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
    assert plan.predicted.read >= 480


def test_documents_that_never_change_are_read_with_all_that_follows_them() -> None:
    talk, turns = Talk(), []
    for number in range(6):
        body = chat(system(prompt("a")), *turns, user(f"q{number}"))
        plan = talk.send(body)
        system_text = sent(plan)["messages"][0]["content"]
        assert system_text == prompt("a") or "".join(part["text"] for part in system_text) == prompt("a")
        turns += [user(f"q{number}"), assistant("ok")]
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

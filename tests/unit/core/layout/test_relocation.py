from dataclasses import replace

import pytest

from proxy.core.layout.orders import RequestElements, behind_prefix, request_elements
from proxy.core.layout.relocation import moved_elements
from proxy.core.providers import PROFILES
from proxy.core.request.element import ElementKind
from proxy.core.request.tokens import TokenCounter, bytes_over_four
from tests.fidelity.checker import check
from tests.talk import (
    Body,
    Talk,
    assistant,
    calling,
    chat,
    lines,
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
    assert found is not None
    assert found.preamble[0].lead == "You are kind.\nRules follow.\n"
    assert found.tail[0].lead == f"<stratiform-context>\n{CLOCK}\n</stratiform-context>"
    assert (found.tail[0].role, found.tail[0].kind) == ("user", ElementKind.TAG)
    assert order(*messages) == ["system", "message", "message", "tag", "message"]


def test_inside_a_tool_loop_the_tag_stands_behind_the_newest_results() -> None:
    loop = [system(PROMPT), user("go"), calling("1"), result("1", "x")]
    assert order(*loop) == ["system", "message", "message", "message", "tag"]
    ended = [*loop, assistant("done"), user("more")]
    assert order(*ended) == ["system", "message", "message", "message", "message", "tag", "message"]


def test_the_tag_carries_no_marker() -> None:
    found = moved(system(PROMPT), user("go"))
    assert found is not None
    assert [p.markable for p in found.tail[0].parts] == [False]


def test_lines_of_several_system_messages_keep_their_order_in_one_tag() -> None:
    later = "Now: 2026-01-01 11:00"
    found = moved(system(PROMPT), said("developer", f"More rules.\n{later}\n"), user("go"))
    assert found is not None
    assert found.tail[0].lead == f"<stratiform-context>\n{CLOCK}\n{later}\n</stratiform-context>"
    assert [e.role for e in found.preamble] == ["system", "developer"]
    assert sum(e.kind is ElementKind.TAG for e in found.tail) == 1


def test_documents_are_pieces_of_their_own() -> None:
    found = moved(system(DOCUMENTS), user("go"))
    assert found is not None
    assert found.preamble[0].lead == "Answer.\nBrief.\n"
    assert len(found.documents) == 2
    assert found.tail[0].kind is ElementKind.MESSAGE
    assert set(found.sizes) == set(found.items) == set(found.documents)
    assert found.is_movable


def test_the_fixed_text_is_the_same_whatever_the_time() -> None:
    one, other = (moved(system(PROMPT.replace("10:00", t)), user("go")) for t in ("10:00", "23:59"))
    assert one is not None
    assert other is not None
    assert one.preamble[0].digest == other.preamble[0].digest
    assert one.tail[0].digest != other.tail[0].digest


@pytest.mark.parametrize("content", [PROMPT, [text_part(PROMPT), text_part("More.")]])
def test_what_a_message_says_beside_its_text_is_a_part_of_it(content: object) -> None:
    plain, named = moved(system(content), user("go")), moved(system(content, name="bob"), user("go"))
    assert plain is not None
    assert named is not None
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
    assert plan.predicted is not None
    assert plan.predicted.read > 1000


def test_documents_that_never_change_cost_no_more_than_in_their_place() -> None:
    talk, turns = Talk(profile=replace(PROFILES["anthropic"], min_tokens=256)), list[Body]()
    prompt = f"You answer by the documents.\n{retrieved('a')}{retrieved('b')}{RULES}"
    for number in range(6):
        turns.append(user(f"question {number}?"))
        plan = talk.send(chat(system(prompt), *turns))
        turns.append(assistant("ok"))
    assert plan.predicted is not None
    assert plan.predicted.read > 0.95 * plan.predicted.total


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
    assert plans[-1].predicted is not None
    assert plans[-1].predicted.read > 0.9 * plans[-1].predicted.total

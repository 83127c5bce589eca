import pytest

from proxy.core.layout.orders import RequestElements, behind_prefix, material
from proxy.core.layout.relocation import moved_material
from proxy.core.request.element import ElementKind
from proxy.core.request.tokens import TokenCounter, bytes_over_four
from tests.talk import Body, assistant, calling, result, said, system, text_part, user, view_of

CLOCK = "Current time: 2026-01-01 10:00"
PROMPT = f"You are kind.\n{CLOCK}\nRules follow.\n"
DOCUMENTS = 'Answer.\n<document id="1">\none\n</document>\n<document id="2">\ntwo\n</document>\nBrief.\n'


def moved(*messages: Body) -> RequestElements | None:
    recognised = view_of(*messages)
    counter = TokenCounter(bytes_over_four)
    return moved_material(recognised, material(recognised, (), counter), counter)


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


def test_inside_a_tool_loop_it_stands_behind_the_newest_results() -> None:
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


def test_documents_that_were_not_seen_to_change_stand_apart_when_the_clock_goes() -> None:
    documents = DOCUMENTS.removeprefix("Answer.\n").removesuffix("Brief.\n")
    messages = [system(PROMPT + documents), user("go")]
    recognised = view_of(*messages, movable=False)
    counter = TokenCounter(bytes_over_four)
    found = moved_material(recognised, material(recognised, (), counter), counter)
    assert found is not None
    assert [(e.kind.value, e.lead) for e in found.preamble] == [
        ("system", "You are kind.\nRules follow.\n"), ("standing", documents),
    ]  # fmt: skip
    assert not found.documents
    assert [item.text for item in recognised.retrieved()] == [item.text for item in recognised.system[0].standing] != []


@pytest.mark.parametrize("content", [PROMPT, [text_part(PROMPT), text_part("More.")]])
def test_what_a_message_says_beside_its_text_is_a_part_of_it(content: object) -> None:
    plain, named = moved(system(content), user("go")), moved(system(content, name="bob"), user("go"))
    assert plain is not None
    assert named is not None
    assert plain.preamble[0].parts[0].digest != named.preamble[0].parts[0].digest
    assert plain.preamble[0].parts[1:] == named.preamble[0].parts[1:]

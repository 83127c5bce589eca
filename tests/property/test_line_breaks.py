"""Lines that a client wrote apart stay apart: whatever moves, the parts of a message joined with nothing between them
hold the client's lines and no others, and every byte once."""

from collections import Counter
from collections.abc import Sequence
from itertools import product

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from proxy.protocol.recognition import TAG_OPEN
from tests.examples import examples, for_every
from tests.fidelity.checker import check
from tests.fidelity.words import AS_SAID
from tests.talk import Body, Talk, assistant, chat, sent, system, user

BREAKS = st.sampled_from(["\n", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\n \n", " \n"])
SAID = ["# Context", "Answer from these documents.", "If it is not in the context, say so.", "Be exact.  ", "- one"]
CLOCKS = ["Current time: 10:0{}", "It is 09:1{} now.", "Tickets: {}", "Uptime: {} s", "Date: 2026-11-2{}", "Build {}"]


@st.composite
def templates(draw: st.DrawFn) -> tuple[str, str, str]:
    """A system prompt with a place for documents and for numbers that change, what stands between two documents, and
    how one is written."""
    lines = draw(st.lists(st.sampled_from([*SAID, *CLOCKS]), max_size=8, unique=True))
    at = draw(st.integers(0, len(lines)))
    blocks = [*lines[:at], "@", *lines[at:]]
    text = blocks[0]
    for block in blocks[1:]:
        text += draw(BREAKS) + block
    form = draw(st.sampled_from(['<document id="{0}">\n{1}\n</document>', '<doc source="{0}">{1}</doc>']))
    around = draw(st.sampled_from(["@", "@", "<documents>\n@\n</documents>"]))
    text = text.replace("@", around) + draw(st.sampled_from(["", "", "\n", "\n\n", "\r\n"]))
    return text, draw(st.sampled_from(["\n", "\n\n", "\n\n\n", "\n \n"])), form


def joined(body: Body) -> str:
    """The system message as a provider reads it that joins parts with nothing between them."""
    content = body["messages"][0]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def lines_of(text: str) -> set[str]:
    return {line.strip() for line in text.split("\n") if line.strip()}


def tag_of(body: Body) -> str:
    tags = [m["content"] for m in body["messages"] if str(m["content"]).startswith(TAG_OPEN)]
    return "".join(tag.removeprefix(TAG_OPEN).removesuffix("\n</stratiform-context>") for tag in tags)


def hold(talk: Talk, bodies: Sequence[Body]) -> bool:
    """One session under the rule; whether anything moved."""
    has_moved = False
    for body in bodies:
        after = sent(talk.send(body))
        assert check(body, after, mode="tier", profile="anthropic") == []
        own, now, tag = joined(body), joined(after), tag_of(after)
        assert lines_of(now) <= lines_of(own)
        assert lines_of(tag) <= lines_of(own)
        if not tag:
            assert Counter(now) == Counter(own)
        visible = Counter(now + tag)
        assert {c: n for c, n in visible.items() if not c.isspace()} == {
            c: n for c, n in Counter(own).items() if not c.isspace()
        }
        has_moved = has_moved or now != own
    return has_moved


def texts(template: str, gap: str, form: str, sets: Sequence[Sequence[str]]) -> list[str]:
    """The system prompt with each of these sets of documents."""
    found = []
    for number, names in enumerate(sets):
        documents = [form.format(name, f"{name} says " + f"this and that of {name}, " * 30) for name in names]
        found.append(template.replace("@", gap.join(documents)).replace("{}", str(number)))
    return found


def session(prompts: Sequence[str]) -> list[Body]:
    turns: list[Body] = []
    found = []
    for number, prompt in enumerate(prompts):
        found.append(chat(system(prompt), *turns, user(f"question {number}")))
        turns += [user(f"question {number}"), assistant("I see.")]
    return found


SETS = st.lists(
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True), min_size=3, max_size=5
)  # fmt: skip
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@given(templates(), SETS, st.sampled_from(["economic", "classic"]))
@settings(max_examples=examples(400), deadline=None, suppress_health_check=SLOW)
def test_lines_stay_apart(template: tuple[str, str, str], sets: list[list[str]], policy: str) -> None:
    event(f"moved: {hold(Talk(policy=policy), session(texts(*template, sets)))}")


@for_every(
    product(
        [
            "Answer from these documents.\n\n@\n\nIf it is not in the context, say so.",
            "# Context\n\n@",
            "# Context\n@\nCurrent time: 10:0{}",
            "# Context\nCurrent time: 10:0{}\n@\nBe exact.",
            "Current time: 10:0{}\n@\nBe exact.\nIt is 09:1{} now.",
            "@\n\nBe exact.\n",
            "# Context\n\n@\n\nBe exact.\n",
        ],
        ["\n", "\n\n"],
    )
)
def test_documents_move_and_are_read_again(template: str, gap: str) -> None:
    sets = ["abc", "bcd", "cde", "dec", "ced", "edc"]
    rules = "" if template.startswith("@") else "Be kind.\n" * 60
    bodies = session(texts(rules + template, gap, '<doc id="{0}">\n{1}\n</doc>', sets))
    talk = Talk()
    assert hold(talk, bodies)


def test_lines_at_both_ends_of_the_text_in_front_of_documents_move() -> None:
    template = (
        "Current time: 10:0{}\n# Context\nAnswer from these documents.\nTickets: {}\n"
        "If it is not in the context, say so.\nIt is 09:1{} now.\n@"
    )
    sets = [["a"], ["a", "b"], ["b"], ["a", "b"], ["a", "b"]]
    assert hold(Talk(), session(texts(template, "\n", '<document id="{0}">\n{1}\n</document>', sets)))


def test_documents_that_stand_first_stay_where_nothing_would_keep_them_apart() -> None:
    prompts = texts("@\n\nBe exact.", "\n\n", '<doc id="{0}">{1}</doc>', ["ab", "bc", "ca", "cb"])
    assert not hold(Talk(), session(prompts))


@for_every(
    product(["Here are the files:\n", "Here are the files:\n\n", "Here are the files:\r\n", ""], ["", "\n", "\n\n"])
)
def test_files_stay_apart_from_their_opening(opening: str, gap: str) -> None:
    talk, turns, parts = Talk(), [], 0
    for number in range(6):
        files = [f"{name}.py\n```\n{name} = {number if name == 'b' else 0}\n{'x = 1' * 200}\n```\n" for name in "abc"]
        shown = user(opening + gap.join(files))
        body = chat(system("Be kind."), shown, assistant("Ok."), *turns, user(f"question {number}"))
        after = sent(talk.send(body))
        assert check(body, after, mode="tier", profile="anthropic") == []
        own = lines_of(shown["content"])
        for message in after["messages"]:
            content = message["content"] if isinstance(message["content"], str) else message["content"][0]["text"]
            if "```" in content:
                parts += 1
                assert lines_of(content.removeprefix(AS_SAID)) <= own
        turns += [user(f"question {number}"), assistant("I see.")]
    assert parts > 6

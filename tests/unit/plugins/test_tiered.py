"""Working and reference files of a client that sorts them by tiers."""

import json
from contextlib import suppress
from itertools import product

import pytest

from plugins.tiered import TieredRecogniser, register_recognisers
from proxy.planner import TierPlanner
from proxy.protocol.recognition import (
    CLAIM_HEADERS,
    MOST_PIECES,
    Bound,
    FileClaim,
    PieceKind,
    Recognition,
    TooMuch,
    covers,
)
from tests import assemblies
from tests.examples import for_every
from tests.growth import assert_linear
from tests.talk import RECOGNISERS, Body, Talk, assistant, chat, lines, system, user

INCLUDED = "These files are included for reference:\n\n"
WORKING = "# Working Files\n\nHere are the files:\n\n"
REFERENCE = [f"# Reference Files{tier}\n\n{INCLUDED}" for tier in (" (Stable)", "", " (L2)", " (L3)")]


def block(path: str, content: str = "x = 1\n") -> str:
    return f"{path}\n```\n{content}```"


def message(header: str, *files: str) -> str:
    return header + "\n\n".join(files)


def recognise(text: str, role: str = "user") -> Recognition | None:
    found = TieredRecogniser().recognise(role, text) if TieredRecogniser.texts.may_have(role, text) else None
    assert found is None or covers(found.cuts, len(text))
    return found


@pytest.mark.parametrize("header", [WORKING, *REFERENCE])
def test_each_file_is_a_piece(header: str) -> None:
    text = message(header, block("a.py"), block("src/b.py", ""), block("c d.md", "# c\n\ntext\n"))
    found = recognise(text)
    assert [cut.key for cut in found.cuts] == ["opening", "file:a.py", "file:src/b.py", "file:c d.md"]
    assert text[: found.cuts[0].end] == header.rstrip("\n")
    assert found.claim is (FileClaim.WORKING if header == WORKING else FileClaim.REFERENCE)


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_file_is_the_same_whatever_follows_it(end: str) -> None:
    files = [block(name) for name in "abcd"]
    shown = []
    for count in (2, 3, 4):
        text = message(WORKING, *files[:count]) + end
        found = recognise(text)
        shown.append([text[cut.start : cut.end].rstrip("\n") for cut in found.cuts if cut.kind is PieceKind.FILE])
    assert shown[2][:3] == shown[1]
    assert shown[1][:2] == shown[0]


@pytest.mark.parametrize(
    "text",
    [
        message(WORKING, block("a.md", "```\ncode\n```\n"), block("b.py")),
        message(WORKING, block("a.py"), block("a.py")),
    ],
)
def test_where_borders_are_not_clear_the_message_is_one_piece_or_no_context(text: str) -> None:
    found = recognise(text)
    assert found is None or [cut.key for cut in found.cuts] == ["files"]


@pytest.mark.parametrize(
    "text",
    [
        WORKING,
        WORKING + "no file",
        WORKING + "a.py\n```\nopen",
        message(WORKING, block("a.py")) + "\n\nAnd what does it do?",
        message("# Working Files\n\nHere are two files:\n\n", block("a.py")),
        message("", block("a.py")),
    ],
)
def test_anything_else_is_not_its_own(text: str) -> None:
    assert recognise(text) is None
    assert recognise(message(WORKING, block("a.py")), role="assistant") is None


def test_too_many_files_are_left_whole() -> None:
    with pytest.raises(TooMuch) as raised:
        recognise(message(WORKING, *(block(f"{n}.py") for n in range(MOST_PIECES + 1))))
    assert raised.value.bound is Bound.PIECES


@pytest.mark.parametrize(
    "unit", ["a.py\n```\nx\n```\n\n", "\n```", "```\n", "a" * 600 + "\n", "a.py\n```\n", "\n", " \n```\n"]
)
def test_work_grows_with_the_text(unit: str) -> None:
    def work(text: str) -> None:
        with suppress(TooMuch):
            TieredRecogniser().recognise("user", text)

    assert_linear(work, lambda size: WORKING + unit * (size // len(unit)), 100_000)


def test_only_what_changed_is_written_anew() -> None:
    """A session in which one of five working files changes with each request."""

    def cost(recognisers: tuple[object, ...]) -> float:
        talk, turns, spent = Talk(), [], 0.0
        talk.planner = TierPlanner(talk.encode, recognisers)  # type: ignore[arg-type]
        for number in range(14):
            stable = [block(f"{name}.py", lines(150, name)) for name in "abcd"]
            files = [*stable[:2], block("hot.py", lines(60, f"edit {number}")), *stable[2:]]
            body: list[Body] = [system(lines(30)), *turns, user(message(WORKING, *files)), assistant("Ok.")]
            plan = talk.send(chat(*body, user(f"q{number}")), after_s=20)
            assert plan.predicted is not None
            bill = plan.predicted
            spent += bill.read * 0.1 + bill.write * 1.25 + bill.plain
            turns += [user(f"q{number}"), assistant(lines(3, f"a{number}"))]
        texts = [m["content"] for m in json.loads(plan.body)["messages"] if isinstance(m["content"], str)]
        assert not any(CLAIM_HEADERS[FileClaim.EDITABLE] in text for text in texts)
        return spent

    assert cost((*register_recognisers(), *RECOGNISERS)) < 0.75 * cost(RECOGNISERS)


MORE_MAP = "# Repository Structure (continued)\n\n"
ENTRIES = "src/a.py:\n  f read(source)->list\n\nsrc/b.py:\n  c Reader\n"


@for_every(product(REFERENCE, ["", "\n"]))
def test_files_below_a_part_of_the_map(header: str, gap: str) -> None:
    files = [block("a.py"), block("b.py", "")]
    text = MORE_MAP + ENTRIES + gap + message(header, *files)
    found = recognise(text)
    assert [cut.key for cut in found.cuts] == ["opening", "file:a.py", "file:b.py"]
    assert text[: found.cuts[0].end] == MORE_MAP + ENTRIES + gap + header.rstrip("\n")
    assert found.claim is FileClaim.REFERENCE


@pytest.mark.parametrize(
    ("text", "name", "acknowledgement"),
    [
        (assemblies.MORE_MAP + ENTRIES, "tiered:map", assemblies.OK),
        (assemblies.MAP + ENTRIES, "tiered:map", assemblies.OK),
        (assemblies.TREE + "# File Tree (2 files)\n\na.py\nb.py", "tiered:tree", assemblies.OK),
        (assemblies.URLS + "Title\n\n" + block("a.py") + "\n---\nb", "tiered:urls", assemblies.OK_URLS),
        (assemblies.REVIEW + "2 commits\n\n```\n- a\n```", "tiered:review", assemblies.OK_REVIEW),
    ],
)
def test_what_else_has_a_header_is_one_piece(text: str, name: str, acknowledgement: str) -> None:
    found = recognise(text)
    assert (found.name, len(found.cuts), found.acknowledgements) == (name, 1, (acknowledgement,))


@pytest.mark.parametrize(
    "text",
    [
        MORE_MAP + ENTRIES + message(REFERENCE[1], block("a.py")) + "\n\nMore.",
        MORE_MAP + ENTRIES + message(REFERENCE[1], block("a.py")) + "\n\n" + message(REFERENCE[2], block("b.py")),
        MORE_MAP + "See " + message(REFERENCE[1], block("a.py")),
        MORE_MAP + ENTRIES + message(REFERENCE[1], block("a.md", "```\nx\n```\n")),
    ],
)
def test_half_of_a_match_is_none(text: str) -> None:
    found = recognise(text)
    assert len(found.cuts) == 1


def test_a_header_alone_is_nothing() -> None:
    for header in (MORE_MAP, assemblies.MAP, assemblies.TREE, assemblies.URLS, assemblies.REVIEW):
        assert recognise(header) is None
        assert recognise(header + "x", role="assistant") is None

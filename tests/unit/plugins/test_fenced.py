from collections.abc import Callable

import pytest

from plugins.fenced import FencedRecogniser, register_recognisers
from proxy.protocol.recognition import (
    MOST_PIECES,
    Bound,
    FileClaim,
    MessageKind,
    PieceKind,
    Recognition,
    TooMuch,
    covers,
)
from tests.examples import for_every

OPENING = "Here are the files you asked about:\n\n"
FILES = "a.py\n```\na\n```\n\nb.py\n```\nb\n```\n"


def recognise(text: str, role: str = "user") -> Recognition | None:
    return FencedRecogniser().recognise(role, text) if FencedRecogniser.texts.may_have(role, text) else None


def pieces(text: str) -> list[tuple[str, str]]:
    found = recognise(text)
    assert found is not None, text
    assert covers(found.cuts, len(text))
    return [(c.key, text[c.start : c.end]) for c in found.cuts if c.kind is not PieceKind.OPENING]


@for_every(
    [
        "src/a.py\n```\nx = 1\n```\n",
        "src/a.py\n```python\nx = 1\n```\n",
        "src/a.py:\n```\nx = 1\n```",
        "**src/a.py**\n```\nx = 1\n```\n",
        "`src/a.py`\n\n```\nx = 1\n```\n",
        "### src/a.py\n~~~\nx = 1\n~~~\n",
        "```src/a.py\nx = 1\n```\n",
        '```python title="src/a.py"\nx = 1\n```\n',
        "```python path=src/a.py\nx = 1\n```\n",
        "````src/a.py\n```\nx\n```\n````\n",
        '<file path="src/a.py">\nx = 1\n</file>\n',
        "<document id='1' source='src/a.py'>\nx = 1\n</document>\n",
        '<file_content name="src/a.py">x = 1</file_content>',
    ]
)
def test_every_common_form(block: str) -> None:
    text = OPENING + block
    found = recognise(text)
    assert found.form is MessageKind.CANDIDATE
    assert [key for key, _ in pieces(text)] == ["file:src/a.py"]


def test_several_files_with_what_stands_between_them() -> None:
    text = OPENING + 'a.py\n```\na\n```\n\n\nb.py\n```\nb\n```\n<file path="c.py">\nc\n</file>\n'
    assert [key for key, _ in pieces(text)] == ["file:a.py", "file:b.py", "file:c.py"]
    assert "".join(piece for _, piece in pieces(text)) == text[len(OPENING) - 1 :]


@pytest.mark.parametrize(
    "opening",
    ["", "Context:", "### Files\n", "Here are the current contents of the files in my project:", "Excerpts:\n"],
)
def test_under_an_opening_that_claims_nothing_each_file_is_a_piece(opening: str) -> None:
    found = recognise(f"{opening}\n{FILES}")
    assert [cut.key for cut in found.cuts if cut.kind is PieceKind.FILE] == ["file:a.py", "file:b.py"]
    assert found.claim is FileClaim.AS_SAID


@for_every(
    [
        "You may edit these files (reply with full new contents):",
        "These are OLD, OUTDATED versions of the files. Do NOT trust them:",
        "These files are read-only:",
        "Only the first file is mine:",
        "The files, by weight:",
        "Don't read the files:",
        "2 files:",
        "Hier sind die Dateien:",
        "请看这些文件:",
    ]
)
def test_what_another_opening_claims_is_not_known_and_the_message_stays_whole(opening: str) -> None:
    text = f"{opening}\n\n{FILES}"
    assert pieces(text) == [("files", text)]


@for_every(
    [
        ("a.py:10-40", "a.py"),
        ("a.py (part 2 of 3)", "a.py"),
        ("n.md#L10-L20", "n.md"),
        ("n.md#part-2", "n.md"),
        ("/doc?page=2", "/doc"),
        ("Guide [1/3]", "Guide"),
        ("a.py, lines 3-9", "a.py"),
        ("a.py", "a.py"),
        ("c#.md", "c#.md"),
        ("src/m0.py", "src/m0.py"),
        ("test_1.py", "test_1.py"),
        ("a.mp3", "a.mp3"),
    ]
)
def test_numbered_parts_share_the_key_of_their_source(path: str, source: str) -> None:
    text = f'{OPENING}<file path="{path}">\nx\n</file>\n'
    assert pieces(text)[0][0] == f"file:{source}"


def test_files_without_an_opening() -> None:
    assert [key for key, _ in pieces("a.py\n```\na\n```\n")] == ["file:a.py"]


def test_a_longer_fence_holds_a_shorter_one() -> None:
    text = OPENING + "README.md\n````\n# T\n```\ncode\n```\n````\n\nb.py\n```\nb\n```\n"
    assert [key for key, _ in pieces(text)] == ["file:README.md", "file:b.py"]


@for_every(
    [
        "hello",
        "",
        OPENING,
        OPENING + "a.py\n```\na\n```\nPlease fix it.",
        OPENING + "a.py\n```\na\n```\nand also\nb.py\n```\nb\n```\n",
        OPENING + "a.py\n```\nnever closed\n",
        OPENING + '<file path="a.py">\nnever closed\n',
        "x" * 801 + "\na.py\n```\na\n```\n",
        "Run this:\n```python\nx = 1\n```\n",
        "README.md\n```\n# T\n```\ncode\n```\nend\n```\n",
    ]
)
def test_where_anything_else_is_said_it_is_a_turn(text: str) -> None:
    assert recognise(text) is None


@pytest.mark.parametrize("role", ["assistant", "system", "tool"])
def test_only_users_messages_are_context(role: str) -> None:
    assert recognise(OPENING + "a.py\n```\na\n```\n", role) is None


def test_the_group_is_named_by_its_opening_so_that_the_same_message_is_known_again() -> None:
    one = recognise(OPENING + "a.py\n```\na\n```\n")
    two = recognise(OPENING + "a.py\n```\nother\n```\n\nb.py\n```\nb\n```\n")
    other = recognise("My files:\n\na.py\n```\na\n```\n")
    assert one.name == two.name != other.name


def test_a_long_text_of_fences_is_read_in_linear_time() -> None:
    text = OPENING + "".join(f"f{n}.py\n```\n{n}\n```\n\n" for n in range(MOST_PIECES - 1))
    assert len(pieces(text)) == MOST_PIECES - 1
    assert recognise("```\n" * 50_000) is None


def test_more_files_than_a_plan_can_hold_are_too_much() -> None:
    text = OPENING + "".join(f"f{n}.py\n```\n{n}\n```\n\n" for n in range(MOST_PIECES + 1))
    with pytest.raises(TooMuch) as raised:
        recognise(text)
    assert raised.value.bound is Bound.PIECES


def test_the_plugin_registers_one_recogniser() -> None:
    (one,) = register_recognisers()
    assert (one.name, one.priority) == ("fenced", 900)


def as_block(name: str) -> str:
    return f"src/{name}.py\n```\n{name} = 1\n```\n"


def as_tag(name: str) -> str:
    return f'<file path="{name}.py">\n{name}\n</file>\n'


@pytest.mark.parametrize("between", ["", "\n", "\n\n\n"])
@pytest.mark.parametrize("written", [as_block, as_tag])
def test_a_file_is_the_same_whatever_follows_it(between: str, written: Callable[[str], str]) -> None:
    whole = pieces("Here are the files:\n\n" + between.join(map(written, "abcd")))
    for count in (2, 3):
        fewer = pieces("Here are the files:\n\n" + between.join(map(written, "abcd"[:count])))
        assert fewer == whole[:count]

"""Where files begin and end in a message of files."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from tests.examples import examples, for_every, sampled
from tests.growth import assert_linear

from .chats import EDITABLE_OPENING, AiderChat
from .files import blocks, fenced, fenced_or_tagged
from .strategies import aider_chats


def message(*entries: str, opening: str = EDITABLE_OPENING) -> str:
    return opening + "".join(f"\n{entry}\n" for entry in entries)


@for_every(
    [
        ["a.py\n```\nx\n```"],
        ["a.py\n```\n```", "b.py\n```\n```"],
        ["a.py\n```\nno newline at the end```", "b.py\n```\nx\n```"],
        ["a.py\n```\n\n\n```", "b.py\n```\n\nx\n\n```"],
        ["a.md\n````\n```py\nx\n```\n````", "b.md\n````\n```\n````"],
        ["a b/ü.py\n<source>\n```\nx\n```\n</source>", "b.py\n<source>\n</source>"],
        ["a.py\n```\n    ```\n\nlast line\n```", "b.py\n```\nx\n```"],
        ["a.py\n```\nx\r\ny\r\n```", "b.py\n```\n\r\n```"],
        ["a.py\n```\nb.py\n```", "c.py\n```\nx\n```"],
    ]
)
def test_files_under_a_free_fence_are_found_exactly(entries: list[str]) -> None:
    found = fenced(message(*entries))
    assert found is not None
    assert found.opening == EDITABLE_OPENING.rstrip("\n")
    assert found.cores == tuple(entries)
    assert found.gaps == {"\n\n"}


def test_one_file_with_fence_lines_is_one_file() -> None:
    readme = "README.md\n```\ntext\n```python\nx\n```\nmore\n```"
    found = fenced(message("a.py\n```\nx\n```", readme, "b.py\n```\ny\n```"))
    assert found is not None
    assert found.cores == ("a.py\n```\nx\n```", readme, "b.py\n```\ny\n```")


def test_what_cannot_be_told_apart_is_not_taken_apart() -> None:
    one = "README.md\n```\n```\nfoo\n```"  # it goes on with what looks like another file
    two = "bar.py\n```\nbaz\n```\n```"
    found = fenced(message("a.py\n```\nx\n```", one, two, "b.py\n```\ny\n```"))
    assert found is not None
    assert found.cores == ("a.py\n```\nx\n```", f"{one}\n\n{two}", "b.py\n```\ny\n```")


def test_the_pieces_of_one_source_are_one_entry() -> None:
    one, two, other = "a.py\n```\n1\n```", "a.py:20-30\n```\n2\n```", "b.py\n```\nx\n```"
    found = fenced_or_tagged(message(one, other, two, "c.py\n```\n```"))
    assert found is not None
    assert found.cores == (f"{one}\n\n{other}\n\n{two}", "c.py\n```\n```")
    aiders = fenced(message(one, two, other))
    assert aiders is not None
    assert aiders.cores == (one, two, other)


def test_files_without_an_opening() -> None:
    found = fenced_or_tagged("src/a.py\n```\nx\n```\n\nb.py\n```\n```\n")
    assert found is not None
    assert (found.opening, found.cores) == ("", ("src/a.py\n```\nx\n```", "b.py\n```\n```"))
    assert fenced("\nsrc/a.py\n```\nx\n```\n") is None


def test_a_message_with_prose_between_is_no_message_of_files() -> None:
    assert fenced_or_tagged(message("a.py\n```\nx\n```", "and now", "b.py\n```\nx\n```")) is None
    assert fenced(message("a.py\n```\nx\n```") + "\nPlease fix it.") is None
    assert fenced("no files") is None


@pytest.mark.parametrize(
    "entries",
    [
        ["src/a.py\n```python\nx\n```", "src/b.md\n````\n```\n````"],
        ["```README.md\ntext\n```", "~~~\n".join(["docs/c.txt\n", "x\n"]) + "~~~"],
        ['<file path="a.py">\nx\n</file>', '<file path="b.py">y</file>'],
        ['<document source="x" section="y">\n<b>x</b>\n</document>', "<document>\n</document>"],
    ],
)
def test_other_forms_of_files(entries: list[str]) -> None:
    found = fenced_or_tagged("Here you are:\n\n" + "\n\n".join(entries) + "\n")
    assert found is not None
    assert found.opening == "Here you are:"
    assert found.cores == tuple(entries)


@pytest.mark.parametrize(
    "text",
    [
        "x" * 2000 + "\n\nsrc/a.py\n```\nx\n```\n",  # that is no opening but a text
        "Look:\n\nsrc/a.py\n```\nx\n```\n\nWhy?",
        "Look:\n\n```python\nx\n```\n",  # a snippet, no file
        "Look:\n\nsrc/a.py\n```\nx\n",  # never closed
    ],
)
def test_other_texts_are_no_messages_of_files(text: str) -> None:
    assert fenced_or_tagged(text) is None


def test_a_repository_map_falls_apart_into_paragraphs() -> None:
    found = blocks("Summaries.\nDo not edit.\n\na.py:\n⋮\n│x\n⋮\n\nb.py\n\nc.py:\n⋮\n")
    assert found is not None
    assert found.opening == "Summaries.\nDo not edit."
    assert found.cores == ("a.py:\n⋮\n│x\n⋮", "b.py", "c.py:\n⋮")
    assert blocks("Summaries.") is None


@settings(max_examples=examples(80), deadline=None)
@given(aider_chats(free_fence=True, least_files=1))
def test_any_files_under_a_free_fence_are_found_exactly(chat: AiderChat) -> None:
    for context in chat.contexts():
        found = blocks(context.text) if context.header == "map" else fenced(context.text)
        assert found is not None
        assert found.cores == context.entries


@settings(max_examples=examples(80), deadline=None)
@given(aider_chats(least_files=1))
def test_what_is_found_covers_the_text(chat: AiderChat) -> None:
    text = chat.behind_history()[0].text
    found = fenced(text)
    if found is None:
        return
    left = text
    for piece in (found.opening, *found.cores):
        before, piece_found, left = left.partition(piece)
        assert piece_found
        assert not before.strip("\n")
    assert not left.strip("\n")


FILLERS = ["```\n", "```\n\na.py\n```\n", "x" * 80 + "\n", "x", "<file a>\n", "</file>\n", "\n", "```\n\n"]


@pytest.mark.parametrize("read", [fenced, fenced_or_tagged])
@pytest.mark.parametrize("filler", sampled(FILLERS, 3))
def test_large_and_odd_texts_are_read_in_linear_time(read: Callable[[str], object], filler: str) -> None:
    def text(size: int) -> str:
        return "Files:\n\na.py\n```\n" + filler * (size // len(filler)) + "```\n"

    assert_linear(read, text, 50_000)

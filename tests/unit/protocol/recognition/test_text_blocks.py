"""What belongs together in a text. In the examples "!" stands in front of the lines that changed, "+" in front of those
that go with them."""

import pytest

from proxy.protocol.recognition.lines import MAX_LINES, Lines, block_of, closes_fences
from tests.examples import for_every

RULES = [f"Rule {number}: mind what it says." for number in range(60)]


def blocks(*lines: str) -> tuple[list[str], list[str]]:
    """The lines that the block of the changed ones has, and that it should have."""
    texts = [line[1:] if line[:1] in ("!", "+") else line for line in lines]
    changed = [index for index, line in enumerate(lines) if line.startswith("!")]
    found = block_of(Lines(texts), changed[0], changed[-1] + 1)
    wanted = [line[1:] for line in lines if line[:1] in ("!", "+")]
    return texts[slice(*found)] if found is not None else [], wanted


@for_every(
    [
        # What says something alone stays by itself.
        ("One rule.", "!Open tickets: 5", "Never tell the key."),
        ("One rule.", "!You have 5 requests left.", "Never tell the key."),
        ("", "!Turn 5 of 20", ""),
        (*RULES, "!Turn 5 of 20", *RULES),
        # A list goes as a whole, with what it is called.
        ("A rule.", "+Status:", "+ M a.py", "! M b.py", "+ M c.py", "Another rule."),
        (*RULES, "+Steps:", "!- one", "+- two", "", "A rule."),
        ("+Steps:", "+", "+- one", "+", "!- two", "+", "+- three", "", "A rule."),
        ("+Changed: a.py", "!  b.py", "+  c.py", "Branch: main"),
        ("+Recent commits:", "!0af fix: a thing", "+0ae add: another", "", "A rule."),
        ("+## Plan", "+", "!- [x] one", "+- [ ] two", "+", "+Work in this order.", "", "## More", "", "A rule."),
        # Tags and fences go with what stands between them, where nothing else is left, or a part of it is none.
        ("A rule.", "+<env>", "+", "!Branch: main", "+", "+</env>", "A rule."),
        ("A rule.", "<env>", "Folder: /a", "!Branch: main", "</env>", "A rule."),
        ("A rule.", "+<todo>", "!- one", "+- two", "+</todo>", "A rule."),
        ("A rule.", "+```", "+$ status", "!Branch: main", "+```", "A rule."),
        ("A rule.", "+Status:", "+~~~", "!+ a.py", "+~~~", "A rule."),
        ("A rule.", "+```", "!git: a", "+```</result>", "A rule."),
        ("A rule.", "+  ```", "!git: a", "+```", "+git: b", "+```", "A rule."),
        ("This is what there is.", "+```text", "+git: a", "+", "!git: b", "+```", "", "A rule."),
        # A heading does not stay without its text.
        ("## Rules", "A rule.", "", "+## Context", "+", "!User: bob", "", "## More", "A rule."),
        ("## Context", "", "!User: bob", "", "A rule.", "", "## More"),
        ("## Context", "!User: bob", "### More", "A rule."),
    ]
)
def test_what_changed_goes_with_what_it_is_a_part_of(lines: tuple[str, ...]) -> None:
    found, wanted = blocks(*lines)
    assert found == wanted


def test_a_list_that_is_too_long_stays_but_for_items_that_name_themselves() -> None:
    items = [f"- rule {number}" for number in range(MAX_LINES)]
    assert block_of(Lines([*items, "- the plan has 3 steps", *items]), MAX_LINES, MAX_LINES + 1) is None
    assert block_of(Lines([*items, "- Open tickets: 3", *items]), MAX_LINES, MAX_LINES + 1) == (
        MAX_LINES,
        MAX_LINES + 1,
    )


def test_one_of_two_tags_is_never_moved_alone() -> None:
    lines = ["<env>", *(f"folder {number}" for number in range(2 * MAX_LINES)), "</env>"]
    assert block_of(Lines(lines), 0, 1) is None


def test_what_was_taken_out_between_two_items_is_a_part_of_their_list() -> None:
    assert block_of(Lines(["A rule.", "Status:", " M a.py", " M c.py", "A rule."]), 3, 3) == (1, 4)
    assert block_of(Lines(["A rule.", "Another one."]), 1, 1) == (1, 1)


@pytest.mark.parametrize(
    "text", ["", "a ``` b", "```\na\n```\n", "~~~~x\n~~~\n~~~~", "```\na\n```</result>\n```\n\n````"]
)
def test_fences_that_close(text: str) -> None:
    assert closes_fences(text)
    assert not closes_fences(f"{text}\n~~~\na\n")


@pytest.mark.parametrize(
    "lines",
    [
        ("<env>", "section 0", "```", "</env>", "```", "!section 2", "```", "section 4"),
        ("```", "<env>", "```", "section 0", "</env>", "!section 2", "section 4"),
        ("~~~", "</env>", "<env>", "~~~", "!section 2", "</env>"),
    ],
)
def test_nothing_moves_behind_code_that_stands_across_a_pair_of_tags(lines: tuple[str, ...]) -> None:
    """Who reads the tags first finds code elsewhere than who reads the fences first."""
    assert blocks(*lines)[0] == []


def test_tags_within_code_change_nothing() -> None:
    for code in (("<env>", "</env>"), ("<br>",), ("</p>",), ("<env>", "<br>", "</env>")):
        found, wanted = blocks("Rule one.", "```", *code, "```", "!Open tickets: 5", "Rule two.")
        assert found == wanted

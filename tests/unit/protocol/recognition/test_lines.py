import pytest

from proxy.planner.volatile_lines import overlaid
from proxy.protocol.recognition import Cut, PieceKind
from proxy.protocol.recognition.lines import (
    bare_lines,
    break_before,
    can_follow,
    lines_before,
    one_break_before,
    stay_apart,
)
from tests.examples import for_every


@for_every(
    [
        ("a\n", "\n"), ("a\n\n", "\n\n"), ("a \n \n", "\n \n"), ("a\r\n", "\n"), ("a\r\n\r\n", "\n\r\n"), ("a", ""),
        ("\n\n", "\n\n"), ("a ", ""), ("", ""),
    ]
)  # fmt: skip
def test_the_breaks_in_front_begin_at_the_end_of_the_last_line_that_says_something(before: str, breaks: str) -> None:
    assert before[break_before(before + "b", len(before)) :] == breaks


def test_breaks_in_front_do_not_reach_beyond_the_floor() -> None:
    assert break_before("a\n\n\nb", 4, 2) == 2


@pytest.mark.parametrize(("before", "one"), [("a\n\n", "\n"), ("a\r\n", "\n"), ("a", ""), ("", ""), ("\n", "\n")])
def test_one_break(before: str, one: str) -> None:
    assert before[one_break_before(before + "b", len(before)) :] == one


def test_lines_leave_the_break_behind_them_for_the_one_in_front() -> None:
    text = "a\nb\nc\n"
    assert lines_before(text, (2, 4), 4) == (2, 4)
    assert lines_before(text, (2, 4), 3) == (1, 3)
    assert lines_before(text, (0, 2), 1) == (0, 1)
    assert lines_before("a\r\nb\r\nc", (3, 6), 5) == (2, 5)
    assert lines_before(text, (1, 4), 3) == (1, 3)
    assert [bare_lines(text, lines) for lines in ((1, 3), (2, 4), (0, 1), (2, 3))] == ["b", "b\n", "a", "b"]


@pytest.mark.parametrize(
    ("before", "texts", "expected"),
    [
        ("a", ["\nb", "\n\nc"], True), ("a\n", ["b\n", "c\n"], True), ("a", ["b\n"], False), ("a", [], True),
        ("a\n", ["b\n", "c"], False), ("a\n", ["\nb", "c"], False),
    ],
)  # fmt: skip
def test_texts_that_may_follow_in_any_order(before: str, texts: list[str], expected: bool) -> None:
    assert stay_apart(before, texts) is expected


def test_texts_of_which_one_may_follow() -> None:
    assert can_follow("", ["a"])
    assert can_follow("a\n", ["b"])
    assert can_follow("a", ["\nb", "\n\nc"])
    assert not can_follow("a", ["\nb", "c"])


def test_lines_that_change_directly_in_front_of_a_document_leave_it_its_break() -> None:
    text = "Help.\none\ntwo\n<doc>\nEnd."
    document = Cut("document", PieceKind.DOCUMENT, text.index("\n<doc>"), text.index("\nEnd."))
    around = [Cut("", PieceKind.SECTION, *span) for span in ((0, document.start), (document.end, len(text)))]
    base = (around[0], document, around[1])

    def volatile(*spans: tuple[int, int]) -> list[str]:
        cuts = overlaid(base, spans, [(0, len(text))], text)
        assert "".join(text[c.start : c.end] for c in cuts) == text
        assert document in cuts
        return [text[c.start : c.end] for c in cuts if c.kind is PieceKind.VOLATILE]

    two, one = (text.index("two"), text.index("<doc>")), (text.index("one"), text.index("two"))
    assert volatile(two) == ["\ntwo"]
    assert volatile(one, two) == ["\none", "\ntwo"]
    assert volatile((one[0], two[1])) == ["\none\ntwo"]
    assert volatile((one[0], two[1] + 3)) == []

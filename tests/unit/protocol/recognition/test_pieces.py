import pytest

from proxy.protocol.recognition import (
    Cut,
    KnownTexts,
    MessageKind,
    PieceKind,
    Recognition,
    covers,
    joined,
    recognise_text,
)
from tests.examples import for_every


def cut(start: int, end: int) -> Cut:
    return Cut(f"{start}", PieceKind.FILE, start, end)


class Fixed:
    """Always says the same."""

    def __init__(self, name: str, cuts: tuple[Cut, ...] | None) -> None:
        self.name = name
        self.priority = 1
        self._cuts = cuts

    def recognise(self, role: str, text: str) -> Recognition | None:
        return None if self._cuts is None else Recognition(self.name, MessageKind.CONTEXT, self._cuts)


@for_every(
    [
        ([(0, 4)], True), ([(0, 1), (1, 4)], True), ([(0, 1), (2, 4)], False), ([(0, 2), (1, 4)], False),
        ([(1, 4)], False), ([(0, 3)], False), ([(0, 5)], False), ([(0, 4), (4, 4)], False), ([], False),
    ]
)  # fmt: skip
def test_cuts_cover_a_text_once(cuts: list[tuple[int, int]], covered: bool) -> None:
    assert covers([cut(*c) for c in cuts], 4) is covered


def test_the_first_recogniser_that_covers_the_text_is_believed() -> None:
    given = [
        Fixed("silent", None), Fixed("gap", (cut(1, 4),)), Fixed("good", (cut(0, 4),)), Fixed("late", (cut(0, 4),)),
    ]  # fmt: skip
    found = recognise_text(given, "user", "text")
    assert found.name == "good"
    assert recognise_text(given[:2], "user", "text") is None


class Notes(Fixed):
    """Says of which texts it can know anything."""

    texts = KnownTexts(roles=["user", "tool"], openings=("Notes:", "Links:"), words="[note]")


@for_every(
    [
        ("user", "Notes: a", True), ("tool", "Links: a", True), ("tool", "see [note] 1", True),
        ("assistant", "Notes: a", False), ("user", "see Notes: a", False), ("user", "", False),
    ]
)  # fmt: skip
def test_a_recogniser_is_asked_about_the_texts_that_it_can_know(role: str, text: str, asked: bool) -> None:
    plugin = Notes("notes", (cut(0, len(text)),))
    assert plugin.texts.may_have(role, text) is asked
    assert (recognise_text([plugin], role, text) is not None) is asked
    assert not text or recognise_text([Fixed("any", (cut(0, len(text)),))], role, text) is not None


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("abc", "a0-1 b1-2 c2-3"), ("aab", "a0-2 b2-3"), ("abac", "a0-3 c3-4"), ("abcbad", "a0-5 d5-6"),
        ("abacb", "a0-5"), ("oabcb", "o0-1 a1-2 b2-5"),
    ],
)  # fmt: skip
def test_the_pieces_of_one_source_are_one_with_all_that_stands_between(keys: str, expected: str) -> None:
    cuts = tuple(Cut(key, PieceKind.FILE, at, at + 1) for at, key in enumerate(keys))
    assert " ".join(f"{c.key}{c.start}-{c.end}" for c in joined(cuts)) == expected
    found = recognise_text([Fixed("pieces", cuts)], "user", keys)
    assert found.cuts == joined(cuts)


@pytest.mark.slow
def test_many_pieces_are_joined_in_linear_time() -> None:
    cuts = tuple(Cut(str(min(at, 100_000 - at)), PieceKind.FILE, at, at + 1) for at in range(100_000))
    assert [(c.start, c.end) for c in joined(cuts)] == [(0, 1), (1, 100_000)]

"""Two versions of a text, compared line by line."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.recognition.lines import differences
from tests.growth import steps_of

TEXT = st.lists(st.integers(1, 9), max_size=30)


def patched(before: list[int], after: list[int]) -> list[int]:
    """The earlier version with all differences applied to it."""
    result, position = [], 0
    for low, high, first, last in differences(before, after):
        assert (high > low) or (last > first)
        result += [*before[position:low], *after[first:last]]
        position = high
    return result + before[position:]


@given(TEXT, TEXT)
def test_with_its_differences_the_earlier_version_is_the_later_one(before: list[int], after: list[int]) -> None:
    assert patched(before, after) == after


@given(TEXT, TEXT, TEXT, TEXT, st.integers(500, 700))
def test_differences_that_are_far_apart_are_found(
    a: list[int], b: list[int], c: list[int], d: list[int], size: int
) -> None:
    between, behind = list(range(100, 100 + size)), list(range(1_000, 1_000 + size))
    before, after = [*a, *between, *b, 10, *behind], [*c, *between[1:], *d, *behind]
    assert patched(before, after) == after


def test_places_that_are_far_apart_are_found_apart() -> None:
    rules = [line for number in range(100, 1_100) for line in (number, 1)]
    assert differences([2, *rules, 3], [4, *rules, 5]) == [(0, 1, 0, 1), (2001, 2002, 2001, 2002)]


def test_another_text_differs_as_a_whole() -> None:
    assert differences(list(range(2_000)), list(range(5_000, 7_000))) == [(0, 2_000, 0, 2_000)]
    assert differences([1, *[0] * 4_000, 2], [3, *[0] * 3_000, 4]) == [(0, 4_002, 0, 3_002)]


def test_lines_that_stand_once_between_two_others_part_what_differs_there() -> None:
    assert differences([8, 1, 5, 2, 8, 1, 6, 2], [8, 3, 5, 4, 8, 1, 6, 7]) == [(1, 2, 1, 2), (3, 4, 3, 4), (7, 8, 7, 8)]


def test_lines_between_which_nothing_differs_take_hardly_any_time() -> None:
    before, after = list(range(1, 4_001)), [-line if line % 100 == 50 else line for line in range(1, 4_001)]
    assert len(differences(before, after)) == 40
    assert steps_of(lambda: differences(before, after)) < 10 * len(after)

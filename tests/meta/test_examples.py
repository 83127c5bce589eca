"""A table that is one test: every row is tried, and the one that fails is named."""

import pytest

from tests.examples import for_every


def test_every_row_of_a_table_is_tried() -> None:
    tried = []

    @for_every([1, (2, 3)])
    def of_one(row: object) -> None:
        tried.append(row)

    @for_every([(4, 5)])
    def of_two(left: int, right: int) -> None:
        tried.append(left + right)

    of_one()
    of_two()
    assert tried == [1, (2, 3), 9]


def test_the_row_that_fails_is_named() -> None:
    @for_every(["good", "bad"])
    def is_good(word: str) -> None:
        assert word == "good"

    with pytest.raises(AssertionError) as caught:
        is_good()
    assert caught.value.__notes__ == ["This is the row: 'bad'"]


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(AssertionError, match="a table without rows"):
        for_every([])

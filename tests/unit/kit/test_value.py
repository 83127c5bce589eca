"""Values: hashable and equal to their like, and made without a check at run time."""

import dataclasses

import pytest

from proxy.kit.value import dataclass, in_common


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Named:
    name: str

    def __hash__(self) -> int:
        return 7


@dataclass(slots=True)
class Counter:
    count: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Handle:
    number: int


def test_values_are_hashable_and_equal_to_their_like() -> None:
    assert {Point(1), Point(1, 0), Point(2)} == {Point(1), Point(2)}
    assert dataclasses.replace(Point(1), y=5) == Point(1, 5)
    assert dataclasses.astuple(Point(1)) == (1, 0)


def test_a_hash_of_ones_own_is_kept() -> None:
    assert hash(Named("a")) == 7


def test_what_can_be_set_is_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(Counter())


def test_what_is_compared_by_identity_is_hashed_by_it() -> None:
    one, other = Handle(1), Handle(1)
    assert len({one, other, one}) == 2


def test_no_field_is_checked_at_run_time() -> None:
    """That is what makes it fast. mypy refuses the assignment."""
    point = Point(1)
    point.x = 3  # type: ignore[misc]
    assert point.x == 3


@pytest.mark.parametrize(
    ("one", "other", "expected"), [("", "", 0), ("ab", "", 0), ("ab", "abc", 2), ("abc", "abd", 2), ("xb", "ab", 0)]
)
def test_what_two_lists_have_in_common_ends_where_they_first_differ(one: str, other: str, expected: int) -> None:
    assert in_common(one, other) == in_common(other, one) == expected

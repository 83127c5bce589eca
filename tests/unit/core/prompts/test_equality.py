"""Which values of the context are equal, and which are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.prompts.equality import equal, is_number, same
from proxy.core.prompts.prompt import Json
from tests.examples import for_every

leaves: st.SearchStrategy[Json] = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
)
anything: st.SearchStrategy[Json] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(("value", "expected"), [(1, True), (1.5, True), (True, False), ("1", False), (None, False)])
def test_a_boolean_and_a_digit_are_no_numbers(value: Json, expected: bool) -> None:
    assert is_number(value) is expected


def test_numbers_are_equal_by_their_value_and_the_same_by_their_type_too() -> None:
    assert equal(42, 42.0)
    assert not same(42, 42.0)
    assert not equal(2**53 + 1, float(2**53))


@for_every(
    [(1, True), (0, False), (1, "1"), (None, False), (None, ""), ("a", ["a"]), ([], {}), ([1], [1.0]), ([1], [True])]
)
def test_values_of_different_types_are_not_equal(one: Json, other: Json) -> None:
    assert not equal(one, other)
    assert not equal(other, one)


@given(anything)
def test_a_value_equals_itself(value: Json) -> None:
    assert equal(value, value)
    assert same(value, value)


@given(anything, anything)
def test_equality_does_not_depend_on_the_order(one: Json, other: Json) -> None:
    assert equal(one, other) == equal(other, one)
    assert same(one, other) == same(other, one)


@given(anything)
def test_a_value_with_one_more_around_it_is_another_value(value: Json) -> None:
    assert not same(value, [value])
    assert not same([value], [value, value])
    assert not same({"a": value}, {"b": value})
    assert not same({"a": value}, {"a": [value]})


@pytest.mark.slow
def test_deep_values_are_compared_without_recursion() -> None:
    one: Json = []
    other: Json = []
    for _ in range(100_000):
        one, other = [one], [other]

    assert same(one, other)
    assert not same(one, [other])

"""What conditions hold in which context, and what is refused when they are loaded. The table of all operators is
tests/golden/prompts/conditions.vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.prompts.conditions import (
    MOST_PATTERN_CHARS,
    OPERATORS,
    checked,
    compiled,
    equal,
    holds,
    is_found,
    is_number,
    same,
)
from proxy.core.prompts.context import merged
from proxy.core.prompts.prompt import Condition, ConditionError, Json
from tests.examples import for_every

CONTEXT = merged({"agent": {"name": "ann", "level": 3, "tags": ["a", "b"], "nothing": None}})


def holds_for(field: str, operator: str, value: Json = None) -> bool:
    return holds(Condition(field, operator, value), CONTEXT)


def refusal(field: str, operator: str, value: Json = None) -> str:
    with pytest.raises(ConditionError) as error:
        checked(Condition(field, operator, value))
    return error.value.code


def test_there_are_these_operators_and_no_others() -> None:
    expected = "eq ne gt lt gte lte contains in exists not_exists matches"
    assert set(expected.split()) == OPERATORS


@for_every(sorted(OPERATORS - {"not_exists"}))
def test_a_missing_field_makes_a_condition_false_whatever_its_value(operator: str) -> None:
    assert not holds_for("agent.missing", operator, 1)
    assert not holds_for("agent.name.first", operator, 1)


def test_a_missing_field_makes_not_exists_true() -> None:
    assert holds_for("agent.missing", "not_exists")
    assert not holds_for("agent.nothing", "not_exists")


def test_an_operator_that_is_not_known_is_noticed_where_the_field_is_there() -> None:
    with pytest.raises(ConditionError) as error:
        holds_for("agent.name", "like", "a")

    assert error.value.code == "invalid_operator"
    assert not holds_for("agent.missing", "like", "a")


@for_every(sorted(OPERATORS))
def test_a_field_without_a_root_of_the_context_is_refused_when_it_is_loaded(operator: str) -> None:
    for field in ("", "time.now", "Agent.name", "agent.", ".agent", "agent..name"):
        assert refusal(field, operator, 1) == "invalid_path"


def test_what_no_context_can_make_right_is_refused_when_it_is_loaded() -> None:
    assert refusal("agent.name", "like", "a") == "invalid_operator"
    assert refusal("agent.level", "gt", "3") == "invalid_type"
    assert refusal("agent.level", "lte", True) == "invalid_type"
    assert refusal("agent.level", "in", "123") == "invalid_type"
    assert refusal("agent.name", "matches", 3) == "invalid_type"
    assert refusal("agent.name", "matches", "(a") == "invalid_pattern"


@pytest.mark.parametrize(
    ("operator", "value"),
    [("eq", None), ("gt", 2), ("in", [1]), ("matches", "a+"), ("contains", "a"), ("exists", "x"), ("not_exists", 0)],
)
def test_what_may_hold_in_some_context_is_loaded_as_it_is(operator: str, value: Json) -> None:
    condition = Condition("agent.name", operator, value)

    assert checked(condition) is condition


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


def search_refusal(pattern: str, text: str) -> ConditionError:
    with pytest.raises(ConditionError) as error:
        is_found(pattern, text)
    return error.value


@for_every(
    [
        ("prod", "the product", True),
        ("^prod$", "the product", False),
        ("(?i)PROD", "prod", True),
        ("", "", True),
        ("é.ü", "é🙂ü", True),
        (r"\bprod\b", "in prod.", True),
        ("a.b", "a\nb", False),
        ("(a)(b)", "ab", True),
    ]
)
def test_a_pattern_is_found_anywhere_in_a_text(pattern: str, text: str, expected: bool) -> None:
    assert is_found(pattern, text) is expected


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{1001}", "[b-a]"])
def test_what_is_no_pattern_of_the_library_is_refused(pattern: str) -> None:
    assert search_refusal(pattern, "a").code == "invalid_pattern"


@pytest.mark.parametrize("pattern", ["a" * (MOST_PATTERN_CHARS + 1), "(a{100}){100}", ".{500}c", "(a?){1000}"])
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    assert search_refusal(pattern, "a").code == "invalid_pattern"


def test_the_size_that_is_allowed_can_be_smaller() -> None:
    compiled("a{100}", 200)
    with pytest.raises(ConditionError):
        compiled("a{100}", 50)


def test_a_long_text_is_searched_by_a_small_pattern_only() -> None:
    assert is_found("b", "a" * 64_000 + "b")
    assert search_refusal("[ab]*a[ab]{200}c", "ab" * 32_000).code == "too_long"


def test_the_text_that_a_pattern_may_look_at_shrinks_with_the_size_of_the_pattern() -> None:
    size = compiled("a{50}b").programsize

    assert not is_found("a{50}b", "a" * (1_000_000 // size))
    assert search_refusal("a{50}b", "a" * (1_000_000 // size + 1)).code == "too_long"


def test_half_a_surrogate_pair_is_a_character_like_any_other() -> None:
    assert is_found("^a.b$", "a\ud800b")
    assert is_found("\ud800", "a\ud800b")
    assert not is_found("\ud801", "a\ud800b")


def test_no_message_holds_the_pattern_or_the_text(capfd: pytest.CaptureFixture[str]) -> None:
    for error in (
        search_refusal("(secret", "text"),
        search_refusal("(?P<secret", "text"),
        search_refusal("[ab]*a[ab]{200}c", "b" * 64_000),
    ):
        assert "secret" not in str(error)
        assert "bbb" not in str(error)

    assert capfd.readouterr() == ("", "")

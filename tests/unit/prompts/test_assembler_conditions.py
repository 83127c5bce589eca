"""What conditions hold in which context, what is refused when they are loaded, and which can never hold together. The
table of all operators is tests/golden/prompts/conditions.vectors.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.prompts import Condition, ConditionError, Json, merged
from proxy.prompts.assembler import MOST_PATTERN_CHARS, OPERATORS, checked, compiled, contradiction, equal, holds, same
from tests.examples import for_every


def is_found(pattern: str, text: str) -> bool:
    return holds(Condition("custom.text", "matches", pattern), {"custom": {"text": text}})


def refusal(field: str, operator: str, value: Json = None) -> str:
    with pytest.raises(ConditionError) as error:
        checked(Condition(field, operator, value))
    return error.value.code


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


def search_refusal(pattern: str, text: str) -> ConditionError:
    with pytest.raises(ConditionError) as error:
        is_found(pattern, text)
    return error.value


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


Short = tuple[str, str, Json]


def conditions(*short: Short) -> tuple[Condition, ...]:
    return tuple(Condition(field, operator, value) for field, operator, value in short)


@for_every(
    [
        [("custom.a", "eq", 1), ("custom.a", "eq", 2)],
        [("custom.a", "eq", 1), ("custom.a", "ne", 1.0)],
        [("custom.a", "gt", 5), ("custom.a", "lt", 3)],
        [("custom.a", "gt", 5), ("custom.a", "lte", 5)],
        [("custom.a", "exists", None), ("custom.a", "not_exists", None)],
        [("custom.a", "not_exists", None), ("custom.a.b", "eq", 1)],
        [("custom.a", "eq", "text"), ("custom.a.b", "exists", None)],
        [("custom.a", "in", [1, 2]), ("custom.a", "gt", 2)],
        [("custom.a", "in", ["x", "y"]), ("custom.a", "matches", "^z")],
        [("custom.a.b", "eq", 1), ("custom.a", "eq", {"b": 2})],
    ]
)
def test_two_conditions_that_contradict_each_other_are_found(short: list[Short]) -> None:
    assert contradiction(conditions(("agent.x", "exists", None), *short)) == conditions(*short)


@pytest.mark.parametrize("short", [("custom.a", "in", []), ("custom", "not_exists", None)])
def test_a_condition_that_never_holds_is_found_alone(short: Short) -> None:
    assert contradiction(conditions(("agent.x", "exists", None), short)) == conditions(short)


def test_three_conditions_that_contradict_each_other_together_are_found() -> None:
    three = conditions(("custom.a", "gte", 5), ("custom.a", "lte", 5), ("custom.a", "ne", 5))
    assert contradiction(three) == three


@for_every(
    [
        [("custom.a", "gte", 5), ("custom.a", "lte", 5)],
        [("custom.a", "gt", 5), ("custom.b", "lt", 3)],
        [("custom.a", "eq", {"b": 1}), ("custom.a.b", "lt", 3)],
        [("custom.a.b", "not_exists", None), ("custom.a", "not_exists", None)],
        [("custom.a", "ne", True), ("custom.a", "ne", False)],
        [("custom.a", "in", [1, 2, 3]), ("custom.a", "gt", 2)],
        [("custom.a", "contains", "x"), ("custom.a", "matches", "y")],
        [("custom", "exists", None)],
        [],
    ]
)
def test_conditions_that_may_hold_together_are_not_suspected(short: list[Short]) -> None:
    assert contradiction(conditions(*short)) == ()


VALUES: st.SearchStrategy[Json] = st.sampled_from([None, True, 0, 1, 1.0, 2, "", "x", "xy", [], [1], ["x"], {"b": 1}])
LISTS: st.SearchStrategy[Json] = st.lists(VALUES, max_size=3).map(list)
NUMBERS: st.SearchStrategy[Json] = st.sampled_from([0, 1, 1.0, 2])
FIELDS = st.sampled_from(["custom.a", "custom.a.b", "custom.c"])
CONDITIONS = st.one_of(
    st.builds(Condition, FIELDS, st.sampled_from(["eq", "ne", "contains"]), VALUES),
    st.builds(Condition, FIELDS, st.sampled_from(["gt", "gte", "lt", "lte"]), NUMBERS),
    st.builds(Condition, FIELDS, st.just("in"), LISTS),
    st.builds(Condition, FIELDS, st.just("matches"), st.sampled_from(["x", "^y", ""])),
    st.builds(Condition, FIELDS, st.sampled_from(["exists", "not_exists"])),
)


@given(st.lists(CONDITIONS, max_size=5), st.dictionaries(st.sampled_from(["a", "c"]), VALUES))
def test_what_holds_in_some_context_is_never_called_a_contradiction(
    few: list[Condition], values: dict[str, Json]
) -> None:
    context = merged({"custom": values})
    try:
        is_composed = all(holds(condition, context) for condition in few)
    except ConditionError:
        return
    assert not (is_composed and contradiction(few))

"""Conditions that can never hold together are found, and others are not suspected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.prompts.conditions import contradiction, holds
from proxy.core.prompts.prompt import Condition, ConditionError, Json, merged
from tests.examples import for_every

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

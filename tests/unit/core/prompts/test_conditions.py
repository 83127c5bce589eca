"""What conditions hold in which context, and what is refused when they are loaded. The table of all operators is
tests/golden/prompts/conditions.vectors."""

import pytest

from proxy.core.prompts.conditions import OPERATORS, checked, holds
from proxy.core.prompts.context import merged
from proxy.core.prompts.failures import ConditionError
from proxy.core.prompts.prompt import Condition, Json
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

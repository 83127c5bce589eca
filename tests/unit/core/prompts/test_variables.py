"""Where the value of a variable comes from."""

import pytest

from proxy.core.prompts.context import merged
from proxy.core.prompts.failures import RenderError
from proxy.core.prompts.prompt import Json, Variable
from proxy.core.prompts.variables import resolved
from tests.examples import for_every

CONTEXT = merged({"mission": {"goal": "ship", "none": None}})


@for_every(
    [
        (Variable("goal", source="mission.goal"), "ship"),
        (Variable("goal", source="mission.goal", default="x"), "ship"),
        (Variable("goal", source="mission.other", default="x"), "x"),
        (Variable("goal", source="mission.other"), None),
        (Variable("goal", default=[1]), [1]),
        (Variable("goal"), None),
        (Variable("none", source="mission.none", required=True, default="x"), None),
        (Variable("mission", source="mission.goal"), {"goal": "ship", "none": None}),
    ]
)
def test_the_value_is_that_of_the_source_or_the_default(variable: Variable, expected: Json) -> None:
    assert resolved((variable,), CONTEXT) == {variable.name: expected}


def test_a_required_variable_without_a_value_is_missing_whatever_its_default() -> None:
    with pytest.raises(RenderError, match="goal") as error:
        resolved((Variable("goal", source="mission.goal", required=True, default="x"),), merged())

    assert "'goal'" in str(error.value)

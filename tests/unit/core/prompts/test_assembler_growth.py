"""The time of composing grows with the prompts and the context, and with nothing faster than that."""

from collections.abc import Mapping

import pytest

from proxy.core.prompts.assembler import assemble
from proxy.core.prompts.conditions import holds
from proxy.core.prompts.prompt import Condition, Json, Position, Prompt, PromptContext, exceeded_bound, merged
from proxy.core.prompts.terms import PromptTerms
from tests.growth import assert_linear

TERMS = PromptTerms(use=("*",), tools=True, plugins=True, agents=True)
POSITIONS = tuple(Position)


def registry(size: int) -> list[Prompt]:
    condition = (Condition("agent.a", "not_exists"), Condition("mission", "exists"))
    return [
        Prompt(f"p{number}", POSITIONS[number % 13], "text", number % 7, condition, is_literal=number % 2 == 0)
        for number in range(size)
    ]


def render(prompt: Prompt, context: PromptContext, variables: Mapping[str, Json]) -> str:
    return prompt.text


def nested(size: int) -> dict[str, Json]:
    value: Json = 1
    for _ in range(size):
        value = [value]
    return {str(number): number for number in range(size)} | {"deep": value, "wide": [1] * size, "text": "ab" * size}


def test_composing_grows_with_the_prompts() -> None:
    assert_linear(lambda prompts: assemble(prompts, TERMS, merged(), render), registry, 4_000)


@pytest.mark.slow
def test_extra_prompts_that_take_the_place_of_others_cost_no_more() -> None:
    def work(prompts: list[Prompt]) -> object:
        terms = PromptTerms(use=("*",), extras=tuple(prompts))
        return assemble(prompts, terms, merged(), render)

    assert_linear(work, registry, 4_000)


@pytest.mark.slow
def test_conditions_grow_with_the_context() -> None:
    def work(values: dict[str, Json]) -> None:
        context = merged({"custom": values}, {"custom": values})
        exceeded_bound(context)
        wide, text = values["wide"], values["text"]
        for condition in (
            Condition("custom.deep", "eq", values["deep"]),
            Condition("custom.wide", "eq", wide),
            Condition("custom.wide", "contains", 2),
            Condition("custom.wide", "contains", wide),
            Condition("custom.deep", "in", wide),
            Condition("custom.text", "contains", f"{text}b"),
            Condition("custom.text", "contains", "aab" * (len(str(text)) // 6)),
            Condition("custom", "eq", values),
        ):
            holds(condition, context)

    assert_linear(work, nested, 20_000)

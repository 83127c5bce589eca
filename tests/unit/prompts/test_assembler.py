"""How prompts become texts, what happens to those that cannot, and how the time of composing grows."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from proxy.prompts import (
    MOST_LEVELS,
    Composition,
    Condition,
    Json,
    Position,
    Prompt,
    PromptContext,
    PromptFailure,
    PromptTerms,
    RenderError,
    Variable,
    exceeded_bound,
    merged,
)
from proxy.prompts.assembler import assemble, chosen, holds
from tests.growth import assert_linear

ALL = PromptTerms(use=("*",))
STRICT = replace(ALL, strict=True)


def render(prompt: Prompt, context: PromptContext, variables: Mapping[str, Json]) -> str:
    if prompt.text == "broken":
        raise RenderError("the template is broken")
    return prompt.text.format(**variables)


def composed(*prompts: Prompt, terms: PromptTerms = ALL, context: PromptContext | None = None) -> Composition:
    return assemble(prompts, terms, context or merged(), render)


def prompt(prompt_id: str, text: str, position: Position = Position.SYSTEM, *conditions: Condition) -> Prompt:
    return Prompt(prompt_id, position, text, conditions=conditions)


@pytest.mark.parametrize(
    ("faulty", "why"),
    [
        (prompt("p", "p", Position.SYSTEM, Condition("agent", "like", 1)), "operator"),
        (prompt("p", "broken"), "the template is broken"),
        (Prompt("p", Position.SYSTEM, "{x}", variables=(Variable("x", required=True),)), "'x'"),
    ],
)
def test_in_strict_mode_what_cannot_be_composed_is_an_error_that_names_the_prompt(faulty: Prompt, why: str) -> None:
    with pytest.raises(PromptFailure, match=why) as error:
        composed(faulty, terms=STRICT)

    assert (error.value.prompt_id, error.value.is_client) == ("p", False)


GUARDED = prompt("guarded", "Rules.", Position.SYSTEM, Condition("mission.level", "lt", 9))
FAILING: PromptContext = merged({"mission": {"level": "high"}})


def test_a_prompt_that_fails_for_what_the_client_adds_to_the_context_is_not_left_out() -> None:
    with pytest.raises(PromptFailure) as failure:
        composed(GUARDED, terms=replace(ALL, own_context={"mission": {"level": 1}}), context=FAILING)
    assert failure.value.is_client


@pytest.mark.parametrize("own", [None, {"mission": {"level": "low"}}])
def test_a_prompt_that_fails_without_the_client_is_left_out(own: dict[str, dict[str, Json]] | None) -> None:
    found = composed(GUARDED, terms=replace(ALL, own_context=own), context=FAILING)
    assert found.skipped == {"guarded": "bad_condition"}


def test_an_extra_prompt_is_chosen_though_the_terms_use_none() -> None:
    assert chosen([prompt("a", "a")], PromptTerms(extras=(prompt("new", ""),)))[0].id == "new"


TERMS = PromptTerms(use=("*",), tools=True, plugins=True, agents=True)
POSITIONS = tuple(Position)


def registry(size: int) -> list[Prompt]:
    condition = (Condition("agent.a", "not_exists"), Condition("mission", "exists"))
    return [
        Prompt(f"p{number}", POSITIONS[number % 13], "text", number % 7, condition, is_literal=number % 2 == 0)
        for number in range(size)
    ]


def nested(size: int) -> dict[str, Json]:
    value: Json = 1
    for _ in range(MOST_LEVELS):
        value = [value]
    return {str(number): number for number in range(size)} | {"deep": value, "wide": [1] * size, "text": "ab" * size}


def test_composing_grows_with_the_prompts() -> None:
    assert_linear(lambda prompts: assemble(prompts, TERMS, merged(), render), registry, 4_000)


def test_naming_each_prompt_costs_no_more_than_naming_all() -> None:
    def work(prompts: list[Prompt]) -> object:
        return chosen(prompts, PromptTerms(use=tuple(prompt.id for prompt in prompts)))

    assert_linear(work, registry, 1_000)


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

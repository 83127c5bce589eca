"""How prompts become texts, and what happens to those that cannot."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from proxy.core.prompts.assembler import assemble
from proxy.core.prompts.composition import Composition
from proxy.core.prompts.context import merged
from proxy.core.prompts.failures import PromptFailure, RenderError
from proxy.core.prompts.inset import Inset
from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import Condition, Json, Prompt, PromptContext, Variable
from proxy.core.prompts.terms import PromptTerms

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


def test_without_prompts_nothing_is_composed() -> None:
    assert composed() == Composition()


def test_parts_are_trimmed_and_joined_by_one_blank_line_across_positions() -> None:
    found = composed(prompt("a", "  a\n"), prompt("b", "\n\nb  b\t"), prompt("c", "c", Position.EXAMPLES))

    assert found.system == "a\n\nb  b\n\nc"
    assert [part.id for part in found.parts] == ["a", "b", "c"]


def test_a_blank_prompt_is_left_out() -> None:
    found = composed(prompt("a", "a"), prompt("blank", " \n "), prompt("b", "b"))

    assert found.system == "a\n\nb"
    assert found.skipped == {"blank": "blank"}


def test_texts_stand_before_and_after_the_users_own() -> None:
    positions = (Position.LAST_USER, Position.USER_SUFFIX, Position.USER, Position.USER_PREFIX)

    found = composed(*(prompt(each.value, each.value, each) for each in positions))

    assert found.inset == Inset("user_prefix\n\nuser", "user_suffix\n\nlast_user")
    assert found.system == ""


def test_an_override_is_sent_as_it_stands_and_the_users_part_stays() -> None:
    terms = replace(ALL, override="  {not} rendered \n")

    found = composed(prompt("a", "broken"), prompt("u", "u", Position.USER), terms=terms)

    assert found.system == "  {not} rendered \n"
    assert found.inset == Inset("u")
    assert found.skipped == {}


def test_all_conditions_of_a_prompt_must_hold() -> None:
    context = merged({"agent": {"a": 1}})
    one, other = Condition("agent.a", "eq", 1), Condition("agent.b", "exists")

    assert composed(prompt("a", "a", Position.SYSTEM, one), context=context).system == "a"
    assert composed(prompt("a", "a", Position.SYSTEM, one, other), context=context).skipped == {"a": "condition"}


def test_conditions_behind_one_that_does_not_hold_are_not_asked() -> None:
    false, bad = Condition("agent.a", "exists"), Condition("agent", "gt", 1)

    found = composed(prompt("a", "a", Position.SYSTEM, false, bad), terms=STRICT)

    assert found.skipped == {"a": "condition"}


def test_what_cannot_be_composed_is_left_out_with_its_reason() -> None:
    needy = Prompt("needy", Position.SYSTEM, "{x}", variables=(Variable("x", required=True),))
    bad = prompt("bad", "bad", Position.SYSTEM, Condition("agent", "gt", 1))

    found = composed(prompt("a", "a"), bad, prompt("broken", "broken"), needy)

    assert found.system == "a"
    assert found.skipped == {"bad": "bad_condition", "broken": "render_error", "needy": "render_error"}


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


def test_in_strict_mode_the_error_of_a_clients_prompt_is_the_clients() -> None:
    extra = Prompt("p", Position.SYSTEM, "p", conditions=(Condition("agent", "gt", 1),), is_literal=True)

    with pytest.raises(PromptFailure) as error:
        composed(prompt("p", "p"), terms=replace(STRICT, extras=(extra,)))

    assert error.value.is_client


def test_a_literal_text_is_never_rendered() -> None:
    literal = Prompt("p", Position.SYSTEM, "{x} {{ y }}", is_literal=True, variables=(Variable("x", required=True),))

    assert composed(literal).system == "{x} {{ y }}"


def test_variables_of_a_prompt_are_seen_by_no_other() -> None:
    seen: list[Mapping[str, Json]] = []

    def watching(prompt: Prompt, context: PromptContext, variables: Mapping[str, Json]) -> str:
        seen.append(variables)
        assert context == merged()
        return prompt.id

    one = Prompt("one", Position.SYSTEM, "", variables=(Variable("x", default=1),))
    assemble((one, prompt("two", "")), ALL, merged(), watching)

    assert seen == [{"x": 1}, {}]


def test_only_what_is_sent_is_rendered() -> None:
    found = composed(
        prompt("tools", "broken", Position.TOOLS),
        prompt("persona:other", "broken"),
        prompt("no", "broken", Position.SYSTEM, Condition("agent.x", "exists")),
        terms=STRICT,
    )

    assert found.parts == ()
    assert found.skipped == {"no": "condition"}


def test_a_chosen_persona_without_a_prompt_is_reported() -> None:
    assert composed(terms=replace(ALL, persona="x")).skipped == {"persona:x": "missing"}


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

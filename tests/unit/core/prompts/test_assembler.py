"""How prompts become texts, and what happens to those that cannot."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from proxy.core.prompts.assembler import assemble, chosen, missing_persona
from proxy.core.prompts.composition import Composition, Inset
from proxy.core.prompts.context import merged
from proxy.core.prompts.prompt import (
    Condition,
    Json,
    Position,
    Prompt,
    PromptContext,
    PromptFailure,
    RenderError,
    Variable,
)
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


def named(prompt_id: str, position: Position = Position.SYSTEM, *, priority: int = 0, profile: str = "") -> Prompt:
    return Prompt(prompt_id, position, f"text of {prompt_id}", priority, profile=profile)


def ids(prompts: list[Prompt], terms: PromptTerms) -> list[str]:
    return [each.id for each in chosen(prompts, terms)]


def test_only_prompts_that_the_terms_use_are_chosen() -> None:
    prompts = [named("rules.a"), named("rules.b"), named("other"), named("one")]

    assert ids(prompts, PromptTerms(use=("rules.*", "one"))) == ["rules.a", "rules.b", "one"]
    assert ids(prompts, PromptTerms()) == []


def test_the_order_is_position_then_priority_then_registration() -> None:
    prompts = [
        named("user", Position.USER),
        named("b"),
        named("a"),
        named("first", priority=1),
        named("last", priority=-1),
        named("prefix", Position.SYSTEM_PREFIX, priority=-9),
    ]

    assert ids(prompts, PromptTerms(use=("*",))) == ["prefix", "first", "b", "a", "last", "user"]


def test_an_extra_prompt_takes_the_place_of_the_one_with_its_id() -> None:
    extra = named("a")

    found = chosen([named("a"), named("b")], PromptTerms(use=("*",), extras=(named("new"), extra)))

    assert [each.id for each in found] == ["a", "b", "new"]
    assert found[0] is extra


def test_of_two_extra_prompts_with_one_id_the_later_one_is_chosen() -> None:
    last = named("a")

    assert chosen([], PromptTerms(extras=(named("a"), last))) == (last,)


def test_an_extra_prompt_is_chosen_though_the_terms_use_none() -> None:
    assert ids([named("a")], PromptTerms(extras=(named("new"),))) == ["new"]


def test_of_the_personas_only_the_chosen_one_is_composed() -> None:
    prompts = [named("persona:x"), named("a"), named("persona:y")]

    assert ids(prompts, PromptTerms(use=("*",))) == ["a"]
    assert ids(prompts, PromptTerms(use=("*",), persona="y")) == ["a", "persona:y"]
    assert ids(prompts, PromptTerms(persona="x")) == ["persona:x"]


def test_the_registered_prompt_of_the_chosen_persona_gives_way_to_no_extra_prompt() -> None:
    registered = named("persona:x")
    terms = PromptTerms(persona="x", extras=(named("persona:x"), named("persona:y")))

    assert chosen([registered], terms)[0] is registered
    assert len(chosen([registered], terms)) == 1


def test_an_extra_prompt_can_be_the_chosen_persona_where_none_is_registered() -> None:
    terms = PromptTerms(persona="x", extras=(named("persona:x"),))

    assert ids([], terms) == ["persona:x"]
    assert missing_persona([], terms) == {}


def test_a_chosen_persona_without_a_prompt_is_missing() -> None:
    assert missing_persona([named("persona:y")], PromptTerms(persona="x")) == {"persona:x": "missing"}
    assert missing_persona([named("persona:y")], PromptTerms()) == {}


def test_a_prompt_of_another_profile_is_not_composed() -> None:
    prompts = [named("all"), named("edit", profile="edit"), named("chat", profile="chat")]

    assert ids(prompts, PromptTerms(use=("*",))) == ["all"]
    assert ids(prompts, PromptTerms(use=("*",), profile="chat")) == ["all", "chat"]


@pytest.mark.parametrize("flag", ["tools", "plugins", "agents"])
def test_tools_plugins_and_agents_are_composed_only_with_their_own_flag(flag: str) -> None:
    prompts = [named(each.value, each) for each in (Position.TOOLS, Position.PLUGINS, Position.AGENTS)]

    assert ids(prompts, PromptTerms(use=("*",))) == []
    assert ids(prompts, PromptTerms(use=("*",), **{flag: True})) == [flag]  # type: ignore[arg-type]


def test_an_override_leaves_out_the_system_positions_and_no_others() -> None:
    prompts = [named(each.value, each) for each in Position]
    terms = PromptTerms(use=("*",), override="mine", tools=True, plugins=True, agents=True)

    assert ids(prompts, terms) == ["user_prefix", "user", "user_suffix", "last_user"]

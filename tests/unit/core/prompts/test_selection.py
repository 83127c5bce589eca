"""Which prompts the terms choose, and in which order."""

import pytest

from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import Prompt
from proxy.core.prompts.selection import chosen, missing_persona
from proxy.core.prompts.terms import PromptTerms


def prompt(prompt_id: str, position: Position = Position.SYSTEM, *, priority: int = 0, profile: str = "") -> Prompt:
    return Prompt(prompt_id, position, f"text of {prompt_id}", priority, profile=profile)


def ids(prompts: list[Prompt], terms: PromptTerms) -> list[str]:
    return [each.id for each in chosen(prompts, terms)]


def test_only_prompts_that_the_terms_use_are_chosen() -> None:
    prompts = [prompt("rules.a"), prompt("rules.b"), prompt("other"), prompt("one")]

    assert ids(prompts, PromptTerms(use=("rules.*", "one"))) == ["rules.a", "rules.b", "one"]
    assert ids(prompts, PromptTerms()) == []


def test_the_order_is_position_then_priority_then_registration() -> None:
    prompts = [
        prompt("user", Position.USER),
        prompt("b"),
        prompt("a"),
        prompt("first", priority=1),
        prompt("last", priority=-1),
        prompt("prefix", Position.SYSTEM_PREFIX, priority=-9),
    ]

    assert ids(prompts, PromptTerms(use=("*",))) == ["prefix", "first", "b", "a", "last", "user"]


def test_an_extra_prompt_takes_the_place_of_the_one_with_its_id() -> None:
    extra = prompt("a")

    found = chosen([prompt("a"), prompt("b")], PromptTerms(use=("*",), extras=(prompt("new"), extra)))

    assert [each.id for each in found] == ["a", "b", "new"]
    assert found[0] is extra


def test_of_two_extra_prompts_with_one_id_the_later_one_is_chosen() -> None:
    last = prompt("a")

    assert chosen([], PromptTerms(extras=(prompt("a"), last))) == (last,)


def test_an_extra_prompt_is_chosen_though_the_terms_use_none() -> None:
    assert ids([prompt("a")], PromptTerms(extras=(prompt("new"),))) == ["new"]


def test_of_the_personas_only_the_chosen_one_is_composed() -> None:
    prompts = [prompt("persona:x"), prompt("a"), prompt("persona:y")]

    assert ids(prompts, PromptTerms(use=("*",))) == ["a"]
    assert ids(prompts, PromptTerms(use=("*",), persona="y")) == ["a", "persona:y"]
    assert ids(prompts, PromptTerms(persona="x")) == ["persona:x"]


def test_the_registered_prompt_of_the_chosen_persona_gives_way_to_no_extra_prompt() -> None:
    registered = prompt("persona:x")
    terms = PromptTerms(persona="x", extras=(prompt("persona:x"), prompt("persona:y")))

    assert chosen([registered], terms)[0] is registered
    assert len(chosen([registered], terms)) == 1


def test_an_extra_prompt_can_be_the_chosen_persona_where_none_is_registered() -> None:
    terms = PromptTerms(persona="x", extras=(prompt("persona:x"),))

    assert ids([], terms) == ["persona:x"]
    assert missing_persona([], terms) == {}


def test_a_chosen_persona_without_a_prompt_is_missing() -> None:
    assert missing_persona([prompt("persona:y")], PromptTerms(persona="x")) == {"persona:x": "missing"}
    assert missing_persona([prompt("persona:y")], PromptTerms()) == {}


def test_a_prompt_of_another_profile_is_not_composed() -> None:
    prompts = [prompt("all"), prompt("edit", profile="edit"), prompt("chat", profile="chat")]

    assert ids(prompts, PromptTerms(use=("*",))) == ["all"]
    assert ids(prompts, PromptTerms(use=("*",), profile="chat")) == ["all", "chat"]


@pytest.mark.parametrize("flag", ["tools", "plugins", "agents"])
def test_tools_plugins_and_agents_are_composed_only_with_their_own_flag(flag: str) -> None:
    prompts = [prompt(each.value, each) for each in (Position.TOOLS, Position.PLUGINS, Position.AGENTS)]

    assert ids(prompts, PromptTerms(use=("*",))) == []
    assert ids(prompts, PromptTerms(use=("*",), **{flag: True})) == [flag]  # type: ignore[arg-type]


def test_an_override_leaves_out_the_system_positions_and_no_others() -> None:
    prompts = [prompt(each.value, each) for each in Position]
    terms = PromptTerms(use=("*",), override="mine", tools=True, plugins=True, agents=True)

    assert ids(prompts, terms) == ["user_prefix", "user", "user_suffix", "last_user"]

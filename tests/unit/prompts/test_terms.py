"""Terms by which nothing can be composed."""

from dataclasses import replace

import pytest

from proxy.kit.errors import Forbidden
from proxy.prompts import (
    Allowed,
    ClientWish,
    OnFailure,
    Position,
    Prompt,
    PromptLayer,
    PromptRules,
    PromptTerms,
    client_terms,
    layered,
)
from tests.examples import for_every


def test_terms_that_name_no_text_are_empty_whatever_else_they_say() -> None:
    assert PromptTerms(profile="chat", tools=True, context={"custom": {"a": 1}}).is_empty


@pytest.mark.parametrize(
    "said",
    [{"use": ("system",)}, {"persona": "terse"}, {"override": "x"}, {"extras": (Prompt("a", Position.USER, "x"),)}],
)
def test_terms_that_name_a_text_are_not_empty(said: dict[str, object]) -> None:
    assert not replace(PromptTerms(), **said).is_empty  # type: ignore[arg-type]


def test_a_later_layer_wins_and_what_it_does_not_say_stays() -> None:
    base = PromptTerms(use=("a",), persona="p", strict=True)

    found = layered(base, PromptLayer(persona="q", on_failure=OnFailure.SEND_WITHOUT), PromptLayer(persona="r"))

    assert found == PromptTerms(use=("a",), persona="r", strict=True, on_failure=OnFailure.SEND_WITHOUT)


def test_layers_add_to_the_context_by_root_and_by_name() -> None:
    base = PromptTerms(context={"custom": {"a": 1, "b": 1}})

    found = layered(base, PromptLayer(context={"custom": {"b": 2}}), PromptLayer(context={"agent": {"n": 3}}))

    assert found.context == {"custom": {"a": 1, "b": 2}, "agent": {"n": 3}}


def test_a_client_that_says_nothing_changes_nothing() -> None:
    terms = PromptTerms(use=("a",), persona="p", override="o", tools=True)

    assert client_terms(terms, ClientWish()) == terms


EXTRA = Prompt("x", Position.SYSTEM, "x", is_literal=True)
WISHES = {
    "persona": (ClientWish(persona="hacker"), Allowed(personas=("hack*",))),
    "profile": (ClientWish(profile="edit"), Allowed(profiles=("*",))),
    "override": (ClientWish(override="mine"), Allowed(override=True)),
    "tools": (ClientWish(tools=True), Allowed(flags=True)),
    "plugins": (ClientWish(plugins=True), Allowed(flags=True)),
    "agents": (ClientWish(agents=True), Allowed(flags=True)),
    "context.agent": (ClientWish(context={"agent": {"a": 1}}), Allowed(context=frozenset({"agent"}))),
    "extra": (ClientWish(extras=(EXTRA,)), Allowed(extras=True)),
}
EVERYTHING = Allowed(
    override=True, extras=True, flags=True, personas=("*",), profiles=("*",), context=frozenset(("agent", "custom"))
)
_OF_ALLOWED = {"persona": "personas", "profile": "profiles", "extra": "extras", "context.agent": "context"}


@for_every(WISHES)
def test_what_a_client_asks_for_is_refused_unless_it_is_allowed(field: str) -> None:
    wish, allowed = WISHES[field]
    name = _OF_ALLOWED.get(field, "override" if field == "override" else "flags")
    all_others = replace(EVERYTHING, **{name: getattr(Allowed(), name)})  # type: ignore[arg-type]

    with pytest.raises(Forbidden) as error:
        client_terms(PromptTerms(allowed=all_others), wish)

    assert (error.value.status, error.value.code) == (403, "prompts_not_allowed")
    assert error.value.param == f"stratiform.prompts.{field}"
    assert client_terms(PromptTerms(allowed=allowed), wish) != PromptTerms(allowed=allowed)


def test_what_a_client_may_ask_for_takes_the_place_of_what_the_configuration_says() -> None:
    terms = PromptTerms(persona="p", override="o", tools=True, context={"custom": {"a": 1, "b": 1}}, allowed=EVERYTHING)
    wish = ClientWish(
        persona="q", override="mine", tools=False, agents=True, context={"custom": {"b": 2}}, extras=(EXTRA,)
    )

    found = client_terms(terms, wish)

    assert (found.persona, found.override, found.tools, found.plugins, found.agents) == (
        "q",
        "mine",
        False,
        False,
        True,
    )
    assert found.context == {"custom": {"a": 1, "b": 2}}
    assert found.extras == (EXTRA,)
    assert found.allowed == EVERYTHING


def test_a_client_may_ask_for_what_the_configuration_says_already() -> None:
    terms = PromptTerms(persona="p", profile="edit", override="o", tools=True)

    assert client_terms(terms, ClientWish(persona="p", profile="edit", override="o", tools=True, agents=False)) == terms


def test_a_persona_is_refused_where_only_others_are_allowed() -> None:
    terms = PromptTerms(persona="default", allowed=Allowed(personas=("default", "help*")))

    assert client_terms(terms, ClientWish(persona="helper")).persona == "helper"
    with pytest.raises(Forbidden):
        client_terms(terms, ClientWish(persona="admin"))


_NAMES = {"fast": ("openai/*", "gpt-5", "fast"), "gpt-5": ("openai/*", "gpt-5")}


def test_without_a_layer_everybody_has_the_same_terms() -> None:
    base = PromptTerms(use=("system",))

    assert PromptRules(base).terms_for("m", "team", "key") is base


def test_a_key_wins_over_its_team_and_a_team_over_the_model() -> None:
    rules = PromptRules(
        PromptTerms(use=("all",), persona="all", profile="all"),
        models={"m": PromptLayer(persona="model", profile="model", use=("model",))},
        teams={"team": PromptLayer(persona="team", profile="team")},
        keys={"key-1": PromptLayer(persona="key")},
    )

    found = rules.terms_for("m", "team", "key-1")

    assert (found.use, found.profile, found.persona) == (("model",), "team", "key")
    assert rules.terms_for("m", "team", "").persona == "team"
    assert rules.terms_for("m", "another", "").persona == "model"
    assert rules.terms_for("another", "another", "another") == rules.base


def test_an_alias_has_the_prompts_of_its_model_and_its_own_win() -> None:
    layers = {"fast": PromptLayer(persona="fast"), "gpt-5": PromptLayer(persona="five", tools=True)}
    rules = PromptRules(models=layers, names_of=lambda name: _NAMES.get(name, (name,)))

    assert (rules.terms_for("fast", "", "").persona, rules.terms_for("fast", "", "").tools) == ("fast", True)
    assert rules.terms_for("gpt-5", "", "").persona == "five"


def test_a_line_of_the_model_list_with_a_star_can_have_prompts() -> None:
    rules = PromptRules(
        models={"openai/*": PromptLayer(persona="line")}, names_of=lambda name: _NAMES.get(name, (name,))
    )

    assert rules.terms_for("gpt-5", "", "").persona == "line"
    assert rules.terms_for("claude", "", "").persona == ""


def test_the_most_special_pattern_of_models_wins_in_whatever_order_they_stand() -> None:
    layers = {"gpt-5-mini": PromptLayer(persona="name"), "*": PromptLayer(persona="any", agents=True),
              "gpt-*": PromptLayer(persona="family", tools=True)}  # fmt: skip

    found = PromptRules(models=layers).terms_for("gpt-5-mini", "", "")

    assert (found.persona, found.tools, found.agents) == ("name", True, True)
    assert PromptRules(models=layers).terms_for("gpt-5", "", "").persona == "family"


def test_a_layer_that_says_nothing_changes_nothing_and_one_that_says_no_does() -> None:
    allowed = Allowed(override=True, personas=("*",))
    rules = PromptRules(
        PromptTerms(tools=True, override="text", allowed=allowed),
        teams={"silent": PromptLayer(), "strict": PromptLayer(tools=False, override="", allowed=Allowed())},
    )

    assert rules.terms_for("m", "silent", "") == rules.base
    assert rules.terms_for("m", "strict", "") == PromptTerms()


def test_rules_are_empty_where_no_request_gets_anything() -> None:
    assert PromptRules().is_empty
    assert not PromptRules(PromptTerms(allowed=Allowed(extras=True))).is_empty
    assert not PromptRules(keys={"key-1": PromptLayer(use=("x",))}).is_empty

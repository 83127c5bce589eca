"""Whose requests get which prompts."""

from proxy.core.prompts.rules import PromptRules
from proxy.core.prompts.terms import Allowed, PromptLayer, PromptTerms

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


def test_the_context_of_layers_is_joined_by_root_and_by_name() -> None:
    rules = PromptRules(
        PromptTerms(context={"mission": {"name": "a", "goal": "g"}}),
        teams={"t": PromptLayer(context={"mission": {"name": "b"}, "target": {"os": "linux"}})},
    )

    found = rules.terms_for("m", "t", "").context

    assert found == {"mission": {"name": "b", "goal": "g"}, "target": {"os": "linux"}}
    assert rules.base.context == {"mission": {"name": "a", "goal": "g"}}


def test_rules_are_empty_where_no_request_gets_anything() -> None:
    assert PromptRules().is_empty
    assert not PromptRules(PromptTerms(allowed=Allowed(extras=True))).is_empty
    assert not PromptRules(keys={"key-1": PromptLayer(use=("x",))}).is_empty

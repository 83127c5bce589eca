"""Levels of a configuration on top of each other, and what a client adds to them."""

from dataclasses import replace

import pytest

from proxy.core.prompts.layers import client_terms, layered
from proxy.core.prompts.position import Position
from proxy.core.prompts.prompt import Prompt
from proxy.core.prompts.terms import Allowed, ClientWish, OnFailure, PromptLayer, PromptTerms
from proxy.errors import Forbidden
from tests.examples import for_every


def test_a_later_layer_wins_and_what_it_does_not_say_stays() -> None:
    base = PromptTerms(use=("a",), persona="p", strict=True)

    found = layered(base, PromptLayer(persona="q", on_failure=OnFailure.SEND_WITHOUT), PromptLayer(persona="r"))

    assert found == PromptTerms(use=("a",), persona="r", strict=True, on_failure=OnFailure.SEND_WITHOUT)


def test_layers_add_to_the_context_by_root_and_by_name() -> None:
    base = PromptTerms(context={"custom": {"a": 1, "b": 1}})

    found = layered(base, PromptLayer(context={"custom": {"b": 2}}), PromptLayer(context={"agent": {"n": 3}}))

    assert found.context == {"custom": {"a": 1, "b": 2}, "agent": {"n": 3}}


def test_objects_within_a_root_are_merged_name_by_name() -> None:
    base = PromptTerms(context={"custom": {"a": {"x": 1, "y": 1}}})

    found = layered(base, PromptLayer(context={"custom": {"a": {"y": 2}}}))

    assert found.context == {"custom": {"a": {"x": 1, "y": 2}}}


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

"""Levels of a configuration on top of each other."""

from proxy.core.prompts.layers import layered
from proxy.core.prompts.terms import OnFailure, PromptLayer, PromptTerms


def test_a_later_layer_wins_and_what_it_does_not_say_stays() -> None:
    base = PromptTerms(use=("a",), persona="p", strict=True)

    found = layered(base, PromptLayer(persona="q", on_failure=OnFailure.SEND_WITHOUT), PromptLayer(persona="r"))

    assert found == PromptTerms(use=("a",), persona="r", strict=True, on_failure=OnFailure.SEND_WITHOUT)


def test_layers_add_to_the_context_by_root_and_by_name() -> None:
    base = PromptTerms(context={"custom": {"a": 1, "b": 1}})

    found = layered(base, PromptLayer(context={"custom": {"b": 2}}), PromptLayer(context={"agent": {"n": 3}}))

    assert found.context == {"custom": {"a": 1, "b": 2}, "agent": {"n": 3}}

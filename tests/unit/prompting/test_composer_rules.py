"""The terms of a request follow from the rules, the client's wish, and the capability profile."""

import pytest

from proxy.core.prompts.terms import Allowed, ClientWish, PromptLayer, PromptRules, PromptTerms
from proxy.core.window.profile import Capability, CapabilityProfile, WindowRules
from proxy.errors import Forbidden
from proxy.prompting.composer import Rules, Whose

OWN = CapabilityProfile("own", Capability.CHAT, template="frame")
PLAIN = CapabilityProfile("plain", Capability.CHAT)
WINDOWS = WindowRules({"own": OWN, "plain": PLAIN}, models={"small": "own"}, allowed=("plain",))
RULES = PromptRules(
    PromptTerms(use=("base",), allowed=Allowed(profiles=("drafts", "own"))),
    teams={"red": PromptLayer(profile="strict")},
)


def terms(model: str = "m", team: str = "", profile: str = "") -> tuple[PromptTerms, CapabilityProfile | None]:
    return Rules(RULES, WINDOWS).terms_for(Whose(model, team), ClientWish(profile=profile))


def test_without_a_profile_the_terms_are_those_of_the_rules() -> None:
    assert terms() == (RULES.base, None)


def test_a_capability_profile_brings_its_name_and_its_template() -> None:
    found, profile = terms("small")
    assert (found.use, found.profile, profile) == (("base", "frame"), "own", OWN)


def test_a_profile_that_the_rules_name_stands_beside_the_capability_profile() -> None:
    found, profile = terms("small", team="red")
    assert (found.profile, profile) == ("strict", OWN)


def test_a_profile_of_the_prompts_alone_needs_their_permission() -> None:
    found, profile = terms(profile="drafts")
    assert (found.profile, profile) == ("drafts", None)
    with pytest.raises(Forbidden):
        terms(profile="nobody")


def test_a_capability_profile_needs_the_permission_of_the_windows() -> None:
    assert terms(profile="plain")[1] == PLAIN
    with pytest.raises(Forbidden):
        terms(profile="own")

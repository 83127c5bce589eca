"""Whose requests have which capability profile."""

from itertools import product

import pytest

from proxy.kit.errors import Forbidden, InvalidRequest
from proxy.prompts.window import BUILT_IN, Capability, CapabilityProfile, TokenBudget, WindowRules, budget_of
from tests.examples import for_every


def _name(profile: CapabilityProfile | None) -> str:
    return profile.name if profile is not None else "none"


def test_a_key_wins_over_its_team_a_team_over_the_model_and_the_model_over_the_default() -> None:
    rules = WindowRules(
        BUILT_IN, "chat", models={"m": "edit", "*": "chat"}, teams={"t": "completion"}, keys={"k": "chat_ops"}
    )

    assert _name(rules.profile_for("m", "t", "k")) == "chat_ops"
    assert _name(rules.profile_for("m", "t", "")) == "completion"
    assert _name(rules.profile_for("m", "u", "")) == "edit"
    assert _name(rules.profile_for("n", "u", "")) == "chat"
    assert _name(WindowRules(BUILT_IN, "chat").profile_for("n", "", "")) == "chat"


def test_an_empty_name_stands_for_no_profile() -> None:
    assert WindowRules(BUILT_IN).profile_for("m", "t", "k") is None
    assert WindowRules(BUILT_IN, "chat", teams={"t": ""}).profile_for("m", "t", "") is None


def test_a_model_is_known_by_all_of_its_names() -> None:
    rules = WindowRules(BUILT_IN, models={"gpt-5": "chat"}, names_of=lambda name: ("gpt-5", name))

    assert _name(rules.profile_for("alias", "", "")) == "chat"


def test_a_client_chooses_among_what_is_allowed() -> None:
    rules = WindowRules(BUILT_IN, "chat", allowed=("edit", "chat_*"))

    assert _name(rules.profile_for("m", "", "", "edit")) == "edit"
    assert _name(rules.profile_for("m", "", "", "chat_ops")) == "chat_ops"
    assert _name(rules.profile_for("m", "", "", "")) == "chat"


def test_a_client_may_name_the_profile_that_it_has_anyway() -> None:
    assert _name(WindowRules(BUILT_IN, "chat").profile_for("m", "", "", "chat")) == "chat"


@for_every(product([(), ("edit",)], ["completion", "unknown", " ", "*", "x" * 10_000, "\udc80"]))
def test_a_name_that_is_not_the_clients_to_choose_is_refused_alike_whether_it_exists_or_not(
    allowed: tuple[str, ...], wished: str
) -> None:
    with pytest.raises(Forbidden) as caught:
        WindowRules(BUILT_IN, "chat", allowed=allowed).profile_for("m", "", "", wished)

    assert (caught.value.code, caught.value.param) == ("profile_not_allowed", "stratiform.window.profile")
    assert caught.value.message.startswith("This key may not choose the profile '")
    assert caught.value.message.endswith("it may choose edit." if allowed else "'.")
    assert len(caught.value.message) < 150


def test_a_star_allows_every_profile_that_there_is() -> None:
    rules = WindowRules(BUILT_IN, allowed=("*",))

    assert [_name(rules.profile_for("m", "", "", name)) for name in BUILT_IN] == list(BUILT_IN)


def test_a_profile_that_could_be_chosen_and_does_not_exist_is_told_with_those_that_do() -> None:
    rules = WindowRules(BUILT_IN, allowed=("edit", "chat*", "lost"))
    with pytest.raises(InvalidRequest, match="there is no profile 'lost'; there is chat, chat_ops, edit") as caught:
        rules.profile_for("m", "", "", "lost")
    assert caught.value.status == 400


def test_rules_are_empty_where_no_request_can_have_a_profile() -> None:
    assert WindowRules(BUILT_IN).is_empty
    assert not WindowRules(BUILT_IN, allowed=("chat",)).is_empty


def test_the_built_in_profiles_keep_their_numbers() -> None:
    shown = {name: (one.window_tokens, one.output_tokens, one.margin_tokens) for name, one in BUILT_IN.items()}

    assert shown == {
        "completion": (4_096, 256, 256), "edit": (4_096, 512, 256), "chat": (None, 4_096, 256),
        "chat_ops": (None, 4_096, 256),
    }  # fmt: skip


CHAT = CapabilityProfile("chat", Capability.CHAT)
SMALL = CapabilityProfile("small", Capability.CHAT, window_tokens=1_000, output_tokens=100, margin_tokens=50)


def test_a_window_that_nobody_knows_gives_no_budget() -> None:
    assert budget_of(CHAT, None, 100) is None


@pytest.mark.parametrize(("model", "window"), [(None, 1_000), (2_000, 1_000), (500, 500)])
def test_of_two_windows_the_smaller_one_counts(model: int | None, window: int) -> None:
    assert budget_of(SMALL, model, None) == TokenBudget(window, 100, 50, window - 150)


def test_the_answer_that_the_request_wants_is_reserved() -> None:
    assert budget_of(SMALL, None, 400) == TokenBudget(1_000, 400, 50, 550)
    assert budget_of(SMALL, None, 5_000) == TokenBudget(1_000, 5_000, 50, 0)


@pytest.mark.parametrize(("scale", "tokens"), [(0.5, 425), (1.0, 850), (7.0, 850), (-1.0, 0)])
def test_a_budget_is_scaled_down_only(scale: float, tokens: int) -> None:
    assert TokenBudget(1_000, 100, 50, 850).scaled(scale).prompt_tokens == tokens

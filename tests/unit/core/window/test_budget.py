"""What is left of a window for the prompt."""

import pytest

from proxy.core.window.budget import Budget, budget_of
from proxy.core.window.profile import Capability, CapabilityProfile

CHAT = CapabilityProfile("chat", Capability.CHAT)
SMALL = CapabilityProfile("small", Capability.CHAT, window_tokens=1_000, output_tokens=100, margin_tokens=50)


def test_a_window_that_nobody_knows_gives_no_budget() -> None:
    assert budget_of(CHAT, None, 100) is None


@pytest.mark.parametrize(("model", "window"), [(None, 1_000), (2_000, 1_000), (500, 500)])
def test_of_two_windows_the_smaller_one_counts(model: int | None, window: int) -> None:
    assert budget_of(SMALL, model, None) == Budget(window, 100, 50, window - 150)


def test_the_answer_that_the_request_wants_is_reserved() -> None:
    assert budget_of(SMALL, None, 400) == Budget(1_000, 400, 50, 550)
    assert budget_of(SMALL, None, 5_000) == Budget(1_000, 5_000, 50, 0)


@pytest.mark.parametrize(("scale", "tokens"), [(0.5, 425), (1.0, 850), (7.0, 850), (-1.0, 0)])
def test_a_budget_is_scaled_down_only(scale: float, tokens: int) -> None:
    assert Budget(1_000, 100, 50, 850).scaled(scale).prompt_tokens == tokens

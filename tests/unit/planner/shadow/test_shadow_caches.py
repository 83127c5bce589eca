"""The two caches, and what a plan may risk between them."""

import pytest

from proxy.planner.shadow import ShadowCaches, cost_of, unpredicted_cost
from proxy.protocol.caches import Bill
from proxy.protocol.providers import PROFILES
from proxy.protocol.response.usage import Usage

CLAUDE = PROFILES["anthropic"]


def test_a_bill_in_tokens_at_the_plain_price() -> None:
    assert cost_of(CLAUDE, Bill(100, 10, 1, 7)) == pytest.approx(10 + 12.5 + 2 + 7)


def test_what_was_lost_may_not_be_lost_again() -> None:
    worlds = ShadowCaches.of(CLAUDE)
    fresh = worlds.regret_budget(1000.0, "economic", 0.5)
    assert fresh > 0
    worlds.sent_cost += fresh
    assert worlds.regret_budget(1000.0, "economic", 0.5) == pytest.approx(0.0)
    worlds.own_cost += 10_000.0
    assert worlds.regret_budget(1000.0, "economic", 0.5) > 10_000.0


def test_a_client_that_is_sure_to_return_is_worth_more_risk() -> None:
    worlds = ShadowCaches.of(CLAUDE)
    assert worlds.regret_budget(1000.0, "economic", 1.0) > 2 * worlds.regret_budget(1000.0, "economic", 0.6)


def test_a_report_is_compared_in_our_own_tokens() -> None:
    predicted = Bill(800, 200, 0, 0)
    as_foreseen = Usage(prompt=2000, output=1, read=1600, write_5m=400)
    assert unpredicted_cost(CLAUDE, predicted, as_foreseen) == pytest.approx(0.0)
    missed = Usage(prompt=2000, output=1, read=0, write_5m=2000)
    assert unpredicted_cost(CLAUDE, predicted, missed) == pytest.approx(1250 - (80 + 250))

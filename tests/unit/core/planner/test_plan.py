from dataclasses import FrozenInstanceError

import pytest

from proxy.core.modes import Mode
from proxy.core.planner.plan import Plan
from proxy.core.providers import ANTHROPIC
from proxy.core.request.route import Route


def test_a_plan_is_the_original_until_something_is_changed() -> None:
    plan = Plan(body=b"{}", original=b"{}", mode=Mode.TIER, reason="client-optimal")
    assert (plan.rewritten, plan.surprise, plan.ticket, list(plan.moves)) == (False, None, None, [])


def test_a_route_is_a_value() -> None:
    route = Route(scope="s", name="n", model="m", profile=ANTHROPIC)
    assert route == Route(scope="s", name="n", model="m", profile=ANTHROPIC)
    assert (route.hint, route.reminder) == ("", "")
    with pytest.raises(FrozenInstanceError):
        route.scope = "other"  # type: ignore[misc]

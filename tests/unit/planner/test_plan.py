from proxy.kit.modes import Mode
from proxy.planner.plan import Plan
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request.parsed_body import Inset
from proxy.protocol.request.reader import Route


def test_a_plan_is_the_original_until_something_is_changed() -> None:
    plan = Plan(body=b"{}", original=b"{}", mode=Mode.TIER, reason="client-optimal")
    assert (plan.rewritten, plan.surprise, plan.in_flight) == (False, None, None)


def test_a_plan_whose_body_cannot_be_written_is_the_original() -> None:
    def fail() -> bytes:
        raise ZeroDivisionError

    plan = Plan(b"{}", b"{}", Mode.TIER, "ordered", write=fail).written()
    assert (plan.body, plan.reason, type(plan.surprise)) == (b"{}", "internal-error", ZeroDivisionError)


def test_a_route_is_a_value() -> None:
    route = Route(scope="s", name="n", model="m", profile=ANTHROPIC)
    assert route == Route(scope="s", name="n", model="m", profile=ANTHROPIC)
    assert (route.hint, route.inset, route.has_texts) == ("", Inset(), False)
    assert hash(route) == hash(Route(scope="s", name="n", model="m", profile=ANTHROPIC))

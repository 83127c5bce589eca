from proxy.kit.modes import Mode
from proxy.planner.plan import Plan


def test_a_plan_is_the_original_until_something_is_changed() -> None:
    plan = Plan(body=b"{}", original=b"{}", mode=Mode.TIER, reason="client-optimal")
    assert (plan.rewritten, plan.surprise, plan.in_flight) == (False, None, None)


def test_a_plan_whose_body_cannot_be_written_is_the_original() -> None:
    def fail() -> bytes:
        raise ZeroDivisionError

    plan = Plan(b"{}", b"{}", Mode.TIER, "ordered", write=fail).written()
    assert (plan.body, plan.reason, type(plan.surprise)) == (b"{}", "internal-error", ZeroDivisionError)

import pytest

from proxy.kit.modes import Mode
from proxy.planner.plan import Plan, breakpoints
from proxy.protocol.providers import PROFILES
from tests.talk import Talk, analysis_of, assistant, chat, lines, system, user


def test_a_plan_is_the_original_until_something_is_changed() -> None:
    plan = Plan(body=b"{}", original=b"{}", mode=Mode.TIER, reason="client-optimal")
    assert (plan.rewritten, plan.surprise, plan.in_flight) == (False, None, None)


def test_a_plan_whose_body_cannot_be_written_is_the_original() -> None:
    def fail() -> bytes:
        raise ZeroDivisionError

    plan = Plan(b"{}", b"{}", Mode.TIER, "ordered", write=fail).written()
    assert (plan.body, plan.reason, type(plan.surprise)) == (b"{}", "internal-error", ZeroDivisionError)


@pytest.mark.parametrize(("name", "is_kept"), [("anthropic", False), ("openai", True), ("openai-explicit", True)])
def test_without_markers_a_prompt_is_kept_up_to_its_end_where_the_provider_sets_its_own_boundary(
    name: str, is_kept: bool
) -> None:
    talk = Talk(profile=PROFILES[name], mode=Mode.OBSERVE)
    plan = talk.send(chat(system(lines(200)), user(lines(9, "a")), assistant("b"), user(lines(9, "c"))))
    kept = [(analysis_of(plan).own.prompt.total, talk.profile.life_s)] if is_kept else []
    assert breakpoints(plan.in_flight, is_planned=False) == kept

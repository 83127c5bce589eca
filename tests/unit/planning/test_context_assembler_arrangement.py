"""What an arrangement makes of the planner's plan."""

from proxy.core.modes import Mode
from proxy.core.planner.plan import Plan
from proxy.core.reasons import Edit, Reason
from proxy.core.structured.blocks import Assembly, AssemblyKind
from proxy.planning.context_assembler import Arrangement


def arrangement(mode: Mode = Mode.OBSERVE) -> Arrangement:
    return Arrangement(
        kind=AssemblyKind.TIERED,
        body=b"{}",
        fallback=b"{}",
        mode=mode,
        assembly=Assembly(()),
        counted=lambda usage: (),
        edits={Edit.PANELS_SHOWN: 2},
        tier_tokens={"L0": 7},
    )


def plan(surprise: Exception | None = None) -> Plan:
    return Plan(b"{}", b"{}", Mode.OBSERVE, Reason.OBSERVE_MODE, surprise=surprise)


def test_the_reason_of_a_fixed_layout_takes_the_place_of_the_planner_s() -> None:
    found = arrangement().concluded(plan(), Mode.TIER)
    assert (found.reason, found.mode) == (Reason.ASSEMBLED_TIERS, Mode.TIER)


def test_without_one_the_planner_s_reason_and_mode_stay() -> None:
    found = arrangement(Mode.TIER).concluded(plan(), Mode.TIER)
    assert (found.reason, found.mode) == (Reason.OBSERVE_MODE, Mode.OBSERVE)
    assert (found.edits, found.tier_tokens) == ({Edit.PANELS_SHOWN: 2}, {"L0": 7})
    assert found.counted is not None


def test_an_error_of_the_planner_s_own_is_not_hidden() -> None:
    found = arrangement().concluded(plan(ZeroDivisionError()), Mode.TIER)
    assert found.reason == Reason.OBSERVE_MODE

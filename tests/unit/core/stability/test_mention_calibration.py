import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.stability.edit_signals import NO_SIGN, EditSignals
from proxy.core.stability.mention_calibration import Reliance, said_of

TOLD, BESIDE = EditSignals(is_named=True), EditSignals(is_beside=True)


def shown(told: bool, beside: bool, times: int = 10) -> Reliance:
    """A cohort whose requests told of a file and not of another; whether either changed."""
    reliance = Reliance()
    for _ in range(times):
        reliance.add(said_of(1.0, TOLD), is_changed=told)
        reliance.add(said_of(0.2, BESIDE), is_changed=beside)
    return reliance


def test_before_anything_was_seen_the_general_estimate_holds() -> None:
    assert Reliance().hazard(1.0, TOLD) == 1.0
    assert Reliance().hazard(0.2, BESIDE) == 0.2


def test_instructions_that_name_each_file_to_be_edited_are_taken_at_their_word() -> None:
    instructions = shown(told=True, beside=False)
    assert instructions.hazard(1.0, TOLD) > 1.5
    assert instructions.hazard(0.2, BESIDE) < 0.1


def test_files_that_are_named_in_passing_are_not_expected_to_change() -> None:
    passing = shown(told=False, beside=True)
    assert passing.hazard(1.0, TOLD) < 0.6
    assert passing.hazard(0.2, BESIDE) > 0.4


def test_files_keep_their_order() -> None:
    instructions = shown(told=True, beside=False)
    assert instructions.hazard(0.5, TOLD) < instructions.hazard(1.0, TOLD)
    assert instructions.hazard(0.1, BESIDE) < instructions.hazard(0.3, BESIDE)


def test_a_request_that_tells_of_no_file_neither_teaches_nor_is_judged() -> None:
    reliance = Reliance()
    reliance.add(said_of(1.0, NO_SIGN), is_changed=True)
    assert reliance == Reliance()
    assert shown(told=True, beside=False).hazard(0.4, NO_SIGN) == 0.4


def test_what_was_long_ago_counts_less() -> None:
    reliance = shown(told=False, beside=False, times=40)
    before = reliance.hazard(1.0, TOLD)
    for _ in range(20):
        reliance.add(said_of(1.0, TOLD), is_changed=True)
    assert reliance.hazard(1.0, TOLD) > 1.0 > before


@given(st.lists(st.tuples(st.floats(-1, 1), st.booleans()), max_size=50), st.floats(0, 3))
def test_is_a_finite_hazard(seen: list[tuple[float, bool]], hazard: float) -> None:
    reliance = Reliance()
    for said, is_changed in seen:
        reliance.add(said, is_changed=is_changed)
    for sign in (TOLD, BESIDE, NO_SIGN):
        assert 0 <= reliance.hazard(hazard, sign) <= max(hazard, -math.log(0.05) + 1e-9)


def test_whether_answers_edit_at_all_is_learnt() -> None:
    edits, explains = Reliance(), Reliance()
    for _ in range(12):
        edits.any.add(0.7, is_changed=True)
        explains.any.add(0.7, is_changed=False)
    assert explains.edits(0.7) < 0.4 < 0.8 < edits.edits(0.7) < 1
    assert Reliance().edits(0.7) == pytest.approx(0.7)

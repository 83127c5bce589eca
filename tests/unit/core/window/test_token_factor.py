"""The factor follows the provider's counts: up at once, down late, in steps, and within bounds."""

import pytest

from proxy.core.window.token_factor import LEAST, MOST, TokenFactor


def learnt(*pairs: tuple[int, int]) -> float:
    factor = TokenFactor()
    for counted, reported in pairs:
        factor.learn(counted, reported)
    return factor.value


def test_nothing_learnt_is_one() -> None:
    assert learnt() == 1.0


@pytest.mark.parametrize(
    ("reported", "value"), [(1_000, 1.0), (1_001, 1.05), (1_050, 1.05), (1_051, 1.1), (930, 1.0), (920, 0.95)]
)
def test_the_factor_is_the_next_step_above_the_ratio_and_moves_down_late(reported: int, value: float) -> None:
    assert learnt((1_000, reported)) == value


def test_reports_that_waver_do_not_move_the_factor() -> None:
    factor = TokenFactor()
    values = set()
    for number in range(200):
        factor.learn(10_000, 11_000 + (-1) ** number * 300)
        values.add(factor.value)
    assert factor.value == 1.15
    assert len(values) == 1


def test_newer_reports_count_more() -> None:
    assert learnt(*[(1_000, 1_300)] * 5, *[(1_000, 1_000)] * 60) == 1.05


@pytest.mark.parametrize(("reported", "value"), [(9_000, MOST), (1, LEAST)])
def test_an_absurd_report_counts_as_the_bound(reported: int, value: float) -> None:
    assert learnt((1_000, reported)) == value


@pytest.mark.parametrize("pair", [(499, 900), (1_000, 0), (1_000, -5), (0, 0), (1_000, 10**12)])
def test_a_short_prompt_and_a_report_that_is_none_teach_nothing(pair: tuple[int, int]) -> None:
    assert learnt(pair) == 1.0

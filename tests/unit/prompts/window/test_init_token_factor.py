"""The factor follows the provider's counts and refusals: up at once, down late, in steps, and within bounds."""

import pytest

from proxy.prompts.window import LEAST_FACTOR, MOST_FACTOR, TokenFactor


def learnt(*pairs: tuple[int, int]) -> float:
    factor = TokenFactor()
    for counted, reported in pairs:
        factor.learn(counted, reported)
    return factor.value


def test_nothing_learnt_is_one() -> None:
    assert learnt() == 1.0


@pytest.mark.parametrize(
    ("reported", "value"), [(1_000, 1.0), (1_001, 1.05), (1_050, 1.05), (1_051, 1.1), (930, 0.95), (900, 0.9)]
)
def test_the_factor_is_the_next_step_above_the_ratio(reported: int, value: float) -> None:
    assert learnt((1_000, reported)) == value


def test_reports_that_waver_do_not_move_the_factor() -> None:
    factor = TokenFactor()
    values = set()
    for number in range(200):
        factor.learn(10_000, 11_000 + (-1) ** number * 300)
        values.add(factor.value)
    assert values == {1.15}


def test_it_goes_up_at_once_and_down_when_sixteen_reports_agree() -> None:
    assert learnt((1_000, 1_000), (1_000, 1_300)) == 1.3
    assert learnt((1_000, 1_300), *[(1_000, 1_000)] * 15) == 1.3
    assert learnt((1_000, 1_300), *[(1_000, 1_000)] * 16) == 1.0


def test_short_prompts_say_less_than_long_ones() -> None:
    assert learnt((1_000, 1_600)) == 1.6
    assert learnt((1_000, 1_600), (10_000, 12_000), (4_000, 7_600)) == 1.2
    assert learnt((10_000, 12_000), (5_000, 6_500)) == 1.3


def test_a_refusal_that_names_the_tokens_is_a_measurement() -> None:
    factor = TokenFactor()
    factor.refused(6_000, 7_700)
    assert (factor.value, factor.is_guess) == (1.3, False)
    # Its cause is another one where the model counts no more than was believed.
    factor.refused(6_000, 6_500)
    factor.refused(6_000, 10**12)
    assert (factor.value, factor.version) == (1.3, 1)


def test_one_that_names_none_is_a_guess_until_the_next_report() -> None:
    factor = TokenFactor()
    factor.learn(10_000, 10_000)
    factor.refused(6_000, None)
    assert (factor.value, factor.measured, factor.is_guess) == (MOST_FACTOR, 1.0, True)
    factor.learn(3_000, 3_900)
    assert (factor.value, factor.is_guess) == (1.3, False)
    unsure = TokenFactor()
    unsure.refused(0, None)
    assert unsure.value == 1.0


@pytest.mark.parametrize(("reported", "value"), [(9_000, MOST_FACTOR), (1, LEAST_FACTOR)])
def test_an_absurd_report_counts_as_the_bound(reported: int, value: float) -> None:
    assert learnt((1_000, reported)) == value


@pytest.mark.parametrize("pair", [(499, 900), (1_000, 0), (1_000, -5), (0, 0), (1_000, 10**12)])
def test_a_short_prompt_and_a_report_that_is_none_teach_nothing(pair: tuple[int, int]) -> None:
    assert learnt(pair) == 1.0


def test_the_newer_of_two_versions_is_adopted() -> None:
    old, new = TokenFactor(), TokenFactor()
    old.learn(1_000, 1_000)
    new.adopt(old.packed())
    new.refused(1_000, 1_500)
    old.adopt(new.packed())
    assert (old.value, old.version) == (1.5, 2)
    new.adopt({"": b"[1, false, [[9000, 0.9]]]"})
    assert new.value == 1.5


@pytest.mark.parametrize("blob", [b"", b"x", b"7", b"[1]", b'[1, false, [["x"]]]', b"[null, 1, []]", b"{}"])
def test_what_cannot_be_read_is_passed_over(blob: bytes) -> None:
    factor = TokenFactor()
    factor.adopt({"": blob})
    assert (factor.value, factor.version) == (1.0, 0)

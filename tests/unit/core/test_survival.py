import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.recognition import PieceKind
from proxy.core.survival import NAMED_IN_PROMPT, BreakRanks, change_hazard, fixed_hazard
from proxy.core.words import Claim


def chance(hazard: float) -> float:
    return 1 - math.exp(-hazard)


class TestChangeHazard:
    def test_a_file_that_just_changed_is_likelier_to_change_again(self) -> None:
        by_age = [change_hazard(PieceKind.FILE, Claim.EDITABLE, age) for age in range(8)]
        assert by_age[0] > 2 * by_age[1]
        assert all(a >= b for a, b in pairwise(by_age))

    def test_a_map_changes_more_often_than_a_file_and_a_read_only_file_hardly(self) -> None:
        file, outline, reference = (
            change_hazard(PieceKind.FILE, Claim.EDITABLE, 3),
            change_hazard(PieceKind.SYMBOL, Claim.MAP, 3),
            change_hazard(PieceKind.FILE, Claim.READ_ONLY, 3),
        )
        assert reference < file < outline

    def test_a_named_file_is_about_to_change_and_a_read_only_one_is_not(self) -> None:
        named = change_hazard(PieceKind.FILE, Claim.EDITABLE, 3, NAMED_IN_PROMPT)
        assert chance(named) == pytest.approx(NAMED_IN_PROMPT)
        plain = change_hazard(PieceKind.FILE, Claim.READ_ONLY, 3)
        assert change_hazard(PieceKind.FILE, Claim.READ_ONLY, 3, NAMED_IN_PROMPT) == plain

    @given(
        st.sampled_from(PieceKind), st.sampled_from(Claim), st.integers(0, 1000), st.floats(0, 1),
    )  # fmt: skip
    def test_is_a_finite_positive_hazard(self, kind: PieceKind, claim: Claim, age: int, named: float) -> None:
        assert 0 < change_hazard(kind, claim, age, named) < 10


class TestFixedHazard:
    def test_begins_with_the_prior_and_ends_with_what_was_seen(self) -> None:
        assert chance(fixed_hazard(0, 0, 0.02)) == pytest.approx(0.02)
        assert chance(fixed_hazard(99, 0, 0.9)) < 0.01
        assert chance(fixed_hazard(99, 99, 0.02)) == pytest.approx(0.98)


class TestBreakRanks:
    def test_the_past_is_expected_again(self) -> None:
        appends, rewrites = BreakRanks(0.6), BreakRanks(0.6)
        for _ in range(20):
            appends.add(0)
            rewrites.add(1)
        assert appends.survival(5)[-1] > 0.95
        assert rewrites.survival(5)[-1] < 0.1
        assert rewrites.survival(5)[-2] > 0.95

    def test_what_was_just_seen_counts_before_it_is_added(self) -> None:
        ranks = BreakRanks(0.9)
        assert ranks.survival(3, newest=2)[-1] < ranks.survival(3)[-1]
        assert len(ranks) == 0

    def test_the_newest_weigh_more(self) -> None:
        one, other = BreakRanks(0.5), BreakRanks(0.5)
        for old, new in [(0, 1)] * 1:
            for _ in range(10):
                one.add(old)
                other.add(new)
            for _ in range(10):
                one.add(new)
                other.add(old)
        assert one.survival(4)[-1] < other.survival(4)[-1]

    def test_old_ones_are_forgotten(self) -> None:
        ranks = BreakRanks(0.5)
        for _ in range(1000):
            ranks.add(1)
        assert len(ranks) == len(ranks.ranks()) < 100

    @given(st.floats(0.1, 0.95), st.lists(st.integers(0, 30), max_size=40), st.integers(0, 25))
    def test_survival_never_rises_towards_the_end(self, prior: float, seen: list[int], turns: int) -> None:
        ranks = BreakRanks(prior)
        for rank in seen:
            ranks.add(rank)
        chances = ranks.survival(turns)
        assert len(chances) == turns
        assert all(0 <= c <= 1 + 1e-9 for c in chances)
        assert all(a >= b - 1e-9 for a, b in pairwise(chances))

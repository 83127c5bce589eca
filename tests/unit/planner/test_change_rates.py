""" """

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.planner.change_rates import (
    NO_SIGN,
    CalibrationCounter,
    DecayedRate,
    EditSignals,
    HistoryDivergence,
    change_hazard,
    file_hazard,
    fixed_hazard,
    later_hazard,
    turn_survival,
)
from proxy.protocol.recognition import FileClaim, PieceKind


def test_nothing_seen_is_the_prior_and_much_seen_is_what_was_seen() -> None:
    rate = DecayedRate(prior=0.2, weight=4.0)
    assert rate.of([]) == pytest.approx(0.2)
    assert rate.of([True] * 4) == pytest.approx(0.6)
    assert rate.of([True] * 400) > 0.99


def test_newer_observations_say_more() -> None:
    rate = DecayedRate(prior=0.5, weight=1.0, decay=0.5)
    assert rate.of([False, False, True]) > 0.5 > rate.of([True, True, False])


def test_counts_that_are_kept_say_the_same_as_all_observations() -> None:
    rate, counts, seen = DecayedRate(0.3, 2.0, 0.9), (0.0, 0.0), [True, False, True, True]
    for happened in seen:
        counts = rate.added(counts, happened=happened)
    assert rate.share(counts[1], counts[0]) == pytest.approx(rate.of(seen))


def chance(hazard: float) -> float:
    return 1 - math.exp(-hazard)


class TestFileHazard:
    def test_a_file_that_just_changed_is_likelier_to_change_again(self) -> None:
        by_age = [file_hazard(age, 2000, NO_SIGN) for age in range(8)]
        assert by_age[0] > 2 * by_age[1]
        assert by_age[0] > by_age[2] > by_age[4] > by_age[7]

    def test_what_is_said_of_a_file_outweighs_its_past(self) -> None:
        quiet = file_hazard(6, 2000, NO_SIGN)
        assert file_hazard(6, 2000, EditSignals(is_hinted=True)) > 2 * quiet
        assert file_hazard(6, 2000, EditSignals(is_answered=True)) > file_hazard(6, 2000, EditSignals(is_hinted=True))
        assert (
            file_hazard(6, 2000, EditSignals(symbols=1.0)) > file_hazard(6, 2000, EditSignals(is_hinted=True)) > quiet
        )
        assert file_hazard(6, 2000, EditSignals(symbols=0.1)) == quiet
        assert file_hazard(0, 2000, EditSignals(is_beside=True)) < file_hazard(0, 2000, NO_SIGN)

    def test_the_file_with_the_prompts_words_is_likelier_to_be_edited(self) -> None:
        by_words = [file_hazard(2, 2000, EditSignals(words=share)) for share in (-0.3, 0.0, 0.2, 0.6)]
        assert by_words == sorted(by_words)
        assert by_words[-1] > 1.5 * by_words[1]

    def test_a_larger_file_is_edited_more_often(self) -> None:
        assert file_hazard(3, 20_000, NO_SIGN) > file_hazard(3, 1_000, NO_SIGN)

    @given(
        st.integers(0, 1000),
        st.integers(0, 10**7),
        st.builds(
            EditSignals, st.booleans(), st.booleans(), st.booleans(), st.floats(0, 1), st.booleans(), st.booleans()
        ),
    )
    def test_is_a_finite_positive_hazard(self, age: int, tokens: int, sign: EditSignals) -> None:
        assert 0 < file_hazard(age, tokens, sign) <= 3


class TestLaterHazard:
    def test_what_was_edited_often_will_be_again(self) -> None:
        by_rate = [later_hazard(2, 2000, rate) for rate in (0.0, 0.1, 0.3, 0.6)]
        assert by_rate == sorted(by_rate)
        assert by_rate[-1] > 2 * by_rate[0]

    @given(st.integers(0, 1000), st.integers(0, 10**7), st.none() | st.floats(0, 1))
    def test_is_a_finite_positive_hazard(self, age: int, tokens: int, rate: float | None) -> None:
        assert 0 < later_hazard(age, tokens, rate) <= 3


class TestChangeHazard:
    def test_a_map_changes_more_often_than_a_file_and_a_read_only_file_hardly(self) -> None:
        outline, reference = (
            change_hazard(PieceKind.SYMBOL, FileClaim.MAP, 3, None),
            change_hazard(PieceKind.FILE, FileClaim.READ_ONLY, 3, None),
        )
        assert reference < file_hazard(3, 2000, NO_SIGN) < outline

    @given(st.sampled_from(PieceKind), st.sampled_from(FileClaim), st.integers(0, 1000), st.none() | st.floats(0, 1))
    def test_is_a_finite_positive_hazard(self, kind: PieceKind, claim: FileClaim, age: int, rate: float | None) -> None:
        assert 0 < change_hazard(kind, claim, age, rate) < 10


class TestFixedHazard:
    def test_begins_with_the_prior_and_ends_with_what_was_seen(self) -> None:
        assert chance(fixed_hazard(0, 0, 0.02)) == pytest.approx(0.02)
        assert chance(fixed_hazard(99, 0, 0.9)) < 0.01
        assert chance(fixed_hazard(99, 99, 0.02)) == pytest.approx(0.98)


class TestTurnSurvival:
    def test_the_past_is_expected_again(self) -> None:
        appends, rewrites = [HistoryDivergence(0)] * 20, [HistoryDivergence(1)] * 20
        assert turn_survival(appends, 0.6, 5)[-1] > 0.95
        assert turn_survival(rewrites, 0.6, 5)[-1] < 0.1
        assert turn_survival(rewrites, 0.6, 5)[-2] > 0.95

    def test_a_single_break_counts(self) -> None:
        assert turn_survival([HistoryDivergence(2)], 0.9, 3)[-1] < turn_survival([], 0.9, 3)[-1]

    def test_the_newest_weigh_more(self) -> None:
        appends, rewrites = [HistoryDivergence(0)] * 10, [HistoryDivergence(1)] * 10
        assert turn_survival([*appends, *rewrites], 0.5, 4)[-1] < turn_survival([*rewrites, *appends], 0.5, 4)[-1]

    def test_a_client_that_clears_results_keeps_as_many_of_them_as_before(self) -> None:
        seen = [HistoryDivergence(messages, results=3) for messages in (5, 7, 6, 5, 6)]
        # The third result from the end stands in the tenth message from it: that one is cleared next.
        chances = turn_survival(seen, 0.9, 20, results=[1, 4, 10, 13])
        assert chances[-10] < 0.2
        assert chances[-11] > 0.9

    def test_the_first_clearing_is_believed(self) -> None:
        before = [HistoryDivergence(0)] * 5
        cleared, rewrote = HistoryDivergence(3, results=2), HistoryDivergence(3)
        results = [1, 3, 5]
        low, high = (turn_survival([*before, newest], 0.9, 9, results)[-1] for newest in (cleared, rewrote))
        assert low < 0.5 < high

    def test_one_answer_without_a_call_ends_no_habit_of_clearing(self) -> None:
        seen = [HistoryDivergence(7, results=4)] * 20
        results = [2, 4, 6, 8, 10]
        chances = turn_survival([*seen, HistoryDivergence(0)], 0.9, 12, results)
        assert chances[-8] < 0.28 < chances[-9]
        # Two in a row do.
        assert turn_survival([*seen, *[HistoryDivergence(0)] * 2], 0.9, 12, results)[-8] > 2 * chances[-8]

    @given(st.floats(0.1, 0.95), st.lists(st.integers(0, 30), max_size=40), st.integers(0, 25))
    def test_survival_never_rises_towards_the_end(self, prior: float, seen: list[int], turns: int) -> None:
        chances = turn_survival([HistoryDivergence(rank) for rank in seen], prior, turns)
        assert len(chances) == turns
        assert all(0 <= c <= 1 + 1e-9 for c in chances)
        assert all(a >= b - 1e-9 for a, b in pairwise(chances))


def test_whether_answers_edit_at_all_is_learnt() -> None:
    edits, explains = CalibrationCounter(), CalibrationCounter()
    for _ in range(12):
        edits.add(0.7, is_changed=True)
        explains.add(0.7, is_changed=False)
    assert explains.shifted(0.7) < 0.4 < 0.8 < edits.shifted(0.7) < 1
    assert CalibrationCounter().shifted(0.7) == pytest.approx(0.7)


def test_what_was_long_ago_counts_less() -> None:
    answers = CalibrationCounter()
    for _ in range(40):
        answers.add(0.7, is_changed=False)
    for _ in range(20):
        answers.add(0.7, is_changed=True)
    assert answers.shifted(0.7) > 0.6

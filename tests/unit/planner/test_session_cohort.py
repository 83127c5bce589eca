import pytest

from proxy.planner.change_rates import HistoryDivergence
from proxy.planner.session import REMEMBERED_BREAKS, ItemRecord, ItemRecords, SessionCohort, record_item, remember


@pytest.fixture
def cohort() -> SessionCohort:
    return SessionCohort(False)


class TestContinues:
    def test_a_client_with_tools_goes_on(self) -> None:
        assert SessionCohort(has_tools=True).continues() >= 0.9

    def test_nothing_is_held_against_an_unknown_client(self) -> None:
        assert SessionCohort(has_tools=False).continues() > 0.5

    def test_one_shots_are_learnt(self) -> None:
        cohort = SessionCohort(has_tools=False)
        chances = []
        for at in range(6):
            chances.append(cohort.continues())
            cohort.request(float(at), None)
        assert chances[0] > 0.5 > chances[1] > chances[2]
        assert chances[-1] < 0.2

    def test_one_session_that_went_on_tells_that_sessions_go_on(self) -> None:
        cohort = SessionCohort(has_tools=False)
        for at in range(6):
            cohort.request(float(at), None)
        cohort.continued += 1
        assert cohort.continues() >= 0.9


class TestGaps:
    def test_pauses_longer_than_the_life_lower_the_hope(self) -> None:
        quick, slow = SessionCohort(False), SessionCohort(False)
        for n in range(20):
            quick.request(n * 10.0, 10.0)
            slow.request(n * 1000.0, 1000.0)
        assert quick.returns_within(300) > 0.9
        assert slow.returns_within(300) < 0.3
        assert slow.returns_within(3600) > 0.9

    def test_one_pause_says_little_of_the_next(self, cohort: SessionCohort) -> None:
        cohort.request(1.0, None)
        assert cohort.returns_within(300, 4000.0) > 0.7
        for _ in range(5):
            cohort.request(1.0, 4000.0)
        assert cohort.returns_within(300) < 0.4

    def test_the_gap_that_has_just_ended_counts(self, cohort: SessionCohort) -> None:
        for gap in (None, 20.0, 20.0):
            cohort.request(1.0, gap)
        before = cohort.returns_within(300, 4000.0)
        assert before < cohort.returns_within(300)
        cohort.request(1.0, 4000.0)
        assert cohort.returns_within(300) == before

    def test_a_cohort_is_busier_than_its_sessions(self, cohort: SessionCohort) -> None:
        for n in range(40):
            cohort.request(1 + n * 50.0, 1000.0)
        assert cohort.shares_within(300) > 0.9 > cohort.returns_within(300)
        assert set(cohort.gaps) == {1000.0}

    def test_memory_is_bounded(self, cohort: SessionCohort) -> None:
        for n in range(10_000):
            cohort.request(float(n), 1.0)
        assert len(cohort.gaps) < 1000


class TestBreaks:
    def test_what_was_just_seen_counts_before_it_is_added(self) -> None:
        cohort = SessionCohort(has_tools=True)
        assert cohort.turn_survival(3, HistoryDivergence(2), ())[-1] < cohort.turn_survival(3, None, ())[-1]
        assert len(cohort.breaks) == 0

    def test_a_client_with_tools_appends(self) -> None:
        with_tools, without = (SessionCohort(has_tools).turn_survival(3, None, ())[-1] for has_tools in (True, False))
        assert with_tools > without

    def test_old_breaks_are_forgotten(self, cohort: SessionCohort) -> None:
        for messages in range(1000):
            remember(cohort.breaks, HistoryDivergence(messages), REMEMBERED_BREAKS)
        assert (cohort.breaks[-1].messages, len(cohort.breaks)) == (999, REMEMBERED_BREAKS)


class TestItemRecords:
    def test_what_was_seen_last_is_kept(self) -> None:
        records: ItemRecords = {}
        for digest, age in ((b"1", 0), (b"1", 1), (b"2", 0)):
            record_item(records, "k", ItemRecord(digest, age))
        assert (records["k"].digest, records["k"].age) == (b"2", 0)
        assert set(records) == {"k"}

    def test_a_new_record_begins_with_the_rate_that_is_told_of_it(self) -> None:
        records: ItemRecords = {}
        record_item(records, "k", ItemRecord(b"1", 0, 0.5))
        record_item(records, "k", ItemRecord(b"1", 1, 0.9))
        assert 0.3 < records["k"].rate < 0.5

    def test_files_that_are_written_another_way_have_not_changed(self) -> None:
        records: ItemRecords = {}
        record_item(records, "k", ItemRecord(b"1", 0, 0.5))
        record_item(records, "k", ItemRecord(b"2", 1), is_rewrapped=True)
        assert records["k"].rate < 0.5

    def test_item_records_are_bounded(self) -> None:
        records: ItemRecords = {}
        for number in range(10_000):
            record_item(records, str(number), ItemRecord(b"d"))
        record_item(records, "k" * 1000, ItemRecord(b"d"))
        assert "0" in records
        assert "9999" not in records
        assert all(len(key) < 1000 for key in records)

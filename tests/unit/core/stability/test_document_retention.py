import math

import pytest

from proxy.core.stability.document_retention import DocumentOdds, DocumentSign

NEW, SECOND, OLD = (DocumentSign(0.0, run) for run in (1, 2, 5))
ASKED, OTHER = DocumentSign(0.0, 1, asked=0.3), DocumentSign(0.0, 1, asked=-0.3)


def taught(signs: list[DocumentSign], kept: list[bool], requests: int = 20) -> DocumentOdds:
    odds = DocumentOdds()
    for _ in range(requests):
        odds.learn(signs, kept)
    return odds


def test_before_anything_was_seen_what_stayed_long_stays_and_what_was_asked_for_does() -> None:
    odds = DocumentOdds()
    assert odds.chance(OLD) > odds.chance(SECOND) > odds.chance(NEW)
    assert odds.chance(ASKED) > odds.chance(NEW) > odds.chance(OTHER)
    assert odds.chance(DocumentSign(-0.5, 1)) > odds.chance(DocumentSign(0.5, 1))


def test_a_query_of_the_last_two_questions_is_learnt() -> None:
    """What a question brought stands in two requests, and not in the third."""
    odds = taught([NEW, SECOND], [True, False])
    assert odds.chance(NEW) > 0.8
    assert odds.chance(SECOND) < 0.2


def test_ranks_are_learnt() -> None:
    first, last = DocumentSign(-0.5, 1), DocumentSign(0.5, 1)
    odds = taught([first, last], [False, True])
    assert odds.chance(first) < 0.3 < 0.7 < odds.chance(last)


def test_little_evidence_says_little_and_nothing_is_certain() -> None:
    assert 0.2 < taught([NEW], [True], requests=1).chance(NEW) < 0.8
    assert taught([NEW], [True], requests=500).chance(NEW) <= 0.97
    assert taught([NEW], [False], requests=500).chance(NEW) >= 0.03


def test_sets_that_stay_as_a_whole_every_other_time_are_learnt() -> None:
    odds = DocumentOdds()
    for _ in range(10):
        odds.learn([NEW, NEW], [True, True])
        odds.learn([SECOND, SECOND], [False, False])
    assert odds.stays([NEW, NEW]) > 0.7
    assert odds.stays([SECOND, SECOND]) < 0.1
    assert odds.stays([NEW, SECOND]) > 0.7


def test_documents_that_stay_as_a_whole_say_less_of_each() -> None:
    alone, together = DocumentOdds(), taught([SECOND] * 3, [True] * 3)
    for _ in range(20):
        alone.learn([SECOND, SECOND, OLD], [True, True, False])
    assert together.stays([SECOND]) > 0.8
    assert together.chance(SECOND) < alone.chance(SECOND)


def test_hazards_are_of_several_together() -> None:
    odds = DocumentOdds()
    assert odds.hazard(NEW) == pytest.approx(-0.7 * math.log(odds.chance(NEW)))


def test_the_sign_of_a_document_for_the_next_request_has_one_more_request_and_no_question() -> None:
    assert ASKED.later() == DocumentSign(0.0, 2, 0.0, 0.3)


def test_can_be_restored_but_not_from_anything_else() -> None:
    odds, other = taught([NEW, OLD], [True, False]), DocumentOdds()
    other.restore(odds.state())
    assert other.state() == odds.state()
    for state in (
        ([1.0], [1.0], [(0.0, 0.0), (0.0, 0.0)]),
        ([math.nan] * 6, [1.0] * 6, [(0.0, 0.0), (0.0, 0.0)]),
        ([0.0] * 6, [0.0] * 6, [(0.0, 0.0), (0.0, 0.0)]),
        ([0.0] * 6, [1.0] * 6, []),
    ):
        other.restore(state)
        assert other.state() == odds.state()

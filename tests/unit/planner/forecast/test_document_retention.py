import math

import pytest
from msgspec import ValidationError, msgpack

from proxy.planner.change_rates import DocumentOdds, DocumentSign
from proxy.planner.forecast import are_lasting, document_signs, read_words
from proxy.planner.observation import followed
from tests.talk import assistant, system, user, view_of

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
    odds = taught([NEW, OLD], [True, False])
    blob = msgpack.encode(odds)
    assert msgpack.decode(blob, type=DocumentOdds) == odds
    for state in (
        ([1.0], [1.0], [(0.0, 0.0), (0.0, 0.0)]),
        ([math.nan] * 6, [1.0] * 6, [(0.0, 0.0), (0.0, 0.0)]),
        ([0.0] * 6, [0.0] * 6, [(0.0, 0.0), (0.0, 0.0)]),
        ([0.0] * 6, [1.0] * 6, []),
    ):
        with pytest.raises(ValidationError):
            msgpack.decode(msgpack.encode(state), type=DocumentOdds)


Documents = dict[bytes, DocumentSign]


def after(*requests: str, odds: DocumentOdds | None = None) -> Documents:
    last: Documents = {}
    for documents in requests:
        names = [one.encode() for one in documents]
        last = followed(last, names, document_signs(last, names, [(0.0, 0.0)] * len(names)), odds or DocumentOdds())
    return last


def runs_of(last: Documents, documents: str) -> list[int]:
    names = [one.encode() for one in documents]
    return [sign.run for sign in document_signs(last, names, [(0.0, 0.0)] * len(names))]


def test_requests_in_a_row_are_counted_at_whatever_rank() -> None:
    assert runs_of({}, "ab") == [1, 1]
    assert runs_of(after("ab", "cba", "xa"), "abx") == [4, 1, 2]


def test_places_are_relative() -> None:
    signs = document_signs({}, [b"a", b"b", b"c"], [(0.1, 0.2)] * 3)
    assert [sign.place for sign in signs] == [-0.5, 0.0, 0.5]
    assert (signs[0].asked, signs[0].before) == (0.1, 0.2)
    assert document_signs({}, [b"a"], [(0.0, 0.0)])[0].place == -0.5


def test_what_the_next_request_has_is_learnt() -> None:
    odds = DocumentOdds()
    before = odds.means[:]
    after("ab", odds=odds)
    assert odds.means == before
    after(*"abcdefgh", odds=odds)
    assert odds.means[0] < before[0]


def test_remembered_documents_are_bounded() -> None:
    names = [b"%d" % number for number in range(100)]
    signs = document_signs({}, names, [(0.0, 0.0)] * 100)
    assert len(followed({}, names, signs, DocumentOdds())) == 24


def test_documents_last_that_two_requests_had() -> None:
    last = after("ab", "bad")
    assert are_lasting(last, [b"b", b"a"])
    assert not are_lasting(last, [b"a", b"d"])
    assert not are_lasting(last, [b"a", b"c"])


PROMPT = (
    'Answer by the documents.\n<document id="1">\nRefunds take a week.\n</document>\n\n'
    '<document id="2">\nParcels leave in the evening.\n</document>\n'
)


def test_words_of_the_last_question_and_of_the_one_before_count_beyond_the_average() -> None:
    recognised = view_of(
        system(PROMPT), user("Where are my PARCELS?"), assistant("There."), user("And refunds, parcels?")
    )
    first, second = read_words(recognised)
    assert first == pytest.approx((0.0, -0.25))
    assert second == pytest.approx((0.0, 0.25))
    recognised = view_of(system(PROMPT), user("A refunds question"))
    assert read_words(recognised) == [pytest.approx((0.25, 0.0)), pytest.approx((-0.25, 0.0))]


def test_short_words_and_no_documents_say_nothing() -> None:
    assert read_words(view_of(system(PROMPT), user("why? it is so"))) == [(0.0, 0.0), (0.0, 0.0)]
    assert read_words(view_of(system("Be kind."), user("Refunds"))) == []


def test_a_long_question_is_read_from_its_beginning() -> None:
    recognised = view_of(system(PROMPT), user("refunds " + "filler " * 2_000 + "parcels"))
    first, second = read_words(recognised)
    assert first[0] > 0 > second[0]


def test_of_many_documents_the_beginning_of_each_is_read() -> None:
    document = '<document id="{}">\n{}\n</document>\n\n'
    texts = ["Refunds. " + "filler " * 20_000, "filler " * 20_000 + "parcels"]
    few = view_of(
        system("Answer.\n" + "".join(document.format(*one) for one in enumerate(texts))), user("refunds, parcels")
    )
    assert read_words(few) == [pytest.approx((0.25, 0.0)), pytest.approx((-0.25, 0.0))]

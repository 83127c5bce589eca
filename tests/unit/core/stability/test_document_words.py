import pytest

from proxy.core.stability.document_words import read_words
from tests.talk import assistant, system, user, view_of

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

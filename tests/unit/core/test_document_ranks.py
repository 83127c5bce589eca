import math

import pytest

from proxy.core.document_ranks import DocumentRanks


def followed(*requests: str) -> DocumentRanks:
    ranks = DocumentRanks()
    for documents in requests:
        ranks.follow([one.encode() for one in documents])
    return ranks


def test_what_ranks_where_documents_stay_is_expected_to_stay() -> None:
    ranks = followed(*(f"abcd{number}{number + 1}"[:4] + str(number) for number in range(9)))
    assert ranks.seen[0] == ranks.kept[0] == 8
    assert ranks.kept[4] == 0
    assert ranks.hazard(0) < 0.5 * ranks.hazard(4)


def test_a_document_at_another_rank_is_kept() -> None:
    assert followed("ab", "ba").kept == [1, 1]


def test_ranks_that_were_not_seen_go_by_the_session_as_a_whole() -> None:
    assert followed("abc", "abc", "abc", "abc").hazard(20) < followed("abc", "def", "ghi", "jkl").hazard(20)
    assert DocumentRanks().hazard(0) == pytest.approx(DocumentRanks().hazard(7))


def test_is_bounded_and_never_certain() -> None:
    ranks = DocumentRanks()
    for number in range(200):
        ranks.follow([b"%d %d" % (number, place) for place in range(100)])
    assert len(ranks.seen) == len(ranks.last) == 24
    assert 0 < ranks.hazard(0) <= -math.log(0.05)


def test_can_be_restored() -> None:
    ranks, other = followed("abc", "abd"), DocumentRanks()
    other.restore(*ranks.state())
    assert other.state() == ranks.state()
    other.follow([b"a"])
    assert other.kept[0] == 2

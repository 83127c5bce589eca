from proxy.core.sessions.document_runs import DocumentRuns
from proxy.core.stability.document_retention import DocumentOdds


def followed(*requests: str, odds: DocumentOdds | None = None) -> DocumentRuns:
    runs, odds = DocumentRuns(), odds or DocumentOdds()
    for documents in requests:
        names = [one.encode() for one in documents]
        runs.follow(names, runs.signs(names, [(0.0, 0.0)] * len(names)), odds)
    return runs


def runs_of(runs: DocumentRuns, documents: str) -> list[int]:
    names = [one.encode() for one in documents]
    return [sign.run for sign in runs.signs(names, [(0.0, 0.0)] * len(names))]


def test_requests_in_a_row_are_counted_at_whatever_rank() -> None:
    assert runs_of(DocumentRuns(), "ab") == [1, 1]
    assert runs_of(followed("ab", "cba", "xa"), "abx") == [4, 1, 2]


def test_places_are_relative() -> None:
    signs = DocumentRuns().signs([b"a", b"b", b"c"], [(0.1, 0.2)] * 3)
    assert [sign.place for sign in signs] == [-0.5, 0.0, 0.5]
    assert (signs[0].asked, signs[0].before) == (0.1, 0.2)
    assert DocumentRuns().signs([b"a"], [(0.0, 0.0)])[0].place == -0.5


def test_what_the_next_request_has_is_learnt() -> None:
    odds = DocumentOdds()
    before = odds.state()[0][:]
    followed("ab", odds=odds)
    assert odds.means == before
    followed(*"abcdefgh", odds=odds)
    assert odds.means[0] < before[0]


def test_is_bounded() -> None:
    runs, names = DocumentRuns(), [b"%d" % number for number in range(100)]
    runs.follow(names, runs.signs(names, [(0.0, 0.0)] * 100), DocumentOdds())
    assert len(runs.last) == 24


def test_can_be_restored() -> None:
    runs, other = followed("abc", "abd"), DocumentRuns()
    other.restore(runs.state())
    assert other.state() == runs.state()
    assert runs_of(other, "ad") == [3, 2]


def test_documents_last_that_two_requests_had() -> None:
    runs = followed("ab", "bad")
    assert runs.are_lasting([b"b", b"a"])
    assert not runs.are_lasting([b"a", b"d"])
    assert not runs.are_lasting([b"a", b"c"])

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.request.transcript import span_ends

LINES = [f"line {number} of a file that is long enough\n" for number in range(400)]


def test_a_short_text_is_one_span() -> None:
    assert span_ends("a = 1\n") == (6,)


@given(st.text(alphabet="ab\n", min_size=0, max_size=30).map(lambda text: text * 400))
def test_spans_cover_the_text_once(text: str) -> None:
    ends = span_ends(text)
    assert ends[-1] == len(text)
    assert all(a < b for a, b in pairwise(ends))
    assert len(ends) <= 10


def test_versions_share_their_spans_up_to_the_first_edit() -> None:
    text = "".join(LINES)
    edited = "".join([*LINES[:300], "new\n", *LINES[300:]])
    first = text.index(LINES[300])
    shared = [end for end in span_ends(text) if end <= first]
    assert len(shared) >= 3
    assert list(span_ends(edited)[: len(shared)]) == shared


def test_a_text_of_one_line_is_one_span() -> None:
    assert span_ends("x" * 50_000) == (50_000,)

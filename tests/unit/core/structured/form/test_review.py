"""A review is kept for the session until it is removed, and has a digest of its own."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.context import Review
from proxy.core.structured.form.review import ReviewChange, retained, review_json

FORMER, LATER = Review(branch="former"), Review(branch="later")


def test_the_session_keeps_its_review_until_the_client_says_otherwise() -> None:
    assert retained(None, ReviewChange.KEEP) is None
    assert retained(FORMER, ReviewChange.KEEP) is FORMER
    assert retained(FORMER, ReviewChange.REMOVE) is None
    assert retained(FORMER, LATER) is LATER
    assert retained(None, LATER) is LATER


def test_the_digest_is_that_of_the_canonical_json() -> None:
    fields = {"log": 'a\n"é"\x1f\u2028', "branch": None, "reverse_diffs": {"\U0001f600": "1", "\ufb33": "2", "a": "3"}}
    text = '{"branch":null,"log":"a\\n\\"é\\"\\u001f\u2028","reverse_diffs":{"a":"3","\U0001f600":"1","\ufb33":"2"}}'
    assert review_json(fields) == text


diffs = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=5)


@given(diffs, st.lists(st.text(max_size=5), max_size=3))
def test_the_order_of_fields_does_not_change_the_digest(diffs: dict[str, str], commits: list[str]) -> None:
    fields = {"commits": commits, "reverse_diffs": diffs}
    turned = {"reverse_diffs": dict(reversed(diffs.items())), "commits": commits}
    assert review_json(fields) == review_json(turned)
    assert review_json(fields) != review_json({**fields, "commits": [*commits, ""]})
    assert review_json(fields) != review_json({**fields, "log": ""})

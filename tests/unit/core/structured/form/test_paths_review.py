"""A review has a digest of its own: that of its canonical JSON."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.form.paths import review_json


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

"""A field that stands twice in an object is found by counting names."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.wire.repeated_fields import check_fields, names_within
from proxy.errors import InvalidRequest


def values(names: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    return st.recursive(
        st.none() | st.text(max_size=8) | st.sampled_from(['":', '"a":1', "\\", ":,{["]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=8,
    )


VALUES = values(st.text(max_size=4))
PLAIN = values(st.text("abc_", min_size=1, max_size=4))


@given(VALUES, st.sampled_from([None, 1]))
def test_no_value_without_repeated_names_is_refused(value: object, indent: int | None) -> None:
    check_fields(json.dumps([value], indent=indent).encode(), names_within(value), "x")


@given(PLAIN, PLAIN)
def test_a_name_that_stands_twice_is_refused(first: object, second: object) -> None:
    text = f'{{"a":{json.dumps(first)},"b":1,"a":{json.dumps(second)}}}'
    with pytest.raises(InvalidRequest) as refused:
        check_fields(text.encode(), 2 + names_within(second), "stratiform.window")
    assert (refused.value.code, refused.value.param) == ("duplicate_field", "stratiform.window")

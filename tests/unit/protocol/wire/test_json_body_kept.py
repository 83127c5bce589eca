"""Nothing of a JSON value is lost in reading."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.wire.json_body import Unreadable, kept_value

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)),
    max_leaves=10,
)


@given(VALUES, st.booleans(), st.booleans())
def test_a_value_is_what_was_written_however_it_is_spaced(value: object, is_ascii: bool, is_spaced: bool) -> None:
    separators = (", ", ": ") if is_spaced else (",", ":")
    written = json.dumps(value, ensure_ascii=is_ascii, separators=separators).encode("utf-8", "surrogatepass")
    assert kept_value(written) == value


@given(st.lists(VALUES, min_size=2, max_size=4), st.integers(0, 20))
def test_every_value_of_a_name_is_kept(values: list[object], depth: int) -> None:
    twice = "{" + ",".join(f'"a":{json.dumps(value)}' for value in values) + "}"
    found = kept_value(("[" * depth + twice + "]" * depth).encode())
    for _ in range(depth):
        assert isinstance(found, list)
        (found,) = found
    assert found == {"a": values}


@pytest.mark.parametrize("number", ["9" * 5000, "0." + "0" * 5000 + "1", "1" + "0" * 40, "1e999", "-1e5"])
def test_a_number_that_is_written_unusually_stays_its_text(number: str) -> None:
    assert kept_value(f"[{number}]".encode()) == [number]


def test_what_is_nested_too_deeply_is_not_read() -> None:
    with pytest.raises(Unreadable):
        kept_value(b"[" * 100_000 + b"]" * 100_000)

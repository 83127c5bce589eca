"""Commas outside of strings are counted, whatever the strings hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.wire.scan import PIECE_BYTES
from proxy.core.wire.separators import counted, has_more_commas, names_in
from tests.examples import for_every, sampled
from tests.growth import assert_linear

texts = st.text(st.sampled_from('",\\{}[]:é a'), max_size=8)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def commas_of(value: object) -> int:
    if isinstance(value, dict):
        return max(0, len(value) - 1) + sum(map(commas_of, value.values()))
    if isinstance(value, list):
        return max(0, len(value) - 1) + sum(map(commas_of, value))
    return 0


@given(values, st.booleans())
def test_only_commas_outside_of_strings_count(value: object, is_ascii: bool) -> None:
    raw = json.dumps(value, ensure_ascii=is_ascii).encode()
    commas = commas_of(value)
    assert not has_more_commas(raw, commas)
    assert not commas or has_more_commas(raw, commas - 1)


@pytest.mark.parametrize("shift", sampled(range(-8, 4), 4))
@pytest.mark.parametrize("text", [",", "\\", '"', "\\,", 'é",'])
def test_strings_are_longer_than_a_piece(shift: int, text: str) -> None:
    long = "x" * (PIECE_BYTES + shift) + text * 20
    raw = json.dumps([long, long, 3], ensure_ascii=False).encode()
    assert not has_more_commas(raw, 2)
    assert has_more_commas(raw, 1)


def test_a_string_without_an_end_ends_the_count() -> None:
    assert not has_more_commas(b'[1,"' + b"," * 100, 1)
    assert not has_more_commas(b'[1,"\\', 1)
    assert has_more_commas(b"1,2,3,", 2)


def names_of(value: object) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(names_of, value.values()))
    return sum(map(names_of, value)) if isinstance(value, list) else 0


hard_texts = st.text(st.sampled_from('":\\,[{ \n\ta'), max_size=4)
hard_values = st.recursive(
    hard_texts | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(hard_texts, inner, max_size=4),
    max_leaves=20,
)
formats = st.tuples(st.sampled_from([",", " , ", ",\n"]), st.sampled_from([":", ": ", " : ", ":\t"]))


@given(hard_values, formats)
def test_no_text_within_a_string_is_taken_for_a_name(value: object, separators: tuple[str, str]) -> None:
    assert names_in(json.dumps([value], separators=separators).encode()) <= names_of(value)


@given(st.recursive(hard_texts, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner)))
def test_plain_names_are_all_counted(value: object) -> None:
    assert names_in(json.dumps([value]).encode()) == names_of(value)


@for_every(range(PIECE_BYTES - 12, PIECE_BYTES + 4))
def test_names_between_two_pieces_count_once(before: int) -> None:
    raw = json.dumps({"x" * before: ":", "b": 'c":', "d": ['":'], "e": {}}).encode()
    assert names_in(raw) == 4
    assert counted(raw, b":") == raw.count(b":")


@pytest.mark.parametrize("part", [b'"",', b'"\\"",', b",", b'"', b"\\", b"x,"])
def test_counting_is_linear(part: bytes) -> None:
    assert_linear(lambda raw: has_more_commas(raw, 10**9), lambda size: part * size, 60_000)
    assert_linear(names_in, lambda size: part * size, 60_000)
    assert_linear(lambda raw: has_more_commas(raw, len(raw) // 3), lambda size: part * size, 60_000)


@pytest.mark.parametrize("count", [999, 1_000, 1_001, 2_000, 2_001])
def test_thousands_are_counted_to_the_comma(count: int) -> None:
    raw = json.dumps([{"a": 'b",'}] * (count // 2) + ["x,"] * (count - count // 2 + 1)).encode()
    assert has_more_commas(raw, count - 1)
    assert not has_more_commas(raw, count)

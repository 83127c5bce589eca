"""What a typed reader says becomes an error of ours, also where it says it in other words one day."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.errors import InvalidRequest
from proxy.protocol.wire import check_fields, check_ids, decoded, names_within, refused, unknown_field
from tests.examples import for_every
from tests.growth import assert_linear


@for_every(
    [
        ("Expected `str`, got `int` - at `$.a[0].b`", "must be a string, not a number", ".a[0].b", "invalid_type"),
        ("Expected `array | null`, got `bool`", "must be an array or null, not a boolean", "", "invalid_type"),
        ("Expected `int | float`, got `ext`", "must be a number", "", "invalid_type"),
        ("Expected `int`, got `float` - at `$.a`", "must be a whole number, not a number", ".a", "invalid_type"),
        ("Expected `int` <= 9", "must be a whole number of at most 9", "", "invalid_value"),
        ("Expected `int` >= -9", "must be a whole number of at least -9", "", "invalid_value"),
        ("Expected `ext`, got `str`", "must be a value of another type, not a string", "", "invalid_type"),
        ("Expected `str` of length <= 12", "may have at most 12 characters", "", "too_long"),
        ("Expected `array` of length <= 3 - at `$.a`", "may have at most 3 elements", ".a", "too_many_items"),
        ("Expected `str` of length >= 1", "must not be empty", "", "invalid_value"),
        ("Invalid enum value 'SECRET' - at `$.a[10]`", "must be one of p, q", ".a[10]", "invalid_value"),
        ("Invalid enum value 'SECRET' - at `$.b.a`", "must be one of p, q", ".b.a", "invalid_value"),
        ("It is `SECRET`", "cannot be read", "", "invalid_value"),
        ("It is `SECRET` - at `$.a`", "cannot be read", ".a", "invalid_value"),
    ]
)
def test_each_sentence_of_the_reader_has_its_error(said: str, why: str, place: str, code: str) -> None:
    error = refused(msgspec.ValidationError(said), "form", {"a": ("p", "q")})
    assert (error.message, error.param, error.code) == (f"'form{place}' {why}", f"form{place}", code)


def test_a_field_that_is_missing_or_unknown_is_named() -> None:
    missing = refused(msgspec.ValidationError("Object missing required field `x` - at `$[1]`"), "form", {})
    unknown = refused(msgspec.ValidationError("Object contains unknown field `x`"), "form", {})
    assert (missing.message, missing.param, missing.code) == (
        "'form[1]' needs a field 'x'",
        "form[1].x",
        "missing_field",
    )
    assert (unknown.message, unknown.param, unknown.code) == ("'form' has no field 'x'", "form.x", "unknown_field")


def test_the_name_of_an_unknown_field_is_printable_and_short() -> None:
    error = unknown_field("a\n\x1b" + "b" * 100, "form")
    assert error.message == f"'form' has no field 'a??{'b' * 61}...'"


@for_every([(["a", "a"], 1), (["a", "b", "c", "b", "a"], 3), (["a", "b", "b", "b"], 2)])
def test_the_second_of_two_equal_ids_is_named(ids: list[str], number: int) -> None:
    with pytest.raises(InvalidRequest) as error:
        check_ids(ids, "form", "file")
    assert (error.value.param, error.value.code) == (f"form[{number}].id", "duplicate_id")


def test_two_equal_ids_are_found_in_linear_time() -> None:
    def work(ids: list[str]) -> None:
        with pytest.raises(InvalidRequest):
            check_ids(ids, "form", "file")

    assert_linear(work, lambda count: [*map(str, range(count)), "0"][::-1], 4_000)


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


DECODER = msgspec.json.Decoder(dict[str, int])


def test_a_text_of_the_form_gives_its_value() -> None:
    assert decoded(DECODER, b'{"a": 1}', "form", {}) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'{"a": "b"}', "invalid_type"),
        (b'{"a": ', "invalid_json"),
        (b'{"a": \xff}', "invalid_json"),
        (b'{"\\ud800": 1}', "invalid_unicode"),
    ],
)
def test_every_mistake_is_an_error_that_names_the_place(text: bytes, code: str) -> None:
    with pytest.raises(InvalidRequest) as found:
        decoded(DECODER, text, "form", {})
    assert found.value.code == code
    assert str(found.value.param).startswith("form")

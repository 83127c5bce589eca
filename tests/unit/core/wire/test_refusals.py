"""What a typed reader says becomes an error of ours, also where it says it in other words one day."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.wire.refusals import check_fields, decoded, names_within, refused, unknown_field
from proxy.errors import InvalidRequest
from tests.examples import for_every


@for_every(
    [
        (
            "Expected `str`, got `int` - at `$.a[0].b`",
            "'form.a[0].b' must be a string, not a number",
            "form.a[0].b",
            "invalid_type",
        ),
        (
            "Expected `array | null`, got `bool`",
            "'form' must be an array or null, not a boolean",
            "form",
            "invalid_type",
        ),
        ("Expected `int | float`, got `ext`", "'form' must be a number", "form", "invalid_type"),
        (
            "Expected `int`, got `float` - at `$.a`",
            "'form.a' must be a whole number, not a number",
            "form.a",
            "invalid_type",
        ),
        ("Expected `int` <= 9", "'form' must be a whole number of at most 9", "form", "invalid_value"),
        ("Expected `int` >= -9", "'form' must be a whole number of at least -9", "form", "invalid_value"),
        ("Expected `ext`, got `str`", "'form' must be a value of another type, not a string", "form", "invalid_type"),
        ("Expected `str` of length <= 12", "'form' may have at most 12 characters", "form", "too_long"),
        (
            "Expected `array` of length <= 3 - at `$.a`",
            "'form.a' may have at most 3 elements",
            "form.a",
            "too_many_items",
        ),
        ("Expected `str` of length >= 1", "'form' must not be empty", "form", "invalid_value"),
        ("Object missing required field `x` - at `$[1]`", "'form[1]' needs a field 'x'", "form[1].x", "missing_field"),
        ("Object contains unknown field `x`", "'form' has no field 'x'", "form.x", "unknown_field"),
        (
            "Invalid enum value 'SECRET' - at `$.a[10]`",
            "'form.a[10]' must be one of p, q",
            "form.a[10]",
            "invalid_value",
        ),
        ("Invalid enum value 'SECRET' - at `$.b.a`", "'form.b.a' must be one of p, q", "form.b.a", "invalid_value"),
        ("It is `SECRET`", "'form' cannot be read", "form", "invalid_value"),
        ("It is `SECRET` - at `$.a`", "'form.a' cannot be read", "form.a", "invalid_value"),
    ]
)
def test_each_sentence_of_the_reader_has_its_error(said: str, message: str, param: str, code: str) -> None:
    error = refused(msgspec.ValidationError(said), "form", {"a": ("p", "q")})
    assert (error.message, error.param, error.code) == (message, param, code)


def test_the_name_of_an_unknown_field_is_printable_and_short() -> None:
    error = unknown_field("a\n\x1b" + "b" * 100, "form")
    assert error.message == f"'form' has no field 'a??{'b' * 61}...'"


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

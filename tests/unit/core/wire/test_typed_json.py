"""JSON of a known form."""

import msgspec
import pytest

from proxy.core.wire.typed_json import decoded
from proxy.errors import InvalidRequest

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

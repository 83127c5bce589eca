"""Whatever stands in the section ``stratiform``: it is a form, or nothing, or a refusal that a client can read."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.context.form import StructuredForm, read_form
from proxy.context.session import Uploads
from proxy.kit.errors import InvalidRequest, MissingContent, ProxyError, error_body
from tests.structured_forms import forms

NAMES = st.sampled_from(
    [
        "files", "path", "content", "digest", "selected", "symbols", "block", "tree", "urls", "url", "review",
        "broken", "x",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["L0", "a" * 64]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def refusal(raw: bytes) -> ProxyError | None:
    """What the client gets instead of a context. Any other exception fails the test."""
    try:
        form = read_form(raw)
        assert form is None or isinstance(form, StructuredForm)
        if form is not None:
            Uploads().resolve(form, "s").shown(None)
    except (InvalidRequest, MissingContent) as error:
        return error
    return None


def check(raw: bytes) -> None:
    error = refusal(raw)
    if error is not None:
        body = json.loads(error_body(error))["error"]
        assert body["param"].startswith("stratiform")
        assert body["code"]
        assert len(body["message"]) < 500
        assert error.message.isprintable()
        assert error.status == (409 if body.get("missing") else 400)


@given(VALUES)
def test_any_json_is_read_or_refused(value: Any) -> None:
    check(json.dumps(value).encode())


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    check(raw)


@given(forms(), st.data())
def test_damaged_bytes_of_a_section_are_read_or_refused(form: dict[str, Any], data: st.DataObject) -> None:
    raw = bytearray(json.dumps(form, ensure_ascii=data.draw(st.booleans())).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(
                [b"", b'"', b"\\", b"{", b"]", b":", b",", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\0", b"null"]
            )
        )
    check(bytes(raw))


@given(forms())
def test_a_form_is_the_same_however_its_json_is_written(form: dict[str, Any]) -> None:
    plain = read_form(json.dumps(form).encode())
    assert plain == read_form(json.dumps(form, ensure_ascii=False, indent=1, separators=(" , ", " :\n")).encode())
    assert plain == read_form(json.dumps(dict(reversed(form.items()))).encode())

"""A text comes back from a store as it was, or not at all."""

import json
import struct
import sys
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.client import review_digest
from proxy.core.structured.context import Review
from proxy.core.structured.form.form import StructuredForm, read_form, text_digest
from proxy.core.structured.form.paths import FormReview
from proxy.core.structured.session.uploads import (
    MOST_TEXT_BYTES,
    MOST_UTF8_BYTES,
    Uploads,
    blob_name,
    filled,
    is_kept,
    packed,
    texts_of,
    unpacked,
)

HEAD = bytes(8)


def form_of(**fields: Any) -> StructuredForm:
    found = read_form(json.dumps(fields).encode())
    assert found is not None
    return found


@given(st.text(), st.floats(0, 2e9))
def test_a_text_comes_back_as_it_was(text: str, now: float) -> None:
    kept = unpacked(packed(text, now), text_digest(text))
    assert kept is not None
    assert (kept.text, kept.saved_at) == (text, now)


def test_the_text_of_another_digest_does_not_count() -> None:
    assert unpacked(packed("rm -rf /", 1.0), text_digest("ls")) is None
    assert blob_name(text_digest("ls")) == f"text:{text_digest('ls')}"


@given(st.binary(max_size=60), st.booleans())
def test_bytes_that_are_no_blob_are_no_text(junk: bytes, has_head: bool) -> None:
    assert unpacked(HEAD + junk if has_head else junk, text_digest("a")) is None


@given(st.text(min_size=1), st.data())
def test_a_blob_that_is_cut_is_no_text(text: str, data: st.DataObject) -> None:
    blob = packed(text, 1.0)
    assert unpacked(blob[: data.draw(st.integers(0, len(blob) - 1))], text_digest(text)) is None


def test_a_small_blob_that_unpacks_to_a_large_text_is_not_unpacked() -> None:
    bomb = "x" * (MOST_UTF8_BYTES + 1)
    assert unpacked(HEAD + zlib.compress(bomb.encode()), text_digest(bomb)) is None


@pytest.mark.parametrize("sign", ["x", "é", "\u4e2d", "\U0001f600"])
def test_every_text_that_is_kept_comes_back(sign: str) -> None:
    text = sign
    while is_kept(text + text):
        text += text
    text += sign * ((MOST_TEXT_BYTES - sys.getsizeof(text)) // (sys.getsizeof(sign * 3) - sys.getsizeof(sign * 2)))
    assert is_kept(text)
    assert not is_kept(text + sign * 2)
    assert unpacked(packed(text, 1.0), text_digest(text)) is not None


def test_a_time_that_is_no_number_is_long_ago() -> None:
    for bad in (float("nan"), float("inf")):
        kept = unpacked(struct.pack(">d", bad) + packed("a", 1.0)[8:], text_digest("a"))
        assert kept is not None
        assert kept.saved_at == 0.0


def test_a_form_is_filled_as_if_the_client_had_sent_it() -> None:
    review = {"branch": "b", "reverse_diffs": {"./a": "d", "b": "é"}, "log": None}
    files = [{"path": "a", "content": "1", "selected": True}, {"path": "b", "content": "2"}, {"path": "c"}]
    whole = form_of(files=files, review=review, tree=True)
    names = [
        {"path": "a", "digest": text_digest("1"), "selected": True},
        {"path": "b", "digest": text_digest("2")},
        {"path": "c"},
    ]
    named = form_of(files=names, review={"digest": review_digest(review)}, tree=True)
    texts = dict(texts_of(Uploads().resolve(whole, "s")))
    assert set(texts) == {text_digest("1"), text_digest("2"), review_digest(review)}
    assert filled(named, texts) == whole
    assert filled(named, {}) == named


def test_what_the_form_brings_itself_stays() -> None:
    form = form_of(files=[{"path": "a", "content": "1"}])
    assert filled(form, {text_digest("1"): "other"}) == form


def test_a_text_that_is_no_review_stands_for_none() -> None:
    hidden = '{"branch":"b"},"files":[]'
    for text in ("", "null", "[]", "{", '{"branch": "b"}', '{"branch":1}', '{"digest":"%s"}' % ("0" * 64), hidden):
        form = form_of(review={"digest": text_digest(text)})
        assert filled(form, {text_digest(text): text}).review == FormReview(text_digest(text)), text
    good = '{"branch":"b"}'
    found = filled(form_of(review={"digest": text_digest(good)}), {text_digest(good): good}).review
    assert found == FormReview(text_digest(good), Review(branch="b"), good)


def test_a_review_that_the_client_only_names_has_no_text() -> None:
    uploads = Uploads()
    uploads.resolve(form_of(review={"branch": "b"}), "s")
    named = uploads.resolve(form_of(review={"digest": review_digest({"branch": "b"})}), "s")
    assert list(texts_of(named)) == []

"""Contents are sent once and named by digest afterwards: within a scope, and within a bound of memory."""

import gc
import json
import struct
import sys
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.client import review_digest
from proxy.context import ContextFile, Review
from proxy.context.form import FormReview, StructuredForm, read_form, text_digest
from proxy.context.session import (
    MOST_TEXT_BYTES,
    MOST_UTF8_BYTES,
    Uploads,
    blob_name,
    content_bytes,
    filled,
    is_kept,
    packed_text,
    texts_of,
    unpacked_text,
)
from proxy.kit.errors import MissingContent
from tests.examples import sampled
from tests.growth import assert_linear

UNKNOWN = "f" * 64


def form_of(**fields: Any) -> StructuredForm:
    found = read_form(json.dumps(fields).encode())
    assert found is not None
    return found


def sent(*texts: str) -> StructuredForm:
    return form_of(files=[{"path": f"f{n}", "content": text} for n, text in enumerate(texts)])


def named(*texts: str) -> StructuredForm:
    return form_of(files=[{"path": f"f{n}", "digest": text_digest(text)} for n, text in enumerate(texts)])


def missing_of(uploads: Uploads, form: StructuredForm, scope: str = "s") -> tuple[str, ...]:
    with pytest.raises(MissingContent) as error:
        uploads.resolve(form, scope)
    return error.value.missing


def test_a_text_is_sent_once() -> None:
    uploads = Uploads()
    first = uploads.resolve(sent("x = 1"), "s")
    assert first.context.files == (ContextFile("f0", "x = 1", text_digest("x = 1"), False),)
    assert uploads.resolve(named("x = 1"), "s").context.files == first.context.files
    assert first.review is None


def test_digests_that_nobody_has_sent_are_named_once_and_in_order() -> None:
    uploads = Uploads()
    uploads.resolve(sent("b"), "s")
    assert missing_of(uploads, named("a", "b", "c", "a")) == (text_digest("a"), text_digest("c"))


def test_a_digest_is_known_in_its_own_scope_only() -> None:
    uploads = Uploads()
    uploads.resolve(sent("secret"), "s")
    for scope in ("", "t", "s ", "ss"):
        assert missing_of(uploads, named("secret"), scope) == (text_digest("secret"),)


def test_a_refused_request_leaves_nothing() -> None:
    uploads = Uploads()
    form = form_of(files=[{"path": "a", "content": "x"}, {"path": "b", "digest": UNKNOWN}], review={"log": "l"})
    assert missing_of(uploads, form) == (UNKNOWN,)
    assert uploads.bytes == 0
    assert missing_of(uploads, named("x")) == (text_digest("x"),)


def test_a_digest_may_name_what_the_same_request_brings() -> None:
    form = form_of(files=[{"path": "a", "digest": text_digest("x")}, {"path": "b", "content": "x"}])
    assert [file.text for file in Uploads().resolve(form, "s").context.files] == ["x", "x"]


def test_a_file_without_text_and_digest_has_none() -> None:
    form = form_of(files=[{"path": "a", "content": None, "selected": True}, {"path": "b"}])
    files = Uploads().resolve(form, "s").context.files
    assert files == (ContextFile("a", None, "", True), ContextFile("b", None, "", False))


def test_a_review_is_sent_once() -> None:
    uploads = Uploads()
    fields = {"branch": "b", "reverse_diffs": {"./a": "-é"}}
    resolved = uploads.resolve(form_of(review=fields), "s")
    assert resolved.shown(None).review == Review(branch="b", reverse_diffs={"a": "-é"})
    digest = review_digest(fields)
    assert uploads.resolve(form_of(review={"digest": digest}), "s").shown(None).review == resolved.shown(None).review
    assert missing_of(uploads, form_of(review={"digest": digest}), "t") == (digest,)


def test_the_session_keeps_its_review_until_the_client_says_otherwise() -> None:
    def of(former: Review | None, **fields: Any) -> Review | None:
        return Uploads().resolve(form_of(files=[], **fields), "s").shown(former).review

    former, later = Review(branch="former"), Review(branch="later")
    assert of(None) is None
    assert of(former) is former
    assert of(former, review=None) is None
    assert of(former, review={"branch": "later"}) == later
    assert of(None, review={"branch": "later"}) == later


def test_a_file_with_the_text_of_a_review_is_no_review() -> None:
    uploads = Uploads()
    text = '{"branch":"b"}'
    uploads.resolve(sent(text), "s")
    digest = review_digest({"branch": "b"})
    assert digest == text_digest(text)
    assert missing_of(uploads, form_of(review={"digest": digest})) == (digest,)
    uploads.resolve(form_of(review={"branch": "b"}), "s")
    assert uploads.resolve(named(text), "s").context.files[0].text == text
    assert uploads.resolve(form_of(review={"digest": digest}), "s").shown(None).review == Review(branch="b")


def room_for(*texts: str) -> Uploads:
    return Uploads(sum(map(content_bytes, texts)))


def test_what_was_not_used_for_the_longest_time_is_dropped_first() -> None:
    uploads = room_for("a", "b")
    uploads.resolve(sent("a"), "s")
    uploads.resolve(sent("b"), "s")
    uploads.resolve(named("a"), "s")
    uploads.resolve(sent("c"), "s")
    assert missing_of(uploads, named("a", "b", "c")) == (text_digest("b"),)


def test_what_is_sent_again_counts_as_used() -> None:
    uploads = room_for("a", "b")
    uploads.resolve(sent("a", "b"), "s")
    uploads.resolve(sent("a"), "s")
    uploads.resolve(sent("c"), "s")
    assert missing_of(uploads, named("a", "b")) == (text_digest("b"),)


def test_a_request_that_has_no_room_works_and_drops_nothing() -> None:
    uploads = room_for("a")
    uploads.resolve(sent("a"), "s")
    vast = "x" * 100_000
    assert uploads.resolve(sent(vast), "s").context.files[0].text == vast
    assert missing_of(uploads, named("a", vast)) == (text_digest(vast),)


def test_a_request_does_not_drop_what_it_uses_itself() -> None:
    uploads = room_for("a", "b")
    uploads.resolve(sent("a", "b"), "s")
    form = form_of(
        files=[
            {"path": "c", "content": "c"},
            {"path": "a", "digest": text_digest("a")},
            {"path": "d", "content": "d"},
            {"path": "b", "digest": text_digest("b")},
        ]
    )
    assert [file.text for file in uploads.resolve(form, "s").context.files] == ["c", "a", "d", "b"]
    assert uploads.resolve(named("a", "b"), "s")


def resolved_or_missing(
    uploads: Uploads, form: StructuredForm, scope: str
) -> tuple[StructuredForm | None, frozenset[str]]:
    try:
        return uploads.resolve(form, scope), frozenset()
    except MissingContent as error:
        return None, frozenset(error.missing)


texts = st.sampled_from(["", "a", "é" * 50, "\u20ac" * 500, "\U0001f600" * 500, "x" * 2000])
requests = st.lists(
    st.tuples(st.lists(texts, max_size=4), st.lists(texts, max_size=4), st.sampled_from("st")), max_size=12
)


@given(requests, st.integers(0, 9_000))
def test_memory_is_bounded_and_answers_are_right(requests: list[tuple[list[str], list[str], str]], most: int) -> None:
    uploads = Uploads(most)
    ever: set[tuple[str, str]] = set()
    for brought, asked, scope in requests:
        files = [{"path": f"a{n}", "content": text} for n, text in enumerate(brought)]
        files += [{"path": f"b{n}", "digest": text_digest(text)} for n, text in enumerate(asked)]
        resolved, missing = resolved_or_missing(uploads, form_of(files=files), scope)
        assert uploads.bytes <= most
        if resolved is None:
            assert missing
            assert missing <= {text_digest(text) for text in asked if text not in brought}
            continue
        assert [file.text for file in resolved.context.files] == [*brought, *asked]
        ever |= {(scope, text) for text in brought}
        assert {(scope, text) for text in asked} <= ever


def test_a_string_counts_as_it_is_stored() -> None:
    size = 100_000
    one, two, four = (content_bytes(character * size) for character in "x\u20ac\U0001f600")
    assert two - one == pytest.approx(size, rel=0.01)
    assert four - one == pytest.approx(3 * size, rel=0.01)


def test_a_review_counts_with_all_its_parts() -> None:
    parts = ["x" * 1000 for _ in range(8)]
    diffs = {"p" * 1000: "x" * 1000, **{f"q{n}": "" for n in range(100)}}
    review = Review(parts[0], tuple(parts[1:4]), parts[4], parts[5], parts[6], diffs)
    assert content_bytes(review) > 9_000 + 100 * 50


@pytest.mark.parametrize("size", sampled([0, 20, 2_000], 3, 1))
def test_the_estimate_is_no_less_than_the_real_memory(size: int) -> None:
    count = 2_000
    uploads = Uploads()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for first in range(0, count, 500):
            uploads.resolve(sent(*[f"{n:06}" + "\u20ac" * size for n in range(first, first + 500)]), "s")
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert uploads.bytes / 2 < grown <= uploads.bytes


@pytest.mark.parametrize("is_named", [True, False])
def test_resolving_is_linear(is_named: bool) -> None:
    def work(texts: list[str]) -> None:
        uploads = Uploads(len(texts) * 400)
        uploads.resolve(sent(*texts), "s")
        resolved_or_missing(uploads, (named if is_named else sent)(*reversed(texts)), "s")

    assert_linear(work, lambda size: [f"{n:020}" for n in range(size)], 1_000)


# A text comes back from a store as it was, or not at all.


HEAD = bytes(8)


@given(st.text(), st.floats(0, 2e9))
def test_a_text_comes_back_as_it_was(text: str, now: float) -> None:
    kept = unpacked_text(packed_text(text, now), text_digest(text))
    assert kept is not None
    assert kept == (text, now)


def test_the_text_of_another_digest_does_not_count() -> None:
    assert unpacked_text(packed_text("rm -rf /", 1.0), text_digest("ls")) is None
    assert blob_name(text_digest("ls")) == f"text:{text_digest('ls')}"


@given(st.binary(max_size=60), st.booleans())
def test_bytes_that_are_no_blob_are_no_text(junk: bytes, has_head: bool) -> None:
    assert unpacked_text(HEAD + junk if has_head else junk, text_digest("a")) is None


@given(st.text(min_size=1), st.data())
def test_a_blob_that_is_cut_is_no_text(text: str, data: st.DataObject) -> None:
    blob = packed_text(text, 1.0)
    assert unpacked_text(blob[: data.draw(st.integers(0, len(blob) - 1))], text_digest(text)) is None


def test_a_small_blob_that_unpacks_to_a_large_text_is_not_unpacked() -> None:
    bomb = "x" * (MOST_UTF8_BYTES + 1)
    assert unpacked_text(HEAD + zlib.compress(bomb.encode()), text_digest(bomb)) is None


@pytest.mark.parametrize("sign", ["x", "é", "\u4e2d", "\U0001f600"])
def test_every_text_that_is_kept_comes_back(sign: str) -> None:
    text = sign
    while is_kept(text + text):
        text += text
    text += sign * ((MOST_TEXT_BYTES - sys.getsizeof(text)) // (sys.getsizeof(sign * 3) - sys.getsizeof(sign * 2)))
    assert is_kept(text)
    assert not is_kept(text + sign * 2)
    assert unpacked_text(packed_text(text, 1.0), text_digest(text)) is not None


def test_a_time_that_is_no_number_is_long_ago() -> None:
    for bad in (float("nan"), float("inf")):
        kept = unpacked_text(struct.pack(">d", bad) + packed_text("a", 1.0)[8:], text_digest("a"))
        assert kept[1] == 0.0


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

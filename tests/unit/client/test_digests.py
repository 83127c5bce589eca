"""The helper and the proxy name contents by the same digests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.client import review_digest, text_digest
from proxy.core.structured.form import form, review

texts = st.text(st.characters(codec="utf-8"))


@given(texts)
def test_texts_have_the_digest_that_the_proxy_computes(text: str) -> None:
    assert text_digest(text) == form.text_digest(text)


def test_a_text_that_has_no_utf_8_has_no_digest() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        text_digest("\ud83d")


@given(st.dictionaries(texts, st.none() | texts | st.lists(texts) | st.dictionaries(texts, texts)))
def test_reviews_have_the_digest_that_the_proxy_computes(fields: dict[str, object]) -> None:
    assert review_digest(fields) == form.text_digest(review.review_json(fields))

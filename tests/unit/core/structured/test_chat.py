"""The section ``stratiform`` counts where it says anything."""

import pytest

from proxy.core.structured.chat import section_of


@pytest.mark.parametrize("raw", [b"null", b" null", b"{}", b"{ \n}"])
def test_a_section_that_says_nothing_is_none(raw: bytes) -> None:
    assert section_of({"stratiform": raw}) is None


def test_a_body_without_members_or_without_the_section_has_none() -> None:
    assert section_of({"model": b'"m"'}) is None
    assert section_of(None) is None


@pytest.mark.parametrize("raw", [b'{"files":[]}', b"[]", b'""', b"0", b"false", b" " * 100 + b"{}", b'{"a":1}' * 20])
def test_a_section_that_says_anything_is_found(raw: bytes) -> None:
    assert section_of({"stratiform": raw}) == raw

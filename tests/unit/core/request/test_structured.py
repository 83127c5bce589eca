"""The section ``stratiform``: refused as long as nothing is made of it."""

import pytest

from proxy.core.request.structured import check_structured
from proxy.errors import InvalidRequest


@pytest.mark.parametrize("raw", [b"null", b"{}", b"{ \n}"])
def test_a_section_that_says_nothing_passes(raw: bytes) -> None:
    check_structured({"stratiform": raw})
    check_structured({"model": b'"m"'})
    check_structured(None)


@pytest.mark.parametrize("raw", [b'{"files":[]}', b"[]", b'""', b"0", b"false", b" " * 100 + b"{}", b'{"a":1}' * 20])
def test_a_section_that_says_anything_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest) as found:
        check_structured({"stratiform": raw})
    assert (found.value.status, found.value.param, found.value.code) == (
        400, "stratiform", "structured_form_unavailable",
    )  # fmt: skip

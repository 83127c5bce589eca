"""Request lines that are not passed on."""

from typing import Any

import pytest
from yarl import URL

from proxy.errors import MethodNotAllowed, NotFound
from proxy.web.app import check_request_line, sent_path


def scope(raw: bytes, path: str = "/v1/x", method: str = "GET") -> dict[str, Any]:
    return {"raw_path": raw, "path": path, "method": method}


def test_the_path_goes_on_as_it_was_written() -> None:
    assert sent_path(scope(b"/v1/a%20b")) == "/a%20b"


@pytest.mark.parametrize("raw", [b"/v1%2F@elsewhere/x", b"/v1%2f.elsewhere/x", b"/v1%2F", b"/%761/x"])
def test_a_path_cannot_become_a_part_of_the_host(raw: bytes) -> None:
    assert URL(f"http://upstream{sent_path(scope(raw))}", encoded=True).host == "upstream"
    with pytest.raises(NotFound, match="percent-encoded"):
        check_request_line(scope(raw))


@pytest.mark.parametrize("raw", [b"/v1/a/../b", b"/v1/models;/files", b"/v1//files", b"/v1/\xff"])
def test_a_path_of_several_readings_is_not_found(raw: bytes) -> None:
    with pytest.raises(NotFound, match="one way"):
        check_request_line(scope(raw))


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "get"])
def test_methods_that_are_not_passed_on(method: str) -> None:
    with pytest.raises(MethodNotAllowed, match="POST"):
        check_request_line(scope(b"/v1/files", method=method))

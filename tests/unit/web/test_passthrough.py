"""Paths that leave the place where they should stay."""

import pytest
from yarl import URL

from proxy.web.passthrough import has_dot_segments, upstream_path


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../admin",
        "/v1/./a",
        "/v1/..",
        "/v1/a/%2e%2e/b",
        "/v1/a/%252e%252e/b",
        "/v1/a/%25252e./b",
        "/v1/a\\..\\b",
        "/v1/a/..%5cb",
        "/v1/a/..;x=1/b",
        "/v1/a/.. /b",
        "/v1/%2525252525252525252e",
    ],
)
def test_dot_segments_in_disguise(path: str) -> None:
    assert has_dot_segments(path)


@pytest.mark.parametrize(
    "path", ["/v1/files/a.b", "/v1/...", "/v1/a..b/c", "/v1/a%20b", "/v1//x", "/v1/100%", "/v1/;a"]
)
def test_dots_that_are_none(path: str) -> None:
    assert not has_dot_segments(path)


def test_the_path_goes_on_as_it_was_written() -> None:
    assert upstream_path({"raw_path": b"/v1/a%20b", "path": "/v1/a b"}) == "/a%20b"


@pytest.mark.parametrize("raw", [b"/v1%2F@elsewhere/x", b"/v1%2f.elsewhere/x", b"/v1%2F"])
def test_a_path_cannot_become_a_part_of_the_host(raw: bytes) -> None:
    path = upstream_path({"raw_path": raw, "path": "/v1/x"})
    assert path.startswith("/")
    assert URL(f"http://upstream{path}", encoded=True).host == "upstream"

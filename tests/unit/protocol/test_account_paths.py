"""The one reading of a path, and the paths on which a model is asked."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.kit.errors import NotFound
from proxy.protocol.account import INVALID_PATH, MOST_PATH_CHARS, Path, asks_model, read_path
from tests.examples import for_every

_REFUSED = (
    "",
    "files",
    "//files",
    "/files//f",
    "/files///",
    "/..",
    "/files/../models",
    "/files/./f",
    "/files/%2e%2e/models",
    "/files/%252e%252e/models",
    "/files/..;x=1/f",
    "/files/.%20/f",
    "/files\\f",
    "/files%5cf",
    "/files%2Ff",
    "/models;/files",
    "/models/..;/files",
    "/models/x%3B/files",
    "/models/..%2ffiles",
    "/models/x%2f%2ffiles",
    "/models/x%2f..%2ffiles",
    "/models%2ffiles",
    "/files/a%00",
    "/files/a%0d%0a",
    "/files/%c0%ae%c0%ae/x",
    "/files/%ff",
    "/files/\u00e9",
    "/files/a%25b",
    "/files/100%",
    "/files/%zz",
    "/files/a%3fb",
    "/files/a%23b",
    "/files/a#b",
    "/files/a b",
    "/files/a%20",
    "/files/%20a",
    "/files/a.",
    "/files/...",
    "/files/a%EF%BC%8Fb",  # a full-width slash
    "/files/%EF%BC%8E%EF%BC%8E/b",  # full-width dots
    "/%EF%BD%86iles",  # a full-width f
    "/\u017files",
    "/file%C5%BF",  # a long s
    "/files/%E2%84%AA",  # the Kelvin sign
    "/files/a%E2%80%8Bb",  # a space of no width
    "/files/a%E2%80%AEb",  # right to left
    "/files/a%C2%A0",
    "/files/a%C2%85b",
    "/" + "a" * MOST_PATH_CHARS,
)


@for_every(_REFUSED)
def test_a_path_of_several_readings_has_none(path: str) -> None:
    with pytest.raises(NotFound) as caught:
        read_path(path)
    assert caught.value.code == INVALID_PATH


@for_every(
    [
        ("/", (), ""),
        ("/files", ("files",), "/files"),
        ("/Files/", ("Files",), "/files"),
        ("/files/file-AbC", ("files", "file-AbC"), "/files/file-abc"),
        ("/files/a.b", ("files", "a.b"), "/files/a.b"),
        ("/files/f%201/content", ("files", "f 1", "content"), "/files/f 1/content"),
        ("/files/%E6%97%A5", ("files", "\u65e5"), "/files/\u65e5"),
        ("/%65mbeddings", ("embeddings",), "/embeddings"),
        ("/v1/files", ("files",), "/files"),
        ("/openai/v1/files", ("files",), "/files"),
        ("/models/org%2Fname", ("models", "org/name"), "/models/org/name"),
        ("/models/gemini:embedContent", ("models", "gemini:embedContent"), "/models/gemini:embedcontent"),
        ("/models/@cf/meta/llama-3.1", ("models", "@cf", "meta", "llama-3.1"), "/models/@cf/meta/llama-3.1"),
    ]
)
def test_other_paths_have_one(path: str, segments: tuple[str, ...], text: str) -> None:
    found = read_path(path)
    assert found == Path(segments, tuple(s.lower() for s in segments), text, found.skipped)


_BYTES = [chr(c) for c in range(33, 127)] + [f"%{c:02x}" for c in range(256)]


@given(st.lists(st.sampled_from(_BYTES), max_size=12))
@example(["%00", "%c3", "%80"])
@example(["a", "%0a", "%c3", "%a9"])
def test_what_is_read_holds_nothing_that_separates(parts: list[str]) -> None:
    try:
        found = read_path("/" + "".join(parts))
    except NotFound:
        return
    for segment in found.segments:
        assert segment
        assert segment not in (".", "..")
        assert not set(segment) & set("\\%;?#")
        assert segment.isprintable()


def test_every_encoding_of_a_dot_segment_is_refused() -> None:
    dots, slashes = (".", "%2e", "%252e", "%c0%ae", "%EF%BC%8E"), ("/", "%2f", "%5c", "\\", "%252f", ";/")
    for one, two, slash in product(dots, dots, slashes):
        with pytest.raises(NotFound):
            read_path(f"/models/a{slash}{one}{two}{slash}files")


@pytest.mark.parametrize(
    "path",
    ["/responses", "/x/messages", "/completions/", "/%65mbeddings", "/Chat/Completions", "/models/x:generateContent"],
)
def test_paths_that_ask_a_model(path: str) -> None:
    assert asks_model("POST", read_path(path))
    assert not asks_model("GET", read_path(path))


@pytest.mark.parametrize("path", ["/threads/1/messages", "/files", "/responses/1/cancel", "/fine_tuning/jobs"])
def test_paths_that_do_something(path: str) -> None:
    assert not asks_model("POST", read_path(path))

"""Paths become POSIX paths with nothing to resolve, or are refused."""

import posixpath
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.form import MOST_PATH_CHARS, clean_path, clean_paths, distinct_paths, review_json
from proxy.kit.errors import InvalidRequest
from tests.examples import for_every, sampled
from tests.growth import assert_linear


@for_every(
    [
        ("a.py", "a.py"), ("src\\app\\main.py", "src/app/main.py"), ("./a.py", "a.py"),
        ("src/./b/../a.py", "src/a.py"), ("src//a.py", "src/a.py"), ("src/", "src"),
        (".github/x.yml", ".github/x.yml"), ("src/.env", "src/.env"), ("..a/b..", "..a/b.."), ("...", "..."),
        ("/etc//hosts", "/etc/hosts"), ("//server/share", "/server/share"),
        ("\\\\server\\share\\x", "/server/share/x"), ("C:\\work\\..\\a.py", "C:/a.py"), ("c:/a:b", "c:/a:b"),
        ("C:a.py", "C:a.py"), (" a b .py ", " a b .py "), ("Großes/é.md", "Großes/é.md"),
    ]
)  # fmt: skip
def test_a_path_is_resolved_by_its_text_alone(path: str, clean: str) -> None:
    assert clean_path(path, "p") == clean
    assert clean_paths(["b", path], "p") == ("b", clean)


@for_every(
    [
        ("", "invalid_path"), (".", "invalid_path"), ("/", "invalid_path"), ("a/..", "invalid_path"),
        ("C:\\", "invalid_path"), ("..", "path_outside_root"), ("../a", "path_outside_root"),
        ("a/../../b", "path_outside_root"), ("..\\a", "path_outside_root"), ("/../etc", "path_outside_root"),
        ("C:/../x", "path_outside_root"), ("a\0b", "invalid_path"), ("a\nb", "invalid_path"),
        ("a\rb", "invalid_path"), ("a\tb", "invalid_path"), ("a\x7fb", "invalid_path"), ("a\x85b", "invalid_path"),
        ("a\u2028b", "invalid_path"), ("a\ud800b", "invalid_path"), ("a" * (MOST_PATH_CHARS + 1), "invalid_path"),
    ]
)  # fmt: skip
def test_a_path_that_names_no_file_of_the_client_is_refused(path: str, code: str) -> None:
    with pytest.raises(InvalidRequest):
        clean_path(path, "p")
    with pytest.raises(InvalidRequest) as refused:
        clean_paths(["good", path], "stratiform.files", ".path")
    assert (refused.value.param, refused.value.code) == ("stratiform.files[1].path", code)
    assert path[:1000] not in refused.value.message or len(path) < 3


def test_the_longest_path_is_taken() -> None:
    longest = "a" * MOST_PATH_CHARS
    assert clean_paths([longest], "p") == (longest,)


names = st.text(st.sampled_from("ab.:\\/ C\n\0é\u2028") | st.characters(), max_size=12)


@given(names)
def test_a_clean_path_has_nothing_to_resolve(path: str) -> None:
    try:
        clean = clean_path(path, "p")
    except InvalidRequest:
        return
    assert clean == clean_path(clean, "p") == posixpath.normpath(clean)
    assert "\\" not in clean
    assert not clean.startswith("../")
    assert clean.splitlines() == [clean]


@given(st.lists(names, max_size=6))
def test_many_paths_are_read_as_each_of_them_is(paths: list[str]) -> None:
    """The quick look at all of them agrees with the rules for one."""
    good = 0
    with suppress(InvalidRequest):
        for path in paths:
            clean_path(path, "p")
            good += 1
    if good < len(paths):
        with pytest.raises(InvalidRequest) as refused:
            clean_paths(paths, "p")
        assert refused.value.param == f"p[{good}]"
        return
    assert clean_paths(paths, "p") == tuple([clean_path(path, "p") for path in paths])


def test_two_equal_paths_are_refused_with_both_places() -> None:
    distinct_paths(["a", "b", "A"], "stratiform.tree")
    with pytest.raises(InvalidRequest) as refused:
        distinct_paths(["a", "b", "a"], "stratiform.files", ".path")
    assert (refused.value.param, refused.value.code) == ("stratiform.files[2].path", "duplicate_path")
    assert "'stratiform.files[0].path'" in refused.value.message


@pytest.mark.slow
@pytest.mark.parametrize("part", sampled(["a/", "../a/", "./", "//", "a\\", "a/../"], 6))
def test_paths_are_resolved_in_linear_time(part: str) -> None:
    def resolve(paths: list[str]) -> None:
        for path in paths:
            try:
                clean_path(path, "p")
            except InvalidRequest:
                continue

    assert_linear(resolve, lambda size: [(part * MOST_PATH_CHARS)[:4000] + "x"] * size, 200)


# A review has a digest of its own: that of its canonical JSON.


def test_the_digest_is_that_of_the_canonical_json() -> None:
    fields = {"log": 'a\n"é"\x1f\u2028', "branch": None, "reverse_diffs": {"\U0001f600": "1", "\ufb33": "2", "a": "3"}}
    text = '{"branch":null,"log":"a\\n\\"é\\"\\u001f\u2028","reverse_diffs":{"a":"3","\U0001f600":"1","\ufb33":"2"}}'
    assert review_json(fields) == text


diffs = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=5)


@given(diffs, st.lists(st.text(max_size=5), max_size=3))
def test_the_order_of_fields_does_not_change_the_digest(diffs: dict[str, str], commits: list[str]) -> None:
    fields = {"commits": commits, "reverse_diffs": diffs}
    turned = {"reverse_diffs": dict(reversed(diffs.items())), "commits": commits}
    assert review_json(fields) == review_json(turned)
    assert review_json(fields) != review_json({**fields, "commits": [*commits, ""]})
    assert review_json(fields) != review_json({**fields, "log": ""})

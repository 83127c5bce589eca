"""The chunks of the symbol map: of about the same size, and each path stays in its own."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context import CHUNKS, MOST_ALIASES, MapChunks, legend_for, shorten
from tests.growth import assert_linear

_SIZES = st.dictionaries(st.text("abc/", min_size=1, max_size=6), st.integers(1, 5_000), min_size=1, max_size=40)


def test_the_first_paths_are_shared_out_in_their_order() -> None:
    sizes = dict.fromkeys("hgfedcba", 10)
    chunks = MapChunks().with_paths(sizes)

    assert chunks.shown(sizes) == [["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]]


def test_a_path_that_is_not_shown_for_a_while_comes_back_to_its_chunk() -> None:
    sizes = dict.fromkeys("abcdefgh", 10)
    chunks = MapChunks().with_paths(sizes)
    without = {path: size for path, size in sizes.items() if path != "c"}

    assert chunks.with_paths(without).shown(without) == [["a", "b"], ["d"], ["e", "f"], ["g", "h"]]
    assert chunks.with_paths(without).with_paths(sizes).shown(sizes) == chunks.shown(sizes)


def test_a_new_path_goes_to_the_last_chunk() -> None:
    sizes = dict.fromkeys("bcdefghi", 10)
    more = {"a": 10, **sizes}

    assert MapChunks().with_paths(sizes).with_paths(more).shown(more)[-1] == ["a", "h", "i"]


def test_a_very_long_map_has_more_chunks_so_that_each_can_be_recognised() -> None:
    sizes = {f"{number:04}": 1_000 for number in range(2_000)}
    chunks = MapChunks().with_paths(sizes)

    assert chunks.count == 8
    assert max(len(chunk) for chunk in chunks.shown(sizes)) == 250


@given(st.lists(_SIZES, min_size=1, max_size=5))
def test_every_path_is_shown_once_and_never_leaves_its_chunk(requests: Sequence[Mapping[str, int]]) -> None:
    chunks = MapChunks()
    for sizes in requests:
        new = chunks.with_paths(sizes)
        assert new.count == CHUNKS
        assert sorted(path for chunk in new.shown(sizes) for path in chunk) == sorted(sizes)
        assert all(new.places[path] == place for path, place in chunks.places.items())
        chunks = new


# Aliases of directories: worth their line, never changed, and never given above a path that was shown.


PATHS = [f"services/billing/internal/file{number}.py" for number in range(6)]
NEW = [f"services/shipping/internal/file{number}.py" for number in range(6)]

paths = st.lists(
    st.lists(
        st.sampled_from(["services", "internal_packages", "a", "@1", "very_long_name_of_a_folder"]), max_size=5
    ).map(lambda parts: "/".join([*parts, "file.py"]))
    | st.from_regex(r"(?:longer_directory/){0,3}[a-f]{1,3}\.py", fullmatch=True),
    max_size=40,
)


def test_a_directory_with_many_paths_has_an_alias() -> None:
    aliases = legend_for(PATHS, {})
    assert aliases == {"services/billing/internal": "@1"}
    assert shorten(PATHS[0], aliases) == "@1/file0.py"


def test_a_directory_that_saves_little_has_none() -> None:
    assert legend_for(["a/b.py", "a/c.py", "a/d.py", "a/e.py"], {}) == {}
    assert legend_for(PATHS[:3], {}) == {}


def test_small_directories_share_the_alias_of_the_one_above_them() -> None:
    spread = [f"src/main/java/com/example/part{number}/Only.java" for number in range(9)]
    assert legend_for(spread, {}) == {"src/main/java/com/example": "@1"}


def test_new_aliases_are_appended_behind_those_that_were_given() -> None:
    given = legend_for(PATHS, {})
    later = legend_for(PATHS + NEW, given, settled=PATHS)
    assert list(later.items()) == [("services/billing/internal", "@1"), ("services/shipping/internal", "@2")]


def test_a_directory_that_was_shown_without_an_alias_gets_none_later() -> None:
    few = PATHS[:3]
    assert legend_for(few, {}) == {}
    assert legend_for(PATHS, {}, settled=few) == {}


def test_the_longest_directory_with_an_alias_counts() -> None:
    aliases = {"a": "@1", "a/b": "@2"}
    assert shorten("a/b/c.py", aliases) == "@2/c.py"
    assert shorten("a/bc.py", aliases) == "@1/bc.py"
    assert shorten("ab/c.py", aliases) == "ab/c.py"


def test_a_path_that_looks_aliased_is_told_apart() -> None:
    assert shorten("@1/c.py", {}) == "./@1/c.py"


def test_the_number_of_aliases_is_bounded() -> None:
    many = [f"some/long/directory{number}/file{one}.py" for number in range(100) for one in range(8)]
    assert len(legend_for(many, {})) == MOST_ALIASES


@given(paths, paths)
def test_what_was_given_stays_and_blocks_that_were_sent_keep_their_paths(first: list[str], second: list[str]) -> None:
    before = legend_for(first, {})
    after = legend_for(first + second, before, settled=first)
    assert list(after.items())[: len(before)] == list(before.items())
    assert [shorten(path, after) for path in first] == [shorten(path, before) for path in first]


@given(paths)
def test_the_order_of_paths_does_not_count_and_short_paths_are_told_apart(some: list[str]) -> None:
    aliases = legend_for(some, {})
    assert legend_for(some[::-1], {}) == aliases
    assert len({shorten(path, aliases) for path in some}) == len(set(some))


@pytest.mark.parametrize("make", [lambda n: ["x/" * n + "y"] * 2, lambda n: [f"{i % 97}/{i}/f" for i in range(n)]])
def test_the_work_is_linear(make) -> None:
    assert_linear(lambda some: legend_for(some, {}), lambda n: Paths(make(n)), 3_000)


class Paths(list[str]):
    """Paths whose size is that of their letters."""

    def __len__(self) -> int:
        return sum(map(len, self))

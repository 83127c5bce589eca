"""The chunks of the symbol map: of about the same size, and each path stays in its own."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.structured.symbols import CHUNKS, MapChunks

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

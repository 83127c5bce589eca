from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.value import DIGEST_BYTES, chain, digest


@given(st.lists(st.binary(max_size=5), max_size=4), st.lists(st.binary(max_size=5), max_size=4))
def test_equal_exactly_for_equal_parts(left: list[bytes], right: list[bytes]) -> None:
    assert (digest(*left) == digest(*right)) == (left == right)


def test_where_a_part_ends_counts() -> None:
    assert len({digest(b"ab", b"c"), digest(b"a", b"bc"), digest(b"abc"), digest(b"ab", b"c", b"")}) == 4


def test_a_chain_depends_on_all_before() -> None:
    items = [digest(bytes([n])) for n in range(4)]
    states = [b"\0" * DIGEST_BYTES]
    for item in items:
        states.append(chain(states[-1], item))
    other = [b"\0" * DIGEST_BYTES]
    for item in [items[0], items[2], items[1], items[3]]:
        other.append(chain(other[-1], item))
    assert [a == b for a, b in zip(states, other, strict=True)] == [True, True, False, False, False]
    assert all(len(state) == DIGEST_BYTES for state in states)
    assert len(set(states)) == len(states)
    assert all(one != two for one, two in pairwise(states))

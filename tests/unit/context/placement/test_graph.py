"""The first placement of symbols: clusters of mutual references, and what takes their place where there are none."""

import random
from collections.abc import Mapping

import pytest

from proxy.context.placement import first_tiers, mutual_clusters
from proxy.planner.tiers import Tier
from tests.examples import for_every
from tests.growth import assert_linear

TEN = "a1 b1 c1 d1 e1 f1 g1 h1 i1 j1"
References = dict[str, frozenset[str]]


def edges(text: str) -> References:
    """``a-b`` is a mutual reference, ``a>b`` one of a to b."""
    found: dict[str, set[str]] = {}
    for word in text.split():
        one, other = word.replace("-", ">").split(">")
        found.setdefault(one, set()).add(other)
        if "-" in word:
            found.setdefault(other, set()).add(one)
    return {path: frozenset(others) for path, others in found.items()}


def sizes(text: str) -> dict[str, int]:
    """``a10 b20``: paths of one letter with their tokens."""
    return {word[0]: int(word[1:]) for word in text.split()}


def tiers(found: Mapping[str, Tier]) -> str:
    """``L1:ab L2:c``"""
    names: dict[str, str] = {}
    for path, tier in found.items():
        names[tier.name] = names.get(tier.name, "") + path
    return " ".join(f"{tier}:{paths}" for tier, paths in names.items())


@for_every(
    [
        ("no path, no cluster", "", "", []),
        ("a path without references is a cluster of its own", "ab", "", ["a", "b"]),
        ("a reference in one direction connects nothing", "ab", "a>b", ["a", "b"]),
        ("a mutual reference connects", "ab", "a-b", ["ab"]),
        ("a chain of mutual references is one cluster", "abcd", "a-b b-c c-d", ["abcd"]),
        ("two pairs are two clusters", "abcd", "a-c b-d", ["ac", "bd"]),
        ("a path that refers to itself is alone", "ab", "a-a", ["a", "b"]),
        ("a path that is not asked for connects nothing", "ac", "a-b b-c", ["a", "c"]),
        ("a ring is one cluster", "abc", "a-b b-c c-a", ["abc"]),
        ("the last edge joins two clusters", "abcd", "a-b c-d d-a", ["abcd"]),
    ]
)
def test_clusters(says: str, paths: str, references: str, clusters: list[str]) -> None:
    assert ["".join(found) for found in mutual_clusters(list(paths), edges(references))] == clusters, says


@for_every(
    [
        ("nothing to place", "", "", 100, ""),
        ("the largest cluster is L1, the next L2, the next L3", "a30 b30 c40 d20", "a-b", 0, "L1:ab L2:c L3:d"),
        ("the fourth joins the tier with the fewest tokens", "a30 b30 c40 d20 e10", "a-b", 0, "L1:ab L2:c L3:de"),
        ("of equally small tiers L1 comes before L2 and L3", "a10 b10 c10 d10 e10", "a-b", 0, "L1:ab L2:ce L3:d"),
        ("equal clusters follow their first path", "a1 b1 c1 d1 e1 f1", "a-f b-e c-d", 0, "L1:af L2:be L3:cd"),
        ("a cluster is never parted", "a10 b10 c10 d10", "a-b b-c c-d", 0, "L1:abcd"),
        ("a reference from a path that is not placed makes no cluster", "a10 b10", "a-x x-b", 0, "L2:a L3:b"),
        ("L3 below the target joins the smallest other tier", "a90 b90 c80 d5", "a-b", 50, "L1:ab L2:cd"),
        ("two small tiers follow each other into the one that is large", "a50 b50 c9 d8", "a-b", 60, "L1:abcd"),
        ("L2 is looked at after L3 has joined it", "a50 b50 c40 d30", "a-b", 60, "L1:ab L2:cd"),
        ("a single tier below the target stays", "a10 b10", "a-b", 100, "L1:ab"),
        ("without a target small tiers stay", "a50 b50 c9 d8", "a-b", 0, "L1:ab L2:c L3:d"),
        ("no clusters: the most referenced fill L1 first", "a6 b6 c6 d6", "a>d b>d c>d a>c", 5, "L1:d L2:c L3:ab"),
        ("no clusters: L1 takes what reaches the target", "a4 b4 c4 d4", "a>d b>d c>d a>c", 5, "L1:cd L2:ab"),
        ("no clusters: L2 ends at the target, the others are L3", "a60 b60 c60 d60", "", 100, "L1:ab L2:cd"),
        ("no clusters, no target: a fifth, up to the half, the others", TEN, "", 0, "L1:ab L2:cde L3:fghij"),
        ("no clusters: below five paths nothing is in L1", "a1 b1 c1 d1", "", 0, "L2:ab L3:cd"),
        ("no clusters and no sizes: shares, whatever the target", "a0 b0 c0 d0 e0", "a>e", 100, "L1:e L2:a L3:bcd"),
        ("references from paths that are not placed count", "a1 b1 c1 d1 e1", "x>c y>c x>b", 0, "L1:c L2:b L3:ade"),
        ("a reference to itself does not count", "a1 b1 c1 d1 e1", "c>c d>e", 0, "L1:e L2:a L3:bcd"),
    ]
)
def test_first_tiers(says: str, tokens: str, references: str, target: int, expected: str) -> None:
    assert tiers(first_tiers(sizes(tokens), edges(references), target)) == expected, says


def test_l0_is_filled_by_the_most_referenced_where_it_has_a_target() -> None:
    found = first_tiers(sizes("a10 b10 c10 d10 e10"), edges("a>e b>e a>d c>d a-b"), 0, l0_target=15)
    assert tiers(found) == "L0:de L1:ab L2:c"
    assert tiers(first_tiers(sizes("a10"), {}, 0, l0_target=15)) == "L0:a"


def graph(paths: int) -> References:
    made, names = random.Random(paths), [f"src/{number:05}.py" for number in range(paths)]
    found = {name: set(made.sample(names, 8)) for name in names}
    for name in names:
        other = made.choice(names)
        found[name].add(other)
        found[other].add(name)
    return {name: frozenset(others) for name, others in found.items()}


def test_the_order_of_the_clients_lists_changes_nothing() -> None:
    references = graph(300)
    tokens = {path: 20 + len(others) for path, others in references.items()}
    backwards = {path: frozenset(sorted(references[path], reverse=True)) for path in reversed(references)}
    found = list(first_tiers(tokens, references, 500).items())
    assert found == list(first_tiers(dict(reversed(tokens.items())), backwards, 500).items())
    assert {path for path, _ in found} == set(references)
    assert [tier for _, tier in found] == sorted(tier for _, tier in found)


@pytest.mark.slow
def test_time_grows_with_paths_and_references() -> None:
    assert_linear(lambda references: first_tiers(dict.fromkeys(references, 50), references, 1126), graph, 3_000)


@pytest.mark.slow
def test_a_long_chain_is_joined_in_time() -> None:
    def chain(length: int) -> References:
        return {f"{n:06}": frozenset({f"{n - 1:06}", f"{n + 1:06}"}) for n in range(length)}

    assert_linear(lambda references: mutual_clusters(list(references), references), chain, 10_000)

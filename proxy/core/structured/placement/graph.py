"""The first places of symbols, before any response. Symbols that refer to each other are cached together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

from proxy.core.layout.tiers import Tier

_FIRST = (Tier.L1, Tier.L2, Tier.L3)
"""The tiers of the first placement. An item reaches L0 by unchanged responses, unless L0 has a target of its own."""

References = Mapping[str, frozenset[str]]


def first_tiers(tokens: Mapping[str, int], references: References, target: int, l0_target: int = 0) -> dict[str, Tier]:
    """The tier of each path in ``tokens``. ``tokens`` gives the tokens of the text that is sent for each path. The
    result is in sending order: by tier, then by path.

    ``references`` are the paths that a path refers to; paths that are not in ``tokens`` count only as sources of
    references. ``target`` is the number of tokens that a tier should hold; 0 means that no size is set. If
    ``l0_target`` is above 0, the most referenced paths first fill L0 up to that number of tokens. The rules are those
    of the tiered assembly. Apart from sorting, the time is linear in the number of paths and references.
    """
    top = _most_referenced(tokens, references, l0_target) if l0_target > 0 else []
    left = dict(tokens)
    for path in top:
        del left[path]
    clusters = mutual_clusters(sorted(left), references)
    if any(len(cluster) > 1 for cluster in clusters):
        found = _packed(clusters, left, target)
    else:
        found = _by_references(left, references, target)
    found |= dict.fromkeys(top, Tier.L0)
    return {path: found[path] for path in sorted(found, key=lambda path: (found[path], path))}


def mutual_clusters(paths: Sequence[str], references: References) -> list[list[str]]:
    """The connected components of mutual references: two paths are connected if each refers to the other. A path
    without a mutual reference is a cluster of its own. Clusters and their members keep the order of ``paths``."""
    place = {path: index for index, path in enumerate(paths)}
    left = set(paths)
    clusters: list[list[str]] = []
    for first in paths:
        if first not in left:
            continue
        left.remove(first)
        cluster = [first]
        for path in cluster:  # the list grows during the loop
            found = [other for other in references.get(path, ()) if other in left and path in references.get(other, ())]
            left.difference_update(found)
            cluster += found
        clusters.append(sorted(cluster, key=place.__getitem__))
    return clusters


def _packed(clusters: Sequence[list[str]], tokens: Mapping[str, int], target: int) -> dict[str, Tier]:
    """The tier of each path. The clusters are placed one by one, the largest first, each into the tier that holds the
    fewest tokens so far."""
    sized = sorted(((sum(tokens[path] for path in cluster), cluster) for cluster in clusters), key=lambda c: -c[0])
    sizes = dict.fromkeys(_FIRST, 0)
    members: dict[Tier, list[str]] = {tier: [] for tier in _FIRST}
    for size, cluster in sized:
        tier = min(_FIRST, key=lambda tier: sizes[tier])
        sizes[tier] += size
        members[tier] += cluster
    _merge_small(sizes, members, target)
    return {path: tier for tier in _FIRST for path in members[tier]}


def _merge_small(sizes: dict[Tier, int], members: dict[Tier, list[str]], target: int) -> None:
    """A tier with fewer tokens than the target joins the smallest other tier that holds anything. L3 is checked first,
    L1 last."""
    for tier in reversed(_FIRST):
        others = [other for other in _FIRST if other is not tier and sizes[other] > 0]
        if 0 < sizes[tier] < target and others:
            smallest = min(others, key=lambda other: sizes[other])
            sizes[smallest] += sizes[tier]
            members[smallest] += members[tier]
            sizes[tier], members[tier] = 0, []


def _ranked(paths: Mapping[str, int], references: References) -> list[str]:
    """The paths sorted by how many other paths refer to them, the most first. Equal ones are sorted by name."""
    incoming = Counter(other for path, others in references.items() for other in others if other != path)
    return sorted(paths, key=lambda path: (-incoming[path], path))


def _by_references(tokens: Mapping[str, int], references: References, target: int) -> dict[str, Tier]:
    """The most referenced paths fill L1 up to the target, the next ones L2, and the others are L3. Without sizes or
    without a target, L1 is the first fifth of the paths, and L2 goes on to the half."""
    ranked = _ranked(tokens, references)
    if target <= 0 or not any(tokens.values()):
        fifth, half = len(ranked) // 5, len(ranked) // 2
        return {p: Tier.L1 if i < fifth else Tier.L2 if i < half else Tier.L3 for i, p in enumerate(ranked)}
    found, tier, size = {}, Tier.L1, 0
    for path in ranked:
        if tier is not Tier.L3 and size >= target:
            tier, size = Tier(tier + 1), 0
        found[path] = tier
        size += tokens[path]
    return found


def _most_referenced(tokens: Mapping[str, int], references: References, target: int) -> list[str]:
    ranked = _ranked(tokens, references)
    before = accumulate([tokens[path] for path in ranked], initial=0)
    return [path for path, size in zip(ranked, before, strict=False) if size < target]

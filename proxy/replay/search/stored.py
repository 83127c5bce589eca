"""The search's model of a provider that stores every prefix for free: only the order is to be chosen."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.core.providers import CacheProfile, Family
from proxy.core.request.element import Element
from proxy.replay.search.horizons import HORIZONS, LOOK_AHEAD
from proxy.replay.search.orders import Orders
from proxy.replay.search.scene import Shot
from proxy.replay.search.tree import Path, Tree

_REMEMBERED = 3


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent so far: when each element's node was last passed, each cohort's latest orders, and how many tokens
    each of the next requests could read."""

    nodes: Mapping[int, float]
    orders: Mapping[int, tuple[tuple[bytes, ...], ...]]
    reads: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Line:
    """A path by whole elements: the node behind each, and the tokens up to its end."""

    nodes: tuple[int, ...]
    ends: tuple[int, ...]
    keys: tuple[bytes, ...]
    masks: tuple[int, ...]


class Stored:
    """Costs and successors of states under a grid or unit profile."""

    def __init__(self, profile: CacheProfile, shots: Sequence[Shot], tree: Tree) -> None:
        self._profile = profile
        self._shots = shots
        self._tree = tree
        self._lines: dict[int, _Line] = {}
        self._children: dict[int, dict[int, bytes]] = {}
        self._slices: dict[bytes, tuple[tuple[bytes, int], ...]] = {}

    def start(self) -> Sent:
        """Nothing was sent."""
        return Sent({}, {}, {})

    def live(self, state: Sent, at: float) -> Sent:
        """The state without expired nodes."""
        oldest = at - self._profile.life_s
        return Sent({n: t for n, t in state.nodes.items() if t > oldest}, state.orders, state.reads)

    def orders(self, state: Sent, shot: Shot, orders: Orders) -> Iterator[tuple[Element, ...]]:
        """Every order that is worth trying in this state."""
        yield orders.natural()
        yield from orders.cold()
        for before in state.orders.get(shot.cohort, ()):
            yield from orders.behind(before, shorten=True)

    def steps(self, state: Sent, shot: Shot, path: Path) -> Iterator[tuple[float, tuple[int, ...], Sent]]:
        """The one successor: the cost now and what is stored after."""
        profile, line = self._profile, self._line(path, shot)
        reach = 0
        while reach < len(line.nodes) and line.nodes[reach] in state.nodes:
            reach += 1
        hit = line.ends[reach - 1] if reach else 0
        if reach < len(line.nodes):
            parent = line.nodes[reach - 1] if reach else 0
            hit += self._partial(state, parent, line.keys[reach])
        last = path.total - 1 if profile.family is Family.GRID else path.total
        read = min(hit, last) // profile.step * profile.step
        if read < profile.min_tokens:
            read = 0
        nodes = {**state.nodes, **dict.fromkeys(line.nodes, shot.at)}
        latest = (path.digests, *(o for o in state.orders.get(shot.cohort, ()) if o != path.digests))[:_REMEMBERED]
        reads = {j: tokens for j, tokens in state.reads.items() if j > shot.index}
        for j in shot.following[:LOOK_AHEAD]:
            held = max((end for end, mask in zip(line.ends, line.masks, strict=True) if mask >> j & 1), default=0)
            reads[j] = max(reads.get(j, 0), held)
        yield read * profile.read + (path.total - read), (), Sent(nodes, {**state.orders, shot.cohort: latest}, reads)

    def worth(self, state: Sent, index: int) -> list[float]:
        """What is expected to be saved by the next requests of every cohort, by each horizon."""
        totals, seen = [0.0] * len(HORIZONS), dict[int, int]()
        for j in sorted(state.reads):
            cohort = self._shots[j].cohort
            number = seen[cohort] = seen.get(cohort, -1) + 1
            if j > index and number < LOOK_AHEAD:
                for horizon, weights in enumerate(HORIZONS):
                    totals[horizon] += weights[number] * state.reads[j] * (1 - self._profile.read)
        return totals

    def key(self, state: Sent) -> object:
        """A key that is equal for states that are the same from here on."""
        return tuple(sorted(state.nodes.items()))

    def _line(self, path: Path, shot: Shot) -> _Line:
        known = self._lines.get(path.number)
        if known is not None:
            return known
        nodes, ends, keys, masks = [], [], [], []
        parent = 0
        for position, index in enumerate(path.element):
            if position + 1 < len(path.element) and path.element[position + 1] == index:
                continue
            piece = self._tree.piece(shot, path.elements, index)
            node = path.nodes[position]
            nodes.append(node)
            ends.append(path.ends[position])
            keys.append(piece.key)
            masks.append(path.masks[position])
            self._slices[piece.key] = piece.slices
            self._children.setdefault(parent, {})[node] = piece.key
            parent = node
        found = self._lines[path.number] = _Line(tuple(nodes), tuple(ends), tuple(keys), tuple(masks))
        return found

    def _partial(self, state: Sent, parent: int, key: bytes) -> int:
        """The tokens that the next element shares with elements that were sent in its place."""
        best = 0
        mine = self._slices[key]
        for node, other in self._children.get(parent, {}).items():
            if node in state.nodes:
                best = max(best, _common(mine, self._slices[other]))
        return best


def _common(one: Sequence[tuple[bytes, int]], other: Sequence[tuple[bytes, int]]) -> int:
    tokens = 0
    for (mine, end), (theirs, _) in zip(one, other, strict=False):
        if mine != theirs:
            break
        tokens = end
    return tokens

"""The search's model of a provider whose entries stand at markers: states, marker choices, costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from proxy.core.providers import CacheProfile
from proxy.core.request.element import Element, ElementKind
from proxy.replay.search.horizons import HORIZONS, LOOK_AHEAD
from proxy.replay.search.orders import Orders
from proxy.replay.search.scene import Shot
from proxy.replay.search.tree import Path

_MAX_STOPS = 7


@dataclass(frozen=True, slots=True)
class MarkedEntry:
    """A live entry: until when it lives, its tokens, the requests that could begin with it, and the order in which it
    was sent."""

    expiry: float
    tokens: int
    mask: int
    digests: tuple[bytes, ...]


State = Mapping[int, MarkedEntry]


class Marked:
    """Costs and successors of states under a marker profile (5-minute life)."""

    def __init__(self, profile: CacheProfile, shots: Sequence[Shot]) -> None:
        self._profile = profile
        self._shots = shots
        self._gain = profile.write - profile.read
        self._stops: dict[int, list[int]] = {}
        # Per request: for each cohort, its next requests.
        self._ahead: list[list[tuple[int, ...]]] = []
        for shot in shots:
            cohorts: dict[int, list[int]] = {}
            for later in shots[shot.index + 1 :]:
                ahead = cohorts.setdefault(later.cohort, [])
                if len(ahead) < LOOK_AHEAD:
                    ahead.append(later.index)
            self._ahead.append([tuple(ahead) for ahead in cohorts.values()])

    def start(self) -> State:
        """Nothing is held."""
        return {}

    def live(self, state: State, at: float) -> State:
        """The state without expired entries."""
        return {node: held for node, held in state.items() if at < held.expiry}

    def orders(self, state: State, shot: Shot, orders: Orders) -> Iterator[tuple[Element, ...]]:
        """Every order that is worth trying in this state."""
        yield orders.natural()
        yield from orders.cold()
        for before in {held.digests for held in state.values() if held.mask >> shot.index & 1}:
            yield from orders.behind(before, shorten=False)

    def steps(self, state: State, shot: Shot, path: Path) -> Iterator[tuple[float, tuple[int, ...], State]]:
        """Marker choices: the cost now, the positions, and what is held after; ``state`` holds live entries only."""
        profile, ends = self._profile, path.ends
        if path.total < profile.min_tokens:
            yield float(path.total), (), state
            return
        hit = max((path.place[node] for node in state if node in path.place), default=-1)
        stops = self._stops_of(path, shot)
        behind = [p for p in stops if p > hit]
        for deepest in [None, *behind]:
            wanted = [p for p in behind if deepest is not None and p <= deepest]
            marks = self._chosen(path, shot, hit, wanted)
            if marks is None:
                continue
            found = self._lookup(state, path, marks)
            read = ends[found] if found >= 0 else 0
            written = max(read, ends[marks[-1]]) if marks else read
            cost = read * profile.read + (written - read) * profile.write + (path.total - written)
            yield cost, marks, self._after(state, shot, path, marks, found)

    def worth(self, state: State, index: int) -> list[float]:
        """What the entries are expected to save in the next requests of every cohort, by each horizon."""
        totals = [0.0] * len(HORIZONS)
        for ahead in self._ahead[index]:
            alive = list(state.values())
            before = None
            for distance, j in enumerate(ahead):
                at = self._shots[j].at
                renewed = before is not None and at - self._shots[before].at < self._profile.life_s
                alive = [h for h in alive if at < h.expiry or (renewed and before is not None and h.mask >> before & 1)]
                tokens = max((h.tokens for h in alive if h.mask >> j & 1), default=0) * self._gain
                for horizon, weights in enumerate(HORIZONS):
                    totals[horizon] += weights[distance] * tokens
                before = j
        return totals

    def key(self, state: State) -> object:
        """A key that is equal for states that are the same from here on."""
        return tuple(sorted((node, held.expiry) for node, held in state.items()))

    def _stops_of(self, path: Path, shot: Shot) -> list[int]:
        """The positions behind which fewer requests could follow. Where there are too many, those with the greatest
        difference in tokens count."""
        known = self._stops.get(path.number)
        if known is not None:
            return known
        profile = self._profile
        found: list[int] = []
        waiting = -1
        first = self._first_markable(path)
        for position, mask in enumerate(path.masks):
            if mask == 0:
                break
            if position >= first and path.markable[position] and path.ends[position] >= profile.min_tokens:
                waiting = position
            following = path.masks[position + 1] if position + 1 < len(path.masks) else 0
            if following != mask and waiting >= 0 and self._is_in_time(path.masks[waiting], shot):
                found.append(waiting)
                waiting = -1
        if len(found) > _MAX_STOPS:
            found = self._thinned(path, shot, found)
        self._stops[path.number] = found
        return found

    def _first_markable(self, path: Path) -> int:
        """Not every provider takes a marker on tools."""
        if self._profile.tool_mark or path.elements[0].kind is not ElementKind.TOOLS:
            return 0
        return next((p for p, e in enumerate(path.element) if e > 0), len(path.element))

    def _is_in_time(self, mask: int, shot: Shot) -> bool:
        """Whether the first request that could read an entry here comes before it expires."""
        first = (mask & -mask).bit_length() - 1
        return self._shots[first].at - shot.at < self._profile.life_s

    def _thinned(self, path: Path, shot: Shot, stops: list[int]) -> list[int]:
        soon = shot.following[0] if shot.following else -1
        need = [p for p in stops if soon >= 0 and path.masks[p] >> soon & 1][-1:]
        gaps = [path.ends[p] - (path.ends[stops[i - 1]] if i else 0) for i, p in enumerate(stops)]
        ranked = [p for _, p in sorted(zip(gaps, stops, strict=True), reverse=True) if p not in need]
        return sorted([*need, *ranked[: _MAX_STOPS - len(need)]])

    def _chosen(self, path: Path, shot: Shot, hit: int, wanted: list[int]) -> tuple[int, ...] | None:
        """At most so many markers: the deepest wanted one, one that finds the entry, and of the others those whose
        absence would cost most. None where nothing can be marked as wanted."""
        slots = shot.slots
        if slots <= 0:
            return None if wanted else ()
        fixed: list[int] = wanted[-1:]
        if hit >= 0 and not any(0 <= path.runs[p] - path.runs[hit] < self._profile.lookback for p in wanted[:1]):
            finder = self._finder(path, hit)
            if finder is None:
                return None
            fixed = sorted({*fixed, finder})
        others = [p for p in wanted if p not in fixed]
        room = slots - len(fixed)
        if room < 0:
            return None
        if len(others) <= room:
            best: tuple[int, ...] = tuple(others)
        else:
            best = min(combinations(others, room), key=lambda some: self._loss(path, hit, wanted, {*some, *fixed}))
        return tuple(sorted({*best, *fixed}))

    def _finder(self, path: Path, hit: int) -> int | None:
        for position in range(hit, len(path.nodes)):
            if path.runs[position] - path.runs[hit] >= self._profile.lookback:
                return None
            if path.markable[position]:
                return position
        return None

    @staticmethod
    def _loss(path: Path, hit: int, wanted: Sequence[int], marks: set[int]) -> int:
        loss, held = 0, path.ends[hit] if hit >= 0 else 0
        for position in wanted:
            if position in marks:
                held = path.ends[position]
            else:
                loss += path.ends[position] - held
        return loss

    def _lookup(self, state: State, path: Path, marks: Sequence[int]) -> int:
        """The position that the provider finds: it goes back from each marker by a limited number of runs."""
        nodes, runs, ends = path.nodes, path.runs, path.ends
        for mark in reversed(marks):
            last = runs[mark] - self._profile.lookback
            position = mark
            while position >= 0 and runs[position] > last and ends[position] >= self._profile.min_tokens:
                if nodes[position] in state and (position == mark or runs[position] != runs[position + 1]):
                    return position
                position -= 1
        return -1

    def _after(self, state: State, shot: Shot, path: Path, marks: Sequence[int], hit: int) -> State:
        expiry = shot.at + self._profile.life_s
        after = {}
        for node, held in state.items():
            if path.place.get(node, len(path.nodes)) <= hit:
                held = MarkedEntry(max(held.expiry, expiry), held.tokens, held.mask, held.digests)
            after[node] = held
        for position in marks:
            if position > hit:
                digests = path.digests[: path.element[position] + 1]
                after[path.nodes[position]] = MarkedEntry(expiry, path.ends[position], path.masks[position], digests)
        return after

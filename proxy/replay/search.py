"""Searches for the cheapest feasible way to serve a recorded session whose future is known.

A session comes in; the requests as they would be sent go out. It is a beam search over everything that the product may
do. It uses the product's own material: the same movable pieces, valid orders and places for markers, and the same cache
models. So its result is feasible, but not proven to be the best. The product never searches like this.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from proxy.core.caches import Cache, make_cache
from proxy.core.caches.prompt import Life
from proxy.core.layout.breakpoints import place
from proxy.core.layout.layout import Layout
from proxy.core.layout.orders import RequestElements
from proxy.core.layout.render import render_messages, render_tools
from proxy.core.providers import CacheProfile, Family
from proxy.core.recognition.pieces import Recogniser
from proxy.core.request.tokens import Encode
from proxy.core.sessions.snapshot import held_along, hold
from proxy.core.shadow.shadow_caches import cost_of
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Unreadable, splice
from proxy.errors import UpstreamRejected
from proxy.replay.shots import LOOK_AHEAD, Shot, ShotReader
from proxy.replay.trace import Step

DEFAULT_WIDTH = 16
HORIZONS = (
    (1.0, 0.0, 0.0, 0.0, 0.0),
    (1.0, 0.5, 0.25, 0.1, 0.0),
    (1.0, 1.0, 0.6, 0.3, 0.1),
    (1.0, 1.0, 1.0, 1.0, 1.0),
)
"""Weights of the next requests for the comparison of two states. No weights are best everywhere, so the beam keeps the
best states by each: near-sighted weights count what the next request reads, far-sighted ones count an entry for each
later reader."""
_REMEMBERED = 3


@dataclass(slots=True)
class _Node:
    """A way to send the requests so far. ``orders`` are the latest orders that were sent, by cohort, the newest first.
    ``promised`` are the tokens that later requests could read, by index."""

    cost: float
    cache: Cache
    orders: Mapping[int, tuple[Layout, ...]]
    promised: Mapping[int, int]
    sent: Layout | None = None
    marks: Mapping[int, Life] | None = None
    before: "_Node | None" = None


def find_layouts(
    steps: Sequence[Step],
    profile: CacheProfile,
    encode: Encode,
    recognisers: Sequence[Recogniser],
    width: int = DEFAULT_WIDTH,
) -> list[tuple[bytes, float]] | None:
    """The best way found to send these requests: the body of each, and its cost as the search estimates it, in tokens
    at the plain price. None if they cannot be searched."""
    if profile.family is Family.NONE:
        return None
    try:
        shots = ShotReader(profile, encode, recognisers).read(steps)
    except (Unreadable, UpstreamRejected):
        return None
    node: _Node | None = _Search(profile, shots).run(width)
    found: list[tuple[bytes, float]] = []
    for shot in reversed(shots):
        assert node is not None
        assert node.sent is not None
        assert node.before is not None
        found.append((_body(shot, node.sent, node.marks or {}, profile), node.cost - node.before.cost))
        node = node.before
    return found[::-1]


class _Search:
    """The beam, on the cache models that bill the product."""

    def __init__(self, profile: CacheProfile, shots: Sequence[Shot]) -> None:
        self._profile, self._shots = profile, shots
        self._holders: dict[bytes, int] = {}
        """The requests that could hold an element, as bits, by the element's digest."""
        for shot in shots:
            for digest in {digest for material in shot.materials for digest in _digests(material)}:
                self._holders[digest] = self._holders.get(digest, 0) | 1 << shot.index

    def run(self, width: int) -> _Node:
        """The cheapest way that was found."""
        beam = [_Node(0.0, make_cache(self._profile), {}, {})]
        for shot in self._shots:
            beam = self._best(shot, self._sent(shot, beam), width)
            for node in beam:
                assert node.sent is not None
                node.cache = self._twin(node)
                node.cache.store(node.sent.prompt(dict(node.marks or {})), shot.at, shot.at)
        return min(beam, key=lambda node: node.cost)

    def _twin(self, node: _Node) -> Cache:
        """A separate cache for a node. It holds the entries of its parent's cache along the orders that may be
        continued."""
        twin = make_cache(self._profile)
        for layout in (layout for sent in node.orders.values() for layout in sent):
            hold(twin, held_along(node.cache, layout.prompt({})))
        return twin

    def _sent(self, shot: Shot, beam: Sequence[_Node]) -> list[_Node]:
        """The ways to send one more request. If several ways promise the same, only the cheapest is kept."""
        natural = Layout(shot.seed, shot.materials[0].natural)
        layouts: dict[tuple[bytes, ...], tuple[Layout, list[int]]] = {}
        found: dict[object, _Node] = {}
        for before in beam:
            earlier = before.orders.get(shot.cohort, ())
            for order in shot.orders([one.digests for one in earlier]):
                key = tuple(element.digest for element in order)
                if key not in layouts:
                    layout = Layout(shot.seed, order, natural)
                    layouts[key] = layout, self._readers(shot, layout)
                layout, readers = layouts[key]
                latest = (layout, *(one for one in earlier if one.digests != layout.digests))[:_REMEMBERED]
                for node in self._marked(shot, before, layout, readers, {**before.orders, shot.cohort: latest}):
                    same = (key, *sorted(node.promised.items()))
                    if same not in found or node.cost < found[same].cost:
                        found[same] = node
        return list(found.values())

    def _readers(self, shot: Shot, layout: Layout) -> list[int]:
        """For each position: the later requests, as bits, that could begin with everything up to it."""
        mask = sum(1 << later for later in shot.ahead if self._shots[later].seed == shot.seed)
        held = accumulate(layout.digests, lambda mask, digest: mask & self._holders.get(digest, 0), initial=mask)
        return [mask for mask, element in zip(list(held)[1:], layout.elements, strict=True) for _ in element.parts]

    def _marked(
        self,
        shot: Shot,
        before: _Node,
        layout: Layout,
        readers: Sequence[int],
        orders: Mapping[int, tuple[Layout, ...]],
    ) -> Iterator[_Node]:
        """One order without new markers, and the same order with the markers that pay by each horizon."""
        profile, held = self._profile, before.cache.held(layout.prompt({}), shot.at)
        choices: dict[tuple[int, ...], None] = {}
        for weights in ((0.0,) * LOOK_AHEAD, *HORIZONS):
            worth = {1 << later: weights[rank] for later, rank in shot.ahead.items()}
            whole = sum(worth.values()) or 1.0
            sums = {mask: sum(one for bit, one in worth.items() if mask & bit) / whole for mask in set(readers)}
            survival = [sums[mask] for mask in readers]
            positions = place(layout, survival, held, profile, shot.slots).positions
            choices |= {positions[:count]: None for count in range(len(positions) + 1)}
        for positions in choices:
            marks: dict[int, Life] = dict.fromkeys(positions, "5m")
            bill = before.cache.bill(layout.prompt(marks), shot.at)
            stored: Iterable[int] = (*positions, *layout.implicit, *([bill.hit] if bill.hit >= 0 else []))
            if profile.family is not Family.MARKER:
                stored = range(len(layout.ends))
            promised = self._promised(shot, before.promised, layout, readers, stored)
            yield _Node(before.cost + cost_of(profile, bill), before.cache, orders, promised, layout, marks, before)

    def _promised(
        self, shot: Shot, before: Mapping[int, int], layout: Layout, readers: Sequence[int], stored: Iterable[int]
    ) -> dict[int, int]:
        found = {later: tokens for later, tokens in before.items() if later > shot.index}
        for position in stored:
            tokens = layout.ends[position]
            if tokens >= self._profile.min_tokens:
                found |= {
                    later: tokens
                    for later in shot.ahead
                    if readers[position] >> later & 1 and found.get(later, 0) < tokens
                }
        return found

    def _best(self, shot: Shot, nodes: list[_Node], width: int) -> list[_Node]:
        """The best by each horizon, in turn, until the beam is full."""
        gain = self._profile.write - self._profile.read

        def rank(weights: Sequence[float]) -> list[_Node]:
            return sorted(
                nodes,
                key=lambda node: (
                    node.cost
                    - gain * sum(weights[rank] * node.promised.get(later, 0) for later, rank in shot.ahead.items())
                ),
            )

        chosen = {id(node): node for place in zip(*map(rank, HORIZONS), strict=True) for node in place}
        return list(chosen.values())[:width]


def _digests(material: RequestElements) -> Iterator[bytes]:
    """Every element that a request of this content could be sent with."""
    yield from (e.digest for e in (*material.natural, *material.fixed, *material.turns, *material.tail))
    yield from (*material.forms.by_digest, *(e.digest for e in material.documents.values()))


def _body(shot: Shot, layout: Layout, marks: Mapping[int, Life], profile: CacheProfile) -> bytes:
    request, tools = shot.request, shot.materials[0].tools
    messages = render_messages(layout, shot.recognised.messages, marks, profile.dialect)
    changes: dict[str, bytes | None] = {"messages": b"[" + b",".join(messages) + b"]"}
    if tools:
        raw = bytes(request.members["tools"])
        changes["tools"] = render_tools(raw, marks.get(len(tools[0].parts) - 1), profile.dialect)
    return splice(request.body, request.members, changes)

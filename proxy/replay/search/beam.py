"""The beam: the cheapest states after each request, by what they cost and what their entries promise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from proxy.core.request.element import Element
from proxy.replay.search.horizons import HORIZONS
from proxy.replay.search.orders import Orders
from proxy.replay.search.scene import Shot
from proxy.replay.search.tree import Path, Tree

State = TypeVar("State")


class Model(Protocol[State]):
    """A provider as the search sees it."""

    def start(self) -> State: ...
    def live(self, state: State, at: float) -> State: ...
    def orders(self, state: State, shot: Shot, orders: Orders) -> Iterator[tuple[Element, ...]]: ...
    def steps(self, state: State, shot: Shot, path: Path) -> Iterator[tuple[float, tuple[int, ...], State]]: ...
    def worth(self, state: State, index: int) -> list[float]: ...
    def key(self, state: State) -> object: ...


@dataclass(frozen=True, slots=True)
class Sending:
    """How one request is sent: its order, and the positions of its markers. ``cost`` is what the search believes it to
    cost, in tokens at the plain price."""

    path: Path
    marks: tuple[int, ...]
    cost: float


@dataclass(frozen=True, slots=True)
class _Node(Generic[State]):
    cost: float
    state: State
    sending: Sending | None = None
    before: "_Node[State] | None" = None


def search(model: Model[State], tree: Tree, shots: Sequence[Shot], width: int) -> list[Sending]:
    """How to send each request, by the cheapest way found."""
    beam: list[_Node[State]] = [_Node(0.0, model.start())]
    for shot in shots:
        beam = _next(model, tree, shot, beam, width)
    best = min(beam, key=lambda node: node.cost)
    found: list[Sending] = []
    step: _Node[State] | None = best
    while step is not None and step.sending is not None:
        found.append(step.sending)
        step = step.before
    return found[::-1]


def _next(model: Model[State], tree: Tree, shot: Shot, beam: Sequence[_Node[State]], width: int) -> list[_Node[State]]:
    orders = Orders(shot)
    paths: dict[tuple[bytes, ...], Path] = {}
    found: dict[object, _Node[State]] = {}
    for node in beam:
        state = model.live(node.state, shot.at)
        tried: set[tuple[bytes, ...]] = set()
        for order in model.orders(state, shot, orders):
            key = tuple(element.digest for element in order)
            if key in tried:
                continue
            tried.add(key)
            path = paths.get(key)
            if path is None:
                path = paths[key] = tree.path(shot, order)
            for cost, marks, after in model.steps(state, shot, path):
                same = model.key(after)
                total = node.cost + cost
                if same not in found or total < found[same].cost:
                    found[same] = _Node(total, after, Sending(path, marks, cost), node)
    return _best(model, shot, list(found.values()), width)


def _best(model: Model[State], shot: Shot, nodes: list[_Node[State]], width: int) -> list[_Node[State]]:
    """The best by each horizon, in turn, until the beam is full."""
    if len(nodes) <= width:
        return nodes
    worth = [model.worth(node.state, shot.index) for node in nodes]
    rankings = [_ranked(nodes, [each[horizon] for each in worth]) for horizon in range(len(HORIZONS))]
    chosen: dict[int, None] = {}
    for place in zip(*rankings, strict=True):
        for index in place:
            if len(chosen) < width:
                chosen[index] = None
    return [nodes[index] for index in chosen]


def _ranked(nodes: Sequence[_Node[State]], worth: Sequence[float]) -> list[int]:
    return sorted(range(len(nodes)), key=lambda i: nodes[i].cost - worth[i])

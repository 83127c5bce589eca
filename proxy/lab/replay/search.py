"""Searches for the cheapest feasible way to serve a recorded session whose future is known.

A session comes in; the requests as they would be sent go out. ``ShotReader`` reads the requests into ``Shot`` values:
their material, and how much of it later requests hold. Everything that is learnt by the session's end is known from its
beginning. ``find_layouts`` is a beam search over everything that the product may do. It uses the product's own
material: the same movable pieces, valid orders and places for markers, and the same cache models. So its result is
feasible, but not proven to be the best. The product never searches like this.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby

from proxy.kit.errors import UpstreamRejected
from proxy.kit.value import dataclass
from proxy.lab import Step
from proxy.planner.layout import Layout, PrefixSettings, place, seed_of, slots_of
from proxy.planner.observation import commit_reading, read_request
from proxy.planner.orders import (
    RequestElements,
    behind_prefix,
    documents_left,
    moved_elements,
    request_elements,
    valid_prefix,
    whole_groups,
)
from proxy.planner.render import render_messages, render_tools
from proxy.planner.session import Session, SessionTable
from proxy.planner.shadow import cost_of
from proxy.planner.sharing import held_along, hold
from proxy.protocol.caches import Cache, Life, make_cache
from proxy.protocol.providers import CacheProfile, Family
from proxy.protocol.recognition import ContextPiece, Recogniser
from proxy.protocol.request import ParsedBody, parse_body
from proxy.protocol.request.element import Element, ElementKind, ToolReader
from proxy.protocol.request.message import MessageReader
from proxy.protocol.request.tokens import Encode, TokenCounter
from proxy.protocol.request.transcript import RecognisedRequest, Transcript, recognise_request
from proxy.protocol.wire.json_body import Unreadable, splice
from proxy.upstream.embedded.provider import PromptReader

LOOK_AHEAD = 5
"""How many of a cohort's next requests count."""
# Greater than any number of tokens: life decides, and size decides only between pieces of equal life.
_LIFE_WEIGHT = 1e9


@dataclass(frozen=True, slots=True)
class Shot:
    """One request of the session. ``cohort`` numbers requests that begin alike. ``materials`` is the content as it came
    and, if the system prompt can be made stable, with its volatile lines moved. ``lives`` tells, by a piece's digest,
    how many of the cohort's next requests in a row hold the piece. ``ahead`` are the next requests that come in time
    to read what this one stores, by their index, each with its rank in its own cohort."""

    index: int
    at: float
    request: ParsedBody
    recognised: RecognisedRequest
    seed: PrefixSettings
    slots: int
    cohort: int
    materials: tuple[RequestElements, ...]
    lives: Mapping[bytes, int]
    ahead: Mapping[int, int]

    def by_life(self, item: ContextPiece) -> float:
        """The weight of a piece by how long it stays as it is."""
        return self.lives.get(item.digest, 0) * _LIFE_WEIGHT + len(item.text)

    def orders(self, before: Sequence[Sequence[bytes]]) -> Iterator[tuple[Element, ...]]:
        """Every order that is worth trying, behind any of the earlier orders or anew. Earlier orders are given by the
        digests of their elements."""
        yield self.materials[0].natural
        for number, material in enumerate(self.materials):
            if not (material.is_movable or number):
                continue
            lives = [self.lives.get(item.digest, 0) for item in material.items.values()]
            thresholds = {min(lives, default=0), max(lives, default=0)}
            for kept in (material.fixed, *self._prefixes(material, before)):
                yield behind_prefix(material, kept, self.by_life)
                yield from (self._in_front(material, kept, threshold) for threshold in thresholds)

    def _prefixes(self, material: RequestElements, before: Sequence[Sequence[bytes]]) -> Iterator[tuple[Element, ...]]:
        """The part of each earlier order that is still valid, as a whole, and cut in front of the pieces that change
        soon."""
        for order in before:
            kept = valid_prefix(material, order)
            lives = [LOOK_AHEAD if e.item is None else self.lives.get(e.item.digest, 0) for e in kept]
            for limit in (-1, 0, 1, 3):
                cut = next((place for place, life in enumerate(lives) if life <= limit), len(kept))
                shorter = valid_prefix(material, order[:cut])
                if len(shorter) > len(material.fixed):
                    yield shorter

    def _in_front(self, material: RequestElements, kept: Sequence[Element], threshold: int) -> tuple[Element, ...]:
        """A prefix, then the pieces that live for so many requests, the longest-lived first, then the conversation."""
        found, forms = [*kept, *documents_left(material, kept, self.by_life)], material.forms
        keys, whole = {e.key for e in kept}, {e.message for e in kept if e.kind is ElementKind.WHOLE}
        left = [(item, group) for group in material.groups if group.message not in whole for item in group.items]
        left = sorted((one for one in left if one[0].key not in keys), key=lambda one: -self.by_life(one[0]))
        for item, group in list(left):
            if self.lives.get(item.digest, 0) >= threshold:
                left.remove((item, group))
                form = forms.parts if any(other is group for _, other in left) else forms.lasts
                found.append(forms.wholes[group.message] if len(group.items) == 1 else form[item.key])
        return behind_prefix(material, whole_groups(material, found), self.by_life)


class ShotReader:
    """Reads a session twice, so that everything that is learnt by its end is known from its beginning."""

    def __init__(self, profile: CacheProfile, encode: Encode, recognisers: Sequence[Recogniser]) -> None:
        self._prompts, self._profile = PromptReader(profile, encode), profile
        self._counter = TokenCounter(encode)
        self._messages, self._tools = MessageReader(self._counter, recognisers), ToolReader(self._counter)

    def read(self, steps: Sequence[Step]) -> list[Shot]:
        """The shots. Raises Unreadable if a request cannot be taken apart, and UpstreamRejected if the provider refuses
        a request."""
        requests = [parse_body(step.body).chat() for step in steps]
        transcripts = [Transcript([self._messages.read(raw) for raw in one.unread()]) for one in requests]
        scopes = [self._prompts.prompt(step.body).scope for step in steps]
        table = SessionTable(capacity_bytes=1 << 30, prefix="s")
        sessions = [self._session(table, *one) for one in zip(requests, transcripts, steps, strict=True)]
        numbers: dict[tuple[int, bytes], int] = {}
        cohorts = [
            numbers.setdefault((id(session.cohort), scope), len(numbers))
            for session, scope in zip(sessions, scopes, strict=True)
        ]
        pairs = zip(transcripts, sessions, strict=True)
        views = [recognise_request(each, one.rendered_anew.__contains__) for each, one in pairs]
        present = [{item.digest for item in view.items} for view in views]
        shots = []
        for index, (step, request, view) in enumerate(zip(steps, requests, views, strict=True)):
            tools = self._tools.read(request.members.get("tools"))
            own = request_elements(view, tools, self._counter, has_spans=self._profile.stores_prefixes)
            moved = moved_elements(view, own, self._counter)
            following = [present[j] for j in range(index + 1, len(steps)) if cohorts[j] == cohorts[index]]
            has_media = transcripts[index].media_at >= 0
            shots.append(
                Shot(
                    index=index,
                    at=step.at,
                    request=request,
                    recognised=view,
                    seed=seed_of(request.members, self._profile, scopes[index], has_media=has_media),
                    slots=slots_of(request.members, self._profile),
                    cohort=cohorts[index],
                    # The content as it came, and with its volatile lines moved, if the system prompt has any.
                    materials=(own,) if moved is None else (own, moved),
                    lives={
                        one: next((count for count, held in enumerate(following) if one not in held), len(following))
                        for one in present[index]
                    },
                    ahead=dict(self._ahead(index, steps, cohorts)),
                )
            )
        return shots

    def _session(self, table: SessionTable, request: ParsedBody, transcript: Transcript, step: Step) -> Session:
        """The request's session as the planner finds it, with everything that it will have shown by its end."""
        tools = self._tools.read(request.members.get("tools"))
        key = tools[0].digest if tools else b""
        session = table.find(table.place("search", request.model, "", transcript, key))
        session.notice(transcript)
        recognised = recognise_request(transcript, session.rendered_anew.__contains__)
        commit_reading(session, read_request(session, recognised, key, step.at), step.at)
        return session

    def _ahead(self, index: int, steps: Sequence[Step], cohorts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The next requests of each cohort that come while an entry still lives, each with its rank."""
        later = sorted(range(index + 1, len(steps)), key=lambda j: (cohorts[j], j))
        for _, some in groupby(later, key=lambda j: cohorts[j]):
            used = steps[index].at
            for rank, j in enumerate(list(some)[:LOOK_AHEAD]):
                if steps[j].at - used >= self._profile.life_s:
                    break
                used = steps[j].at
                yield j, rank


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
    ``promised`` are the tokens that later requests could read, by index. ``sent`` has the layout of each request, with
    its markers and its cost."""

    cost: float
    cache: Cache
    orders: Mapping[int, tuple[Layout, ...]]
    promised: Mapping[int, int]
    sent: tuple[tuple[Layout, Mapping[int, Life], float], ...] = ()


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
    best = zip(shots, _Search(profile, shots).run(width).sent, strict=True)
    return [(_body(shot, layout, marks, profile), cost) for shot, (layout, marks, cost) in best]


class _Search:
    """The beam, on the cache models that bill the product."""

    def __init__(self, profile: CacheProfile, shots: Sequence[Shot]) -> None:
        self._profile, self._shots = profile, shots
        self._holders: dict[bytes, int] = {}
        """The requests that could hold an element, as bits, by the element's digest."""
        for shot, material in ((one, material) for one in shots for material in one.materials):
            own = (*material.natural, *material.fixed, *material.turns, *material.tail, *material.documents.values())
            for digest in (*(element.digest for element in own), *material.forms.by_digest):
                self._holders[digest] = self._holders.get(digest, 0) | 1 << shot.index

    def run(self, width: int) -> _Node:
        """The cheapest way that was found."""
        beam = [_Node(0.0, make_cache(self._profile), {}, {})]
        for shot in self._shots:
            beam = self._best(shot, self._sent(shot, beam), width)
            for node in beam:
                node.cache, (layout, marks, _) = self._twin(node), node.sent[-1]
                node.cache.store(layout.prompt(dict(marks)), shot.at, shot.at)
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
            stored: Iterable[int] = (
                *positions,
                *layout.prompt({}).endings[-1:],
                *([bill.hit] if bill.hit >= 0 else []),
            )
            if profile.family is not Family.MARKER:
                stored = range(len(layout.ends))
            promised = self._promised(shot, before.promised, layout, readers, stored)
            cost = cost_of(profile, bill)
            yield _Node(before.cost + cost, before.cache, orders, promised, (*before.sent, (layout, marks, cost)))

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


def _body(shot: Shot, layout: Layout, marks: Mapping[int, Life], profile: CacheProfile) -> bytes:
    request, tools = shot.request, shot.materials[0].tools
    messages = render_messages(layout, shot.recognised.messages, marks, profile.dialect)
    changes: dict[str, bytes | None] = {"messages": b"[" + b",".join(messages) + b"]"}
    if tools:
        mark = marks.get(len(tools[0].parts) - 1)
        changes["tools"] = render_tools(bytes(request.members["tools"]), mark, profile.dialect)
    return splice(request.body, request.members, changes)

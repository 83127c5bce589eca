"""The request to be planned, its candidates, and the choice of the cheapest one.

``IncomingChat`` is the request as it was read, with the operator's texts in it. ``OwnRequest`` is the client's own
layout, which is always a candidate. ``Pricing`` judges each candidate on the shadow cache. ``choose`` makes the other
candidates and returns the cheapest one. ``PlanAnalysis`` is the decision with its reasons.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice, pairwise
from operator import mul, neg, sub

from proxy.kit.modes import Mode, Reason
from proxy.kit.value import dataclass, field, in_common, replace
from proxy.planner.forecast import Candidate, Forecast, PauseForecast, PieceForecast, outlook
from proxy.planner.layout import Layout, Placement, drops, honoured, place, place_given, read_gain, slots_of
from proxy.planner.observation import AppliedTexts, RequestObservation
from proxy.planner.orders import RequestElements, before_moving, behind_prefix, by_tiers, valid_prefix, whole_groups
from proxy.planner.render import are_ordered, off_notices
from proxy.planner.session import Session, SessionKeys
from proxy.planner.shadow import ShadowCaches, cost_of
from proxy.planner.tiers import Tier
from proxy.planner.volatile_lines import Regions
from proxy.protocol.caches import Bill, Cache, Life, PromptPositions
from proxy.protocol.providers import CacheProfile, Dialect, Family
from proxy.protocol.request import BodyChanges, Inset, ParsedBody
from proxy.protocol.request.element import Element, ElementKind, form_digest
from proxy.protocol.request.message import MARK_KEYS, piece_digest
from proxy.protocol.request.reader import Route
from proxy.protocol.request.transcript import RecognisedRequest, Transcript
from proxy.protocol.wire.json_body import Members


@dataclass(frozen=True, slots=True)
class TextsInFlight:
    """The operator's texts in a request. ``inset`` stands around the newest user message and adds ``tokens``.
    ``applied`` are the texts around earlier user messages."""

    applied: AppliedTexts
    inset: Inset = field(repr=False)
    tokens: int


@dataclass(frozen=True, slots=True)
class IncomingChat:
    """A chat request that has been read and is to be planned. ``own_tools`` are its tools as they came, and
    ``tools_key`` is their digest; it is empty if there are none. ``original`` is the client's request with the
    ``edits`` that every mode makes. ``account`` names the cache scope that the provider keeps separate. ``texts`` are
    the operator's texts in it, None if there are none. Signed thinking fixes the first ``still`` messages in their
    places for good. The first ``laid_out`` of them were sent before as the elements ``front``, and the tools as
    ``tools`` if they were sent in another form than they come now. ``original`` has both, and ``bound`` are the changes
    that lead to it. ``place`` names the session of the request, if it was looked up before."""

    parsed: ParsedBody
    transcript: Transcript
    own_tools: tuple[Element, ...]
    tools_key: bytes
    edits: Mapping[str, bytes | None]
    original: bytes
    route: Route
    account: bytes
    mode: Mode
    now: float
    texts: TextsInFlight | None = None
    still: int = 0
    laid_out: int = 0
    front: tuple[Element, ...] = ()
    tools: bytes | None = None
    bound: BodyChanges | None = None
    place: SessionKeys | None = None


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """The client's own request. ``natural`` is its order, with the tools as this client first sent them. ``arrived`` is
    the same order with the tools as they came in this request. ``marks`` are the client's markers that the provider
    honours. ``mark_count`` is the number of all markers that the client wrote. ``has_foreign_marks`` says whether the
    provider refuses some of them. ``bill`` is what ``prompt`` would cost now if the client's own requests had always
    been sent, and ``sent_bill`` what it would cost now after what was really sent."""

    natural: Layout
    arrived: Layout
    marks: dict[int, Life]
    mark_count: int
    has_foreign_marks: bool
    prompt: PromptPositions
    bill: Bill
    sent_bill: Bill


def own_request(incoming: IncomingChat, natural: Layout, arrived: Layout, caches: ShadowCaches) -> OwnRequest:
    """Find the client's markers, and price the request on the shadow caches."""
    profile = incoming.route.profile
    count, has_foreign = 0, False
    if incoming.transcript.marked or incoming.own_tools:
        count, has_foreign = written_marks(incoming.parsed.members, incoming.transcript, profile.dialect)
    is_honoured = count > 0 and not has_foreign and profile.family is Family.MARKER
    marks = honoured(natural, profile) if is_honoured else {}
    prompt = arrived.prompt(marks)
    bills = [cache.bill(prompt, incoming.now) for cache in (caches.own, caches.sent)]
    return OwnRequest(natural, arrived, marks, count, has_foreign, prompt, *bills)


def written_marks(members: Members, transcript: Transcript, dialect: Dialect) -> tuple[int, bool]:
    """The number of markers that the client wrote, honoured or not, and whether some are in a dialect that this
    provider refuses. Text within a JSON string is not counted, because the quotes of the key would be escaped there."""
    raw = [transcript.messages[index].raw for index in transcript.marked]
    if "tools" in members:
        raw.append(bytes(members["tools"]))
    counts = {key: sum(text.count(b'"%s"' % key.encode()) for text in raw) for key in MARK_KEYS}
    return sum(counts.values()), any(count > 0 and key != dialect.key for key, count in counts.items())


_MAX_PREFIXES = 4
# This share of what an order loses in each request after the next one counts, because later requests are laid out anew.
_HORIZON = 0.5
# Floating-point sums of the same tokens in another order differ by less than this.
_ROUNDING = 1e-3
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Choice:
    """One candidate: a layout, its markers, its cost now (``bill``), and its cost with what it promises for later
    requests (``score``), in tokens at the input price."""

    layout: Layout
    marks: dict[int, Life]
    reason: Reason
    bill: Bill
    score: float


@dataclass(frozen=True, slots=True)
class Pricing:
    """The values by which every candidate of one request is judged.

    ``own_now`` is what the client's own request would cost if the client's own requests had always been sent.
    ``regret_budget`` is how much more a candidate may cost now, so that realised regret stays bounded. ``outlook`` is
    set if the client is expected to pause for longer than the short life.
    """

    profile: CacheProfile
    cache: Cache
    forecast: Forecast
    now: float
    slots: int
    long_until: int
    own_now: float
    regret_budget: float
    outlook: PauseForecast | None

    def read(
        self,
        layout: Layout,
        *,
        is_natural: bool = False,
        known: Candidate | None = None,
        survival: Sequence[float] | None = None,
    ) -> Candidate:
        """The values by which a layout is judged, computed once. ``known`` has the values that were computed on another
        cache, and ``survival`` is the candidate's if it is known."""
        known, outlook = known if known is not None and known.layout is layout else None, self.outlook
        survival = known.survival if known is not None else survival
        survival = self.forecast.positions(layout.elements, is_natural=is_natural) if survival is None else survival
        falls = known.drops if known is not None else drops(survival)
        held = self.cache.held(layout.prompt({}), self.now, falls)
        worth = outlook.worth(layout, self.cache, self.now, is_natural=is_natural) if outlook is not None else None
        placed = known.placed if known is not None and held == known.held else {}
        return Candidate(layout, survival, falls, held, worth, is_natural, placed)

    def least_score(self, ends: Sequence[int], survival: Sequence[float], behind: int) -> float:
        """A lower bound of a layout's score: the score with a marker on each position that pays. The provider holds no
        entry of the layout from the position ``behind`` on. ``ends`` are the layout's. There is no bound if the long
        life is weighed, if no breakpoints are searched for, or if reads save nothing."""
        p = self.profile
        if p.family is not Family.MARKER or p.read >= min(1.0, p.write) or self.outlook is not None or self.long_until:
            return _NEVER
        # The cost of a token that stays uncached. For a cached token, an expected read reduces the cost.
        later, total = _HORIZON * self.forecast.body, sum(ends[-1:])
        uncached, lost, worth = min(1.0, p.write) + later * (1 - p.read), later * (p.write - p.read), read_gain(p)
        pays = bisect_left(survival, (uncached - p.write - lost) / (worth + lost), lo=behind, key=neg)
        read, cached = (ends[stop - 1] if stop else 0 for stop in (behind, pays))
        expected: float = sum(map(mul, map(sub, islice(ends, pays), (0, *ends)), survival))
        score = read * p.read + (cached - read) * p.write + (total - cached) * uncached
        score += cached * lost - expected * (worth + lost)
        # Markers on fewer tokens than the provider's minimum promise reads, although nothing is written.
        unwritten = total * uncached - p.min_tokens * (worth + uncached)
        return min(score, unwritten) - _ROUNDING

    def best_marks(
        self, candidate: Candidate, reason: Reason, kept: dict[int, Life] | None = None, taken: int = 0
    ) -> Choice:
        """The layout with the markers that pay. The ``kept`` markers stay, and ``taken`` slots are already used."""
        layout, slots = candidate.layout, max(0, self.slots - taken)
        placed = self._placed(candidate, slots)
        # The client's one-hour life is kept for the part of the prompt that it covered.
        hour = self.long_until if self.profile.long_life_s else -1
        marks: dict[int, Life] = {p: "1h" if layout.ends[p] <= hour else "5m" for p in placed.positions}
        if not kept and self._lacks_hour(marks):
            if len(marks) == slots:
                placed = self._placed(candidate, slots - 1)
            marks = {**dict.fromkeys(placed.positions, "5m"), self._anchor(layout): "1h"}
        marks |= kept or {}
        if not are_ordered(layout, marks):
            marks = kept or off_notices(layout, marks)
            if not kept and self._lacks_hour(marks):
                marks[self._anchor(layout)] = "1h"  # the client's one-hour marker stood on a notice
            return self.given_marks(candidate, marks, reason)
        choice = self._choice(candidate, marks, placed, reason)
        if self.outlook is None or kept or self.long_until:
            return choice
        hours = self.outlook.hours(candidate, choice.marks, choice.bill.hit, slots)
        priced = (self.given_marks(candidate, marks, reason) for marks in hours if are_ordered(layout, marks))
        return min((choice, *(one for one in priced if self.is_allowed(one))), key=lambda one: one.score)

    def is_allowed(self, choice: Choice, instead: Choice | None = None) -> bool:
        """Whether realised regret stays bounded with this choice. The bound is the allowance and, if that is used up,
        what it costs to go back to the choice that is sent ``instead``. By now, nothing of the client's own order may
        be cached."""
        cost = cost_of(self.profile, choice.bill)
        to_go_back = max(0.0, cost_of(self.profile, instead.bill) - cost) if instead is not None else 0.0
        return cost - self.own_now <= self.regret_budget + to_go_back

    def given_marks(self, candidate: Candidate, marks: dict[int, Life], reason: Reason) -> Choice:
        layout = candidate.layout
        positions = [*marks, *layout.prompt({}).endings[-1:]]
        placed = place_given(layout, candidate.survival, candidate.held, self.profile, positions)
        return self._choice(candidate, marks, placed, reason)

    def _placed(self, candidate: Candidate, slots: int) -> Placement:
        """The breakpoints that pay. The search is done once."""
        found = candidate.placed.get(slots)
        if found is None:
            layout, survival, held = candidate.layout, candidate.survival, candidate.held
            found = candidate.placed[slots] = place(layout, survival, held, self.profile, slots, candidate.drops)
        return found

    def _lacks_hour(self, marks: dict[int, Life]) -> bool:
        """Whether the client set a one-hour marker, and none of these markers is one."""
        return bool(marks and self.long_until and self.profile.long_life_s and "1h" not in marks.values())

    def _anchor(self, layout: Layout) -> int:
        """The position for the client's one-hour marker: the last place for a marker within the part that the hour
        covered, or else the first place of all. Places on a notice are avoided if there are others, because a marker on
        a notice may stand behind five-minute markers."""
        every: dict[int, Life] = {p: "1h" for p, can in enumerate(layout.markable) if can}
        markable = [*(off_notices(layout, every) or every)]
        return max((p for p in markable if layout.ends[p] <= self.long_until), default=markable[0])

    def _choice(self, candidate: Candidate, marks: dict[int, Life], placed: Placement, reason: Reason) -> Choice:
        """The candidate with its score: the cost now, minus what the next request is expected to save by reading, plus
        what the order loses in each later request. (Longer horizons than ``_HORIZON`` were measured to lose.)"""
        layout, p = candidate.layout, self.profile
        bill = self.cache.bill(layout.prompt(marks), self.now)
        cached = layout.ends[placed.reached] if placed.reached >= 0 else 0
        expected = placed.expected + (candidate.worth.of(marks, bill) if candidate.worth is not None else 0.0)
        lost = (p.write - p.read) * (cached - expected) + (1 - p.read) * (layout.total - cached)
        score = cost_of(p, bill) - read_gain(p) * expected + _HORIZON * self.forecast.body * max(0.0, lost)
        return Choice(layout, marks, reason, bill, score)


def pricing_of(
    incoming: IncomingChat,
    session: Session,
    observation: RequestObservation,
    forecast: Callable[[], Forecast],
    own: OwnRequest,
    caches: ShadowCaches,
    policy: str,
) -> Pricing:
    """The values by which the candidates of a request are judged."""
    profile, ends, expected = incoming.route.profile, own.natural.ends, forecast()
    own_now = cost_of(profile, own.bill)
    paused = outlook(session, observation.gap, expected, profile)
    returns = expected.body + (paused.pause if paused is not None else 0.0)
    return Pricing(
        profile=profile,
        cache=caches.sent,
        own_now=own_now,
        regret_budget=caches.regret_budget(own_now, policy, returns),
        forecast=expected,
        now=incoming.now,
        slots=slots_of(incoming.parsed.members, profile),
        long_until=max((ends[p] for p, life in own.marks.items() if life == "1h"), default=0),
        outlook=paused,
    )


@dataclass(frozen=True, slots=True)
class CandidateInputs:
    """The inputs from which candidates are made. ``moved`` are the elements with the movable parts of the system text
    moved elsewhere. ``split`` is the client's order with its system text in two parts. ``may_tell_explicit`` says
    whether the provider may be told to set no boundaries of its own."""

    own: OwnRequest
    elements: RequestElements
    moved: RequestElements | None
    session: Session
    split: Layout | None
    may_tell_explicit: bool


@dataclass(frozen=True, slots=True)
class _Challenger:
    """A layout that may be cheaper than the client's own, with ``pricing`` to judge it. ``bound`` is a lower bound of
    its score. ``read`` lays it out, and looks it up in the cache."""

    pricing: Pricing
    reason: Reason
    bound: Callable[[], float]
    read: Callable[[], Candidate]


def choose(inputs: CandidateInputs, natural: Candidate, pricing: Pricing, *, may_order: bool, policy: str) -> Choice:
    """The cheapest candidate. The client's own layout and markers are always among the candidates. In a tie the
    client's own layout wins, then the challenger that is named first. Only the most promising challengers are looked up
    in the cache, and get breakpoints: a challenger that cannot become cheaper than the best one is left out."""
    own_marks = inputs.own.marks
    own = pricing.given_marks(natural, own_marks, Reason.CLIENT_OPTIMAL)
    if not may_order and (inputs.own.mark_count > len(own_marks) or not are_ordered(natural.layout, own_marks)):
        # The provider may refuse or not honour some markers, and no added marker is certain to work together with them.
        return own
    best, best_rank, is_held_back, kept = own, -1, False, {} if may_order else own_marks
    challengers = list(_challengers(inputs, natural, pricing, may_order=may_order, policy=policy))
    # A single challenger is searched in any case, so it needs no bound.
    many = challengers if len(challengers) > 1 else []
    bounds = [one.bound() for one in many] or [_NEVER]
    for rank in sorted(range(len(challengers)), key=bounds.__getitem__):
        if bounds[rank] > best.score:
            break
        one = challengers[rank]
        choice = one.pricing.best_marks(one.read(), one.reason, kept, len(kept))
        is_cheaper = (choice.score, rank) < (best.score, best_rank)
        if is_cheaper and pricing.is_allowed(choice, own):
            best, best_rank = choice, rank
        is_held_back |= is_cheaper and best is not choice
    return replace(own, reason=Reason.REGRET_BOUND) if is_held_back and best is own else best


def _challengers(
    inputs: CandidateInputs, natural: Candidate, pricing: Pricing, *, may_order: bool, policy: str
) -> Iterable[_Challenger]:
    """All candidates except the client's own layout with its own markers."""
    if pricing.profile.family is Family.MARKER or (inputs.own.mark_count and not may_order):
        yield _read(pricing, natural, Reason.MARKED)
    if inputs.own.mark_count and not may_order:
        return
    if pricing.profile.family is Family.MARKER and inputs.split is not None:
        yield _read(pricing, pricing.read(inputs.split, is_natural=True), Reason.SPLIT)
    if inputs.may_tell_explicit and inputs.session.cohort.is_one_shot:
        # The provider is told to set no boundary of its own, which would be a write that nobody reads. ("Explicit with
        # zero markers: caching off, no write fee.")
        explicit = replace(pricing, slots=pricing.profile.max_marks)
        seed = replace(inputs.own.natural.seed, is_implicit=False)
        alone = explicit.read(Layout(seed, natural.layout.elements), is_natural=True)
        yield _read(explicit, alone, Reason.ONE_SHOT)
    if not may_order:
        return
    own, seen, held = natural.layout, {tuple(natural.layout.digests)}, natural.held
    # The beginnings of layouts of which the provider may hold entries: the layouts that were sent before, and what it
    # holds of the client's own layout.
    stored = tuple(own.digests[: bisect_right(own.starts, held[-1])]) if held else ()
    sent = sorted([stored, *inputs.session.layouts, *inputs.session.cohort.layouts])
    for order, base, reason in _orders(inputs, pricing, policy):
        name = tuple([element.digest for element in order])
        if name not in seen:
            seen.add(name)
            shared = _shared(name, sent)
            if shared < len(order) and order[shared].kind is ElementKind.SYSTEM:
                # Without volatile lines, the same text was perhaps sent as a message of its own: anything may be held.
                shared = len(order)
            behind = sum([len(element.parts) for element in order[:shared]])
            ends = [*accumulate([part.tokens for element in order for part in element.parts])]
            survival = pricing.forecast.positions(order)
            bound = partial(pricing.least_score, ends, survival, behind)
            yield _Challenger(pricing, reason, bound, partial(_laid_out, pricing, order, base or own, survival))


def _laid_out(pricing: Pricing, order: tuple[Element, ...], base: Layout, survival: Sequence[float]) -> Candidate:
    return pricing.read(Layout(base.seed, order, base), survival=survival)


def _read(pricing: Pricing, candidate: Candidate, reason: Reason) -> _Challenger:
    behind = candidate.held[-1] + 1 if candidate.held else 0
    bound = partial(pricing.least_score, candidate.layout.ends, candidate.survival, behind)
    return _Challenger(pricing, reason, bound, lambda: candidate)


def _shared(one: tuple[bytes, ...], others: Sequence[tuple[bytes, ...]]) -> int:
    """How many elements at the beginning are the same as in one of the ``others``, which are sorted."""
    place = bisect_left(others, one)
    return max([in_common(one, other) for other in others[max(0, place - 1) : place + 1]], default=0)


def _orders(
    inputs: CandidateInputs, pricing: Pricing, policy: str
) -> Iterable[tuple[tuple[Element, ...], Layout | None, Reason]]:
    """Every order that is worth pricing, for the prompt as it came and for the prompt whose movable system text is
    relocated. Each comes with a layout that begins like it, if one other than the client's is known."""
    for elements in (inputs.elements, inputs.moved):
        if elements is None or not (elements.is_movable or elements is inputs.moved):
            continue
        weigh = partial(pricing.forecast.weight, elements.sizes)
        weight, *others = (partial(weigh, size_power) for size_power in pricing.forecast.size_powers)
        if policy == "classic":
            tracker = inputs.session.tracker
            order = by_tiers(elements, tracker.tier, tracker.entered, weight, tracker.unmarked(tracker.tokens()))
            yield order, None, Reason.ORDERED
            continue
        orders = [
            *((behind_prefix(elements, kept, weight), base) for kept, base in _prefixes(inputs, elements, pricing)),
            *((behind_prefix(elements, (), each), None) for each in (weight, *others)),
        ]
        for order, base in orders:
            reason = Reason.ORDERED if base is None else Reason.KEPT
            yield order, base, reason
            if elements.moving:
                yield before_moving(elements, order), base, reason


def _prefixes(
    inputs: CandidateInputs, elements: RequestElements, pricing: Pricing
) -> list[tuple[tuple[Element, ...], Layout]]:
    """The prefixes of earlier layouts that this request may begin with: the longest possible one, and one up to each
    live entry."""
    found: dict[int, tuple[tuple[Element, ...], Layout]] = {}
    fixed, natural = len(elements.fixed), inputs.own.natural
    longest: tuple[Element, ...] = ()
    # If the provider keeps entries at markers, no entry ends in the middle of a file (``make ablate``).
    changed: dict[bytes, Element] = {}
    forms = [*elements.forms.parts.items(), *elements.forms.lasts.items()] if pricing.profile.stores_prefixes else []
    for key, element in forms:
        # A file with spans that has just changed is found by the digest of the form that was sent before.
        item, record = element.item, inputs.session.items.get(key) or inputs.session.cohort.items.get(key)
        if item is not None and record is not None and record.digest != item.digest and len(element.parts) > 2:
            changed[form_digest(piece_digest(element.lead), record.digest, element.parts[-1])] = element
    cohort = [one for one in inputs.session.cohort.layouts if one not in inputs.session.layouts]
    some = (*elements.fixed, *elements.natural, *elements.documents.values())
    wanted = {*elements.forms.by_digest, *[element.digest for element in some]}
    for before in [*reversed(inputs.session.layouts), *reversed(cohort)]:
        shared = in_common(before, [element.digest for element in longest])
        if longest and not changed and wanted.isdisjoint(before[shared : shared + 1]):
            continue  # all that this layout has of the request is in the longest prefix, too
        valid = valid_prefix(elements, before)
        opened = valid_prefix(elements, before, changed) if changed else valid
        if len(opened) > max(len(valid), fixed):
            found.setdefault(hash(tuple([e.digest for e in opened])), (opened, Layout(natural.seed, opened, natural)))
        # A prefix of a prefix that is known already offers no cut that the longer one does not.
        if len(valid) <= fixed or longest[: len(valid)] == valid:
            continue
        longest = max(longest, valid, key=len)
        base = Layout(natural.seed, valid, natural)
        # All elements are kept, or those up to an element that holds a live entry.
        held = pricing.cache.held(base.prompt({}), pricing.now)
        ends = {bisect_right(base.starts, position) for position in held}
        for cut in sorted({len(valid), *(end for end in ends if end > fixed)}, reverse=True):
            kept = valid if cut == len(valid) else whole_groups(elements, valid[:cut])
            if len(kept) > fixed:
                found.setdefault(hash(tuple([e.digest for e in kept])), (kept, base))
    return sorted(found.values(), key=lambda pair: len(pair[0]), reverse=True)[:_MAX_PREFIXES]


UNMARKED = "unmarked"
"""The segment behind the last marker."""

_IN_ORDER = frozenset({Reason.MARKED, Reason.SPLIT, Reason.CLIENT_OPTIMAL})


@dataclass(frozen=True, slots=True)
class PlanAnalysis:
    """One request as the planner saw it, and the candidate that it chose. ``pieces`` are the expectations about its
    context pieces. ``pricing`` gives what candidates are judged by, which is computed once it is asked for. ``explain``
    shows the analysis.

    ``profile`` are the rules of the provider's cache, corrected by what the provider's reports have shown.
    ``steady_tools`` are the tools as this client first sent them, if they are sent in that form. ``turns_before`` are
    the turns of the session's newest request when this request was planned. ``key`` are the name and the value of the
    routing key that is added to the request. ``natural`` is the client's order as it was judged, if that was needed.
    ``regions`` are the regions of its system texts that were known to be volatile.
    """

    incoming: IncomingChat
    session: Session
    observation: RequestObservation
    recognised: RecognisedRequest
    elements: RequestElements
    own: OwnRequest
    choice: Choice
    pieces: PieceForecast
    pricing: Callable[[], Pricing]
    profile: CacheProfile
    turns_before: tuple[bytes, ...]
    steady_tools: bytes | None
    natural: Candidate | None
    regions: Regions
    key: tuple[str, str] | None = None

    @property
    def is_key_in_body(self) -> bool:
        """Whether the provider takes a routing key as a member of the body, and not as a header."""
        return self.profile.routing is not None and self.profile.routing.place == "body"

    def reason(self) -> str:
        """Why the chosen candidate is sent. If nothing is changed, the reason says why."""
        choice, profile = self.choice, self.profile
        if self.steady_tools is not None and choice.reason is Reason.CLIENT_OPTIMAL:
            return Reason.STEADY_TOOLS
        if profile.hoists_system and self.observation.has_new_notice and choice.reason in _IN_ORDER:
            return Reason.HOISTED_NOTICE
        is_marked = bool(self.own.prompt.marks or self.recognised.transcript.marked)
        if choice.reason is not Reason.CLIENT_OPTIMAL or is_marked:
            return choice.reason
        if profile.family is not Family.MARKER or choice.layout.prompt({}).endings:
            return Reason.NATURAL_ORDER
        return Reason.ONE_SHOT if self.session.cohort.is_one_shot else Reason.NOTHING_STABLE

    def passthrough_reason(self, *, ignores_markers: bool) -> Reason | None:
        """Why the client's own request is sent although a candidate was chosen; None if the candidate is sent."""
        if self.session.is_barred:
            return Reason.BARRED
        if self.profile.family is not Family.NONE and self.choice.layout.total < self.profile.least_marked:
            return Reason.BELOW_MINIMUM
        return Reason.MARKERS_IGNORED if ignores_markers else None

    def tier_tokens(self) -> Mapping[str, int]:
        """The tokens of the context pieces, by the tier that the tracker gives each piece."""
        found = Counter[Tier]()
        for item in self.recognised.items:
            found[self.session.tracker.tier(item.key)] += self.elements.sizes.get(item.key, 0)
        return {tier.label: tokens for tier, tokens in found.items()}


def segment_tokens(choice: Choice) -> Mapping[str, int]:
    """Tokens by segment. A segment ends at each marker; the text behind the last marker is ``unmarked``."""
    ends = [0, *[choice.layout.ends[position] for position in sorted(choice.marks)], choice.layout.total]
    names = [*map(str, range(1, len(ends) - 1)), UNMARKED]
    return {name: end - before for name, (before, end) in zip(names, pairwise(ends), strict=True)}

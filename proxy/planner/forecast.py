"""Estimates the requests that follow.

The inputs are the observations of a session and of its client. The outputs are three probabilities: that the next
request repeats the prompt up to each position, that the client pauses, and that it returns at all. Nothing is learnt
here. The estimates that sessions and their rates of change have learnt are combined: first those of each movable piece
(files, maps, documents), then, for each layout, those of everything up to a position.

At the end, five minutes and one hour are compared: the value of the longer life of an entry follows from the client's
own pauses. After a pause longer than the short life, the prefix must be written again. The longer life prevents that
for pauses up to its own end, but its write costs more (Anthropic: 2.0 against 1.25 of the input price). Two facts make
it cheap if a conversation goes on (``proxy.protocol.caches``, from Anthropic's billing formula). The higher price is
paid only for the tokens between the deepest entry that is read and the last 1-hour marker, however long the prefix in
front of them is. And a read renews every entry on the prefix for the entry's own life. So one 1-hour marker directly
behind the part that is read protects everything in front of it, until the client changes something there. Nothing is
ever marked for an hour before the client has paused that long itself.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from operator import mul, sub

from proxy.kit.value import dataclass, field, replace
from proxy.planner.change_rates import (
    CLOCK_CHANGE,
    MAX_DOCUMENTS,
    NO_SIGN,
    STATIC_CHANGE,
    DecayedRate,
    DocumentSign,
    EditSignals,
    FileWords,
    change_hazard,
    file_hazard,
    later_hazard,
    read_signs,
    shown,
    text_of,
)
from proxy.planner.layout import TURNS, Layout, Placement, place
from proxy.planner.observation import RequestObservation
from proxy.planner.orders import RequestElements
from proxy.planner.render import stays
from proxy.planner.session import GOES_ON, Session
from proxy.planner.volatile_lines import changed_places
from proxy.protocol.caches import Bill, Cache, Life
from proxy.protocol.providers import CacheProfile, Family
from proxy.protocol.recognition import ContextPiece, FileClaim, PieceKind
from proxy.protocol.request.element import Element, ElementKind
from proxy.protocol.request.message import Part
from proxy.protocol.request.transcript import ContextMessage, RecognisedRequest

# P(an answer edits any file), however many files there are, and the same probability if the prompt names a file (both
# from recorded sessions). If every prefix is stored for free, this probability only decides the order. It then has the
# weight ``_STORED_SHARE`` against the probability from the single files' hazards (measured).
_EDITS_USUALLY = 0.7
_EDITS_NAMED = 0.97
_STORED_SHARE = 0.5
# The number of files that an answer edits on recorded sessions. It is hardly ever larger.
_EDITED_USUALLY = 2.0
# The part of a question that is read, and the part of all documents together (the beginning of each). Reading more
# takes longer than the rest of planning.
_READ_CHARS = 4_000
_MAX_WORDS = 60
_DOCUMENTS_CHARS = 40_000
# A shorter word is rarely what a text is about.
_WORD = re.compile(r"[^\W\d_]\w{3,}")


@dataclass(frozen=True, slots=True)
class PieceForecast:
    """The expectations about each movable piece in the next request.

    ``hazards`` maps a piece to -ln P(unchanged), ``later`` is the same for the requests after the next one. ``signs``
    are the request's signs of edits, by file. ``edits`` are the hazards of the files that an answer may edit.
    ``edit_scale`` scales P(an answer edits some of them). ``documents`` are the request's signs of its retrieved
    documents. ``whole_set`` is P(all of them stay), and the documents' hazards apply if not all of them stay.
    ``usual_edit`` is P(the answer edits any file) for such prompts in general.
    """

    hazards: Mapping[str, float]
    later: Mapping[str, float]
    signs: Mapping[str, EditSignals]
    edits: Mapping[str, float]
    edit_scale: float
    documents: Sequence[DocumentSign]
    whole_set: float
    usual_edit: float

    def whole(self, group: ContextMessage) -> tuple[float, float]:
        """The hazards of a whole context message: the sum for the pieces that no answer edits, and the sum for the
        pieces that an answer may edit."""
        own = [(item.key in self.edits, self.hazards[item.key]) for item in group.items]
        return sum(hazard for is_edit, hazard in own if not is_edit), sum(hazard for is_edit, hazard in own if is_edit)

    def unchanged(self, hazard: float, documents: float) -> float:
        """P(everything is unchanged except files that an answer may edit), from two sums of hazards: of independent
        pieces, and of documents. Documents do not change independently, because all of them may stay together."""
        held = self.whole_set + (1.0 - self.whole_set) * math.exp(-documents) if documents else 1.0
        return math.exp(-hazard) * held

    def unedited(self, edits: float) -> float:
        """P(an answer edits none of some files), from the sum of their hazards. Files do not change independently,
        because most answers edit one or two files, however many there are."""
        return 1.0 - self.edit_scale * (1.0 - math.exp(-edits)) if edits else 1.0


NO_PIECES = PieceForecast({}, {}, {}, {}, 1.0, (), 0.0, 0.0)
"""The forecast for a request without movable pieces."""


def piece_forecast(
    session: Session,
    observation: RequestObservation,
    recognised: RecognisedRequest,
    material: RequestElements,
    file_words: FileWords,
    *,
    is_stored: bool,
) -> PieceForecast:
    """The forecast of each piece. ``is_stored``: the provider stores every prefix for free."""
    ages, rates = observation.ages, observation.rates
    signs = read_signs(recognised, material.items, ages, file_words)
    hazards: dict[str, float] = {}
    later: dict[str, float] = {}
    edits: dict[str, float] = {}
    # The share of the files that change besides the few that an answer usually edits. It follows from each file's rate
    # of change, because the signs of edits say nothing about these files.
    seen = [rates.get(item.key, 0.0) for group in recognised.groups for item in group.items if _is_editable(item)]
    busy = min(max(0.0, sum(seen) - _EDITED_USUALLY) / max(1.0, len(seen) - _EDITED_USUALLY), 0.95)
    least = -math.log1p(-busy)
    for item in (item for group in recognised.groups for item in group.items):
        key = item.key
        if _is_editable(item):
            tokens = material.sizes[key]
            hazards[key] = edits[key] = max(least, file_hazard(ages[key], tokens, signs.get(key, NO_SIGN)))
            later[key] = max(least, later_hazard(ages[key], tokens, rates.get(key) if is_stored else None))
        else:
            hazards[key] = later[key] = change_hazard(item.kind, item.claim, ages[key], rates.get(key))
    for item in (item for item in recognised.documents if item.kind is PieceKind.FILE):
        # In the system prompt most clients show files that stay. A file that does not stay is known by its rate of
        # change.
        rate = rates.get(item.key)
        hazards[item.key] = later[item.key] = change_hazard(item.kind, FileClaim.READ_ONLY, ages[item.key], rate)
    odds, documents = session.cohort.documents, recognised.retrieved
    shown = _shown(session, recognised, [document.digest for document in documents])
    for document, one in zip(documents, shown, strict=True):
        hazards[document.key], later[document.key] = odds.hazard(one), odds.hazard(one.later())
    share = _STORED_SHARE if is_stored else 1.0
    usual = _EDITS_NAMED if any(sign.is_told for sign in signs.values()) else _EDITS_USUALLY
    any_edit = busy + (1.0 - busy) * session.cohort.edits.shifted(usual)
    scale = _edit_scale(sum(edits.values()), any_edit, share)
    whole_set = odds.stays(shown) if documents else 0.0
    return PieceForecast(hazards, later, signs, edits, scale, shown, whole_set, usual if edits else 0.0)


def _is_editable(item: ContextPiece) -> bool:
    return item.kind is PieceKind.FILE and item.claim is not FileClaim.READ_ONLY


def _shown(session: Session, recognised: RecognisedRequest, documents: Sequence[bytes]) -> Sequence[DocumentSign]:
    """The request's signs of its documents. Documents that the last two requests had are not read again: documents that
    belong to a prompt stand in every request, and reading them each time would give nothing."""
    is_known = are_lasting(session.documents, documents)
    asked = [(0.0, 0.0)] * len(documents) if is_known else read_words(recognised)
    return document_signs(session.documents, documents, asked)


def _edit_scale(hazard: float, usual: float, share: float) -> float:
    """The factor for P(an answer edits some files), so that P(it edits any) agrees with the ``usual`` probability.
    ``share`` is the weight of the usual probability."""
    if hazard <= 0:
        return 1.0
    independent = 1.0 - math.exp(-hazard)
    return (share * usual + (1.0 - share) * independent) / independent


@dataclass(frozen=True, slots=True)
class PauseValue:
    """The tokens that the session's next request is expected to read after a pause, if everything up to a position is
    protected. ``held`` are the positions, ascending, that are protected whatever is sent now."""

    layout: Layout
    expected: tuple[float, ...]
    held: Sequence[int]

    def of(self, marks: Mapping[int, Life], bill: Bill) -> float:
        """The expected tokens with these markers. Protected are the positions that are held that long already, and
        those that are written for an hour now."""
        ends = self.layout.ends
        read = ends[bill.hit] if bill.hit >= 0 else 0
        protected = sorted([*self.held, *(p for p, life in marks.items() if life == "1h" and ends[p] > read)])
        return self.expected[protected[-1]] if protected else 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout, and by position ``survival``: P(the next request comes within the short life and repeats everything up
    to there). ``drops`` are the positions behind which it falls. ``held`` are the positions, ascending, whose entries
    the provider holds. ``worth`` is set if the client is expected to pause. ``is_natural``: the layout has the client's
    own order. ``placed`` keeps the breakpoints that were found, by the largest number of them that was allowed."""

    layout: Layout
    survival: Sequence[float]
    drops: Sequence[int]
    held: Sequence[int]
    worth: PauseValue | None
    is_natural: bool
    placed: dict[int, Placement] = field(compare=False)


# A client that clears tool results keeps the latest few.
_MAX_RESULTS = 20
# The share of first edits that touch a file's first lines (imports). The others are spread evenly (recorded sessions).
_FIRST_LINES = 0.33
# The tag stands at another place in the next request, even if its text is the same.
_TAG_HAZARD = 5.0


# The powers by which a piece's size counts when pieces are weighed against each other. The exchange argument weighs by
# tokens per expected change. But the expected change is an estimate, and an error on a large piece costs more.
# If markers must be paid for, there are two orders: one trusts the estimates little, the other puts large pieces first.
# On recorded and generated sessions one order alone costs 0.5 to 1 % more.
_MARKED = (0.35, 0.6)
# If every prefix is stored for free, a changed piece is read up to its change, and a wrong guess wastes no write.
_STORED = (0.6,)
_TEXTS = frozenset({ElementKind.MESSAGE, ElementKind.SYSTEM})


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expectations about the next request. They are made once per request and used for every candidate layout.

    ``body`` is P(the session's next request comes within the life), ``opened`` is P(any request with the same preamble
    does). ``turns`` maps a message's index to P(the next request repeats the conversation up to it). ``rendered_last``
    are the context messages with no turn between them and the last exchange. ``groups`` maps the index of a context
    message to its two hazards (``PieceForecast.whole``). ``heads`` are -ln P(unchanged) of the tools, then of each
    system message; ``fixed_heads`` are the same without volatile lines and documents. ``size_powers`` are the ways to
    weigh pieces against each other.
    """

    body: float
    opened: float
    turns: Mapping[int, float]
    rendered_last: frozenset[int]
    groups: Mapping[int, tuple[float, float]]
    heads: Sequence[float]
    fixed_heads: Sequence[float]
    pieces: PieceForecast
    size_powers: Sequence[float]

    def weight(self, sizes: Mapping[str, int], size_power: float, item: ContextPiece) -> float:
        """The weight of a piece: the larger it is, the earlier the piece should stand. ``sizes`` are the tokens of all
        pieces."""
        hazard = self.pieces.hazards[item.key] + self.pieces.later[item.key]
        return float(sizes[item.key] ** size_power) / max(hazard, 1e-6)

    def positions(self, elements: Sequence[Element], *, is_natural: bool = False) -> list[float]:
        """P(the next request comes in time and repeats everything up to the position), for each position of these
        elements. It never rises from one position to the next.

        In the client's own order (``is_natural``), context that now stands directly in front of the last exchange will
        have this exchange in front of it in the next request.
        """
        moves = self.rendered_last if is_natural else frozenset()
        result: list[float] = []
        reached, hazard, edits, documents, reader = 1.0, 0.0, 0.0, 0.0, max(self.opened, self.body)
        kept, still, turns, pieces = 1.0, 1.0, self.turns, self.pieces
        for element in elements:
            count = len(element.parts)
            if element.key in TURNS:
                reader, chance = self.body, turns.get(element.message, 0.0)
                reached = chance if chance < reached else reached  # min() would be called for each turn
                if count == 1:
                    result.append(reader * reached * kept)
                    continue
            else:
                own, item, text, edit = None, element.item, element.parts, pieces.edits.get(element.key)
                if element.kind is ElementKind.WHOLE:
                    own, text = self.groups[element.message], text[:-1]  # the last part is an acknowledgement
                elif edit is not None:
                    own, text = (0.0, edit), text[:-1]
                elif element.kind in _TEXTS and count > 1 and text[0].index == text[1].index:  # the spans of a text
                    own = self._hazard(element), 0.0
                if element.message in moves:
                    hazard += _TAG_HAZARD
                elif own is not None:
                    # Everything in front of the end of the text, and behind it.
                    inner = len(text) - 1
                    if inner > 0:
                        each = zip(*(_spread(one, text) for one in own), strict=True)
                        both = [(pieces.unchanged(hazard + a, documents), pieces.unedited(edits + b)) for a, b in each]
                        result += [reader * reached * (one * two) for one, two in both[:inner]]
                    hazard, edits = hazard + own[0], edits + own[1]
                    still = pieces.unchanged(hazard, documents) if own[0] else still
                    kept = still * pieces.unedited(edits)
                    result += [reader * reached * kept] * (count - max(inner, 0))
                    continue
                elif element.kind is ElementKind.DOCUMENT and item is not None and item.kind is not PieceKind.FILE:
                    documents += self._hazard(element)
                else:
                    hazard += self._hazard(element)
                still = pieces.unchanged(hazard, documents)
                kept = still * pieces.unedited(edits)
            result += [reader * reached * kept] * count
        return result

    def _hazard(self, element: Element) -> float:
        match element.kind:
            case ElementKind.TOOLS | ElementKind.MESSAGE | ElementKind.REST:
                return self.heads[element.message + 1]
            case ElementKind.SYSTEM:
                return self.fixed_heads[element.message + 1]
            case ElementKind.TAG:
                return _TAG_HAZARD
            case _:
                return self.pieces.hazards.get(element.item.key, 0.0) if element.item is not None else 0.0


def forecast_of(
    session: Session,
    observation: RequestObservation,
    recognised: RecognisedRequest,
    pieces: PieceForecast,
    profile: CacheProfile,
) -> Forecast:
    """The forecast for one request."""
    cohort = session.cohort
    is_stored = profile.stores_prefixes
    continues = GOES_ON if session.requests else cohort.continues()
    heads, fixed_heads = _heads(session, observation, recognised, pieces.whole_set)
    return Forecast(
        body=continues * cohort.returns_within(profile.life_s, observation.gap),
        opened=cohort.shares_within(profile.life_s),
        turns=_turns(session, observation, recognised, hoists_system=profile.hoists_system),
        rendered_last=_rendered_last(recognised) if recognised.groups else frozenset(),
        groups={group.message: pieces.whole(group) for group in recognised.groups},
        heads=heads,
        fixed_heads=fixed_heads,
        pieces=pieces,
        size_powers=_STORED if is_stored else _MARKED,
    )


def _turns(
    session: Session, observation: RequestObservation, recognised: RecognisedRequest, *, hoists_system: bool
) -> Mapping[int, float]:
    """P(the next request repeats the conversation up to a message), by the message's index."""
    indices = recognised.own_turns
    cohort, broke = session.cohort, observation.broke
    # If no result was ever cleared, the places of the results do not matter.
    results: list[int] = []
    if any(one.results > 0 for one in (*cohort.breaks, broke) if one is not None):
        # The distances of the latest tool results from the end.
        places = enumerate(reversed(indices), 1)
        found = (distance for distance, index in places if recognised.messages[index].has_results)
        results = list(islice(found, _MAX_RESULTS))
    chances = cohort.turn_survival(len(indices), broke, results)
    turns = dict(zip(indices, chances, strict=True))
    if recognised.moving:
        # Some messages may be removed from between the conversation's own messages.
        reached, hazard, own, turns = 1.0, 0.0, turns, {}
        for index in recognised.turns:
            reached, hazard = own.get(index, reached), hazard + recognised.moving.get(index, 0.0)
            turns[index] = reached * math.exp(-hazard)
    if notices := recognised.transcript.notices if hoists_system else ():
        # A new notice stands behind the other notices and in front of all turns. It breaks the turns, but no notice.
        held, at = stays(recognised.messages, notices, session.noticed, session.notices_new), set(notices)
        turns = {index: chance if index in at else held * chance for index, chance in turns.items()}
    return turns


def _heads(
    session: Session, observation: RequestObservation, recognised: RecognisedRequest, whole_set: float
) -> tuple[Sequence[float], Sequence[float]]:
    """The hazards of the tools and the system messages: as they came, and without their volatile lines and documents.
    ``whole_set`` is P(all documents in them stay). The latter are empty if the request has no such text."""
    fresh, places, edited = observation.replaced, range(recognised.preamble + 1), frozenset[int]()
    if session.requests and session.preamble != observation.preamble:
        edited = changed_places(session.preamble, observation.preamble) - fresh
    # A system message's place counts from 1, because the tools stand in front.
    priors = {1 + text.message: CLOCK_CHANGE if text.volatile else 1.0 - whole_set for text in recognised.system}
    head = session.own_head if session.own_head.places else session.shared_head
    chances = ((at, priors.get(at, STATIC_CHANGE)) for at in places)
    whole = [head.hazard(at, prior, is_fresh=at in fresh, is_edited=at in edited) for at, prior in chances]
    if not recognised.system and not recognised.still:
        return whole, ()
    edited &= changed_places(session.fixed, observation.fixed)
    own = session.own_fixed
    return whole, [own.hazard(at, STATIC_CHANGE, is_fresh=at in fresh, is_edited=at in edited) for at in places]


def _spread(hazard: float, parts: Sequence[Part]) -> Iterator[float]:
    """-ln P(a file is unchanged up to the end of each of its spans)."""
    gone, total, end = 1.0 - math.exp(-hazard), sum(part.tokens for part in parts), 0
    for part in parts[:-1]:
        end += part.tokens
        yield -math.log1p(-gone * (_FIRST_LINES + (1 - _FIRST_LINES) * end / total))
    yield hazard


def _rendered_last(recognised: RecognisedRequest) -> frozenset[int]:
    last_turn = max((i for i in recognised.turns if i < recognised.last_user), default=-1)
    return frozenset(g.message for g in recognised.groups if g.message > last_turn and last_turn >= 0)


# The prior: one gap in a hundred is a pause. It weighs as much as ``weight`` gaps that were seen. A part of one pause
# counts as chance, in all sessions and in this one. (Measured: otherwise a client that pauses once pays for a second
# pause that does not come.)
_PAUSES = DecayedRate(prior=0.01, weight=4.0)
_CHANCE_SEEN = 0.8
_CHANCE_SEEN_HERE = 0.3
# The client's other sessions weigh as much as this number of gaps in this session.
_COHORT_WEIGHT = 8.0
# The largest chance that is used: no finite record gives more certainty.
_MOST = 0.95
# The estimate promises more of an expected pause than comes true. Without this factor, sessions with a few pauses in a
# row and then none pay up to 13 % more than five minutes alone would have cost (measured). A client that always pauses
# loses nothing.
_CAUTION = 0.8


@dataclass(frozen=True, slots=True)
class PauseForecast:
    """The forecast for requests that only the longer life serves. ``pause`` is P(the session's next request comes after
    the short life and within the long one). ``forecast`` has the other expectations about that request."""

    pause: float
    forecast: Forecast
    profile: CacheProfile

    def worth(self, layout: Layout, cache: Cache, now: float, *, is_natural: bool) -> PauseValue:
        """The value of reading this layout after a pause."""
        after = replace(self.forecast, body=self.pause, opened=self.pause).positions(
            layout.elements, is_natural=is_natural
        )
        # If the prefix is not protected now, the next request can protect it at a low cost, unless another pause comes
        # first.
        chances = [_CAUTION * chance / (1.0 - min(chance, _MOST)) for chance in after]
        later = now + self.profile.life_s + self.profile.slack_s + 1.0
        held = cache.held(layout.prompt({}), later)
        spans = map(mul, map(sub, layout.ends, (0, *layout.ends)), chances)
        return PauseValue(layout, tuple(accumulate(spans)), held)

    def hours(self, standing: Candidate, marks: Iterable[int], hit: int, slots: int) -> Iterator[dict[int, Life]]:
        """Sets of markers that include one-hour markers and may be worth their price. ``marks`` are the markers that
        pay for five minutes, ``hit`` is the deepest position that they read."""
        layout, profile = standing.layout, self.profile
        yield from _longer(marks, hit)
        # The first place for a marker behind the part that is read is the cheapest one that protects all of that part.
        behind = layout.markable.find(1, hit + 1, hit + profile.lookback) if hit >= 0 else -1
        if behind >= 0 and slots > 1:
            others = place(layout, standing.survival, standing.held, profile, slots - 1, standing.drops).positions
            yield {p: "1h" if p <= behind else "5m" for p in sorted({*others, behind})}
        # Then the forecast if every entry were written for the longer life.
        body, opened = (min(1.0, chance + self.pause) for chance in (self.forecast.body, self.forecast.opened))
        hourly = replace(self.forecast, body=body, opened=opened)
        survival = hourly.positions(layout.elements, is_natural=standing.is_natural)
        dear = replace(profile, write=profile.write_long)
        yield from _longer(place(layout, survival, standing.held, dear, slots).positions, hit)


def outlook(session: Session, newest: float | None, forecast: Forecast, profile: CacheProfile) -> PauseForecast | None:
    """The forecast from the client's own pauses. None if there is no longer life, or if the client has not paused.
    ``newest`` is the gap that has just ended."""
    if profile.family is not Family.MARKER or not profile.long_life_s:
        return None
    just = [] if newest is None else [newest]
    own, cohort = [*session.gaps, *just], [*session.cohort.gaps, *just]
    seen = _pauses(cohort, profile)
    if not seen:
        return None
    in_cohort = _PAUSES.share(seen - _CHANCE_SEEN, len(cohort))
    here = max(0.0, _pauses(own, profile) - _CHANCE_SEEN_HERE)
    share = DecayedRate(in_cohort, _COHORT_WEIGHT).share(here, len(own))
    returns = session.cohort.returns_within(profile.life_s, newest)
    pause = share * (min(1.0, forecast.body / returns) if returns > 0 else 1.0)
    return PauseForecast(pause, forecast, profile) if pause else None


def _pauses(gaps: Sequence[float], profile: CacheProfile) -> int:
    return sum(1 for gap in gaps if profile.life_s <= gap < profile.long_life_s)


def _longer(marks: Iterable[int], hit: int) -> list[dict[int, Life]]:
    """The same markers with the first ones for an hour: one set for each marker behind the part that is read, in which
    the hour goes up to that marker. No one-hour marker stands behind a five-minute marker."""
    places = sorted(marks)
    return [{p: "1h" if p <= last else "5m" for p in places} for last in places[bisect_right(places, hit) :]]


def are_lasting(last: Mapping[bytes, DocumentSign], documents: Sequence[bytes]) -> bool:
    """Whether the last two requests had all of these documents, as far as is remembered. ``last`` are the last
    request's documents."""
    return all(one in last and last[one].run > 1 for one in documents[:MAX_DOCUMENTS])


def document_signs(
    last: Mapping[bytes, DocumentSign], documents: Sequence[bytes], asked: Sequence[tuple[float, float]]
) -> list[DocumentSign]:
    """The signs of a request's documents, if the request before had the documents ``last``. ``asked`` has the values of
    ``DocumentSign.asked`` and ``DocumentSign.before`` for each document."""
    highest = max(1, len(documents) - 1)
    return [
        DocumentSign(rank / highest - 0.5, last[one].run + 1 if one in last else 1, *words)
        for rank, (one, words) in enumerate(zip(documents, asked, strict=True))
    ]


def read_words(recognised: RecognisedRequest) -> list[tuple[float, float]]:
    """For each document: its share of the last question's words, minus the average share of the documents, and the same
    for the question before."""
    retrieved = recognised.retrieved
    if not retrieved:
        return []
    most = _DOCUMENTS_CHARS // len(retrieved)
    documents = [item.text[:most].lower() for item in retrieved]
    last = recognised.last_user
    before = next((i for i in range(last - 1, -1, -1) if recognised.messages[i].is_asked), None)
    asked = _beyond_average(shown(recognised.messages[last]), documents)
    earlier = _beyond_average(text_of(recognised.messages[before]) if before is not None else "", documents)
    return list(zip(asked, earlier, strict=True))


def _beyond_average(question: str, documents: Sequence[str]) -> list[float]:
    words = list(dict.fromkeys(_WORD.findall(question[:_READ_CHARS].lower())))[:_MAX_WORDS]
    if not words:
        return [0.0] * len(documents)
    shares = [sum(word in document for word in words) / len(words) for document in documents]
    average = sum(shares) / len(shares)
    return [share - average for share in shares]

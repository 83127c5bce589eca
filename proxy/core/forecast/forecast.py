"""The forecast for a layout: how likely the next request comes in time and repeats everything up to each position."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from proxy.core.caches.prompt import Bill, Life
from proxy.core.forecast.pieces import PieceForecast, piece_forecast
from proxy.core.layout.breakpoints import Placement
from proxy.core.layout.layout import Layout
from proxy.core.layout.notices import stays
from proxy.core.layout.orders import RequestElements
from proxy.core.providers import CacheProfile
from proxy.core.recognition.pieces import ContextPiece, PieceKind
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import Part
from proxy.core.request.view import RecognisedRequest
from proxy.core.sessions.cohort import GOES_ON
from proxy.core.sessions.observation import RequestObservation
from proxy.core.sessions.preamble_changes import changed_places
from proxy.core.sessions.session import Session
from proxy.core.stability.change_rates import CLOCK_CHANGE, STATIC_CHANGE
from proxy.core.stability.edit_signals import FileWords
from proxy.core.value import dataclass, field


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
    to there). ``held`` are the positions, ascending, whose entries the provider holds. ``worth`` is set if the client
    is expected to pause. ``is_natural``: the layout has the client's own order. ``placed`` keeps the breakpoints that
    were found, by the largest number of them that was allowed."""

    layout: Layout
    survival: Sequence[float]
    held: Sequence[int]
    worth: PauseValue | None = None
    is_natural: bool = False
    placed: dict[int, Placement] = field(default_factory=dict, compare=False)


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


@dataclass(frozen=True, slots=True)
class PreambleForecast:
    """-ln P(unchanged) of the tools, then of each system message. ``whole`` is for the message as it came, ``fixed``
    for the message without its volatile lines and documents."""

    whole: Sequence[float]
    fixed: Sequence[float]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expectations about the next request. They are made once per request and used for every candidate layout.

    ``body`` is P(the session's next request comes within the life), ``opened`` is P(any request with the same preamble
    does). ``turns`` maps a message's index to P(the next request repeats the conversation up to it). ``rendered_last``
    are the context messages with no turn between them and the last exchange. ``groups`` maps the index of a context
    message to its two hazards (``PieceForecast.whole``). ``size_powers`` are the ways to weigh pieces against each
    other.
    """

    body: float
    opened: float
    turns: Mapping[int, float]
    rendered_last: frozenset[int]
    groups: Mapping[int, tuple[float, float]]
    preamble: PreambleForecast
    pieces: PieceForecast
    size_powers: Sequence[float] = _MARKED

    def weight(self, sizes: Mapping[str, int], size_power: float, item: ContextPiece) -> float:
        """The weight of a piece: the larger it is, the earlier the piece should stand. ``sizes`` are the tokens of all
        pieces."""
        hazard = self.pieces.hazards[item.key] + self.pieces.later[item.key]
        return float(sizes[item.key] ** size_power) / max(hazard, 1e-6)

    def positions(self, layout: Layout, *, is_natural: bool = False) -> list[float]:
        """P(the next request comes in time and repeats everything up to the position). It never rises from one position
        to the next.

        In the client's own order (``is_natural``), context that now stands directly in front of the last exchange will
        have this exchange in front of it in the next request.
        """
        moves = self.rendered_last if is_natural else frozenset()
        result: list[float] = []
        reached, hazard, edits, documents, reader = 1.0, 0.0, 0.0, 0.0, max(self.opened, self.body)
        kept, turns, pieces = 1.0, self.turns, self.pieces
        for message, element in zip(layout.turns, layout.elements, strict=True):
            if message >= 0:
                reader, chance = self.body, turns.get(message, 0.0)
                reached = chance if chance < reached else reached  # min() would be called for each turn
            else:
                if element.message in moves:
                    hazard += _TAG_HAZARD
                elif (own := self._context_hazards(element)) is not None:
                    # The last part is an acknowledgement, and the part in front of it has all of the text.
                    spans = len(element.parts) - 2
                    if spans > 0:
                        each = zip(*(_spread(one, element.parts[:-1]) for one in own), strict=True)
                        chances = [pieces.unchanged(hazard + one, documents, edits + two) for one, two in each]
                        result += [reader * reached * chance for chance in chances[:spans]]
                    hazard, edits = hazard + own[0], edits + own[1]
                    kept = pieces.unchanged(hazard, documents, edits)
                    result += [reader * reached * kept] * (len(element.parts) - max(spans, 0))
                    continue
                elif element.kind is ElementKind.DOCUMENT and not _is_file(element):
                    documents += self._hazard(element)
                else:
                    hazard += self._hazard(element)
                kept = pieces.unchanged(hazard, documents, edits)
            result += [reader * reached * kept] * len(element.parts)
        return result

    def _context_hazards(self, element: Element) -> tuple[float, float] | None:
        """The two hazards of a context message, or of a file that may be edited; None for any other element."""
        if element.kind is ElementKind.WHOLE:
            return self.groups[element.message]
        if element.item is not None and element.item.key in self.pieces.edits:
            return 0.0, self.pieces.hazards[element.item.key]
        return None

    def _hazard(self, element: Element) -> float:
        match element.kind:
            case ElementKind.TOOLS | ElementKind.MESSAGE | ElementKind.REST:
                return self.preamble.whole[element.message + 1]
            case ElementKind.SYSTEM:
                return self.preamble.fixed[element.message + 1]
            case ElementKind.TAG:
                return _TAG_HAZARD
            case _:
                return self.pieces.hazards.get(element.item.key, 0.0) if element.item is not None else 0.0


def forecast(
    session: Session,
    observation: RequestObservation,
    recognised: RecognisedRequest,
    material: RequestElements,
    profile: CacheProfile,
    file_words: FileWords,
) -> Forecast:
    """The forecast for one request."""
    cohort = session.cohort
    is_stored = profile.stores_prefixes
    pieces = piece_forecast(session, observation, recognised, material, file_words, is_stored=is_stored)
    continues = GOES_ON if session.requests else cohort.continues()
    return Forecast(
        body=continues * cohort.returns_within(profile.life_s, observation.gap),
        opened=cohort.shares_within(profile.life_s),
        turns=_turns(session, observation, recognised, hoists_system=profile.hoists_system),
        rendered_last=_rendered_last(recognised),
        groups={group.message: pieces.whole(group) for group in recognised.groups},
        preamble=_preamble(session, observation, recognised, pieces.whole_set),
        pieces=pieces,
        size_powers=_STORED if is_stored else _MARKED,
    )


def _turns(
    session: Session, observation: RequestObservation, recognised: RecognisedRequest, *, hoists_system: bool
) -> Mapping[int, float]:
    """P(the next request repeats the conversation up to a message), by the message's index."""
    indices = recognised.own_turns()
    cohort, broke = session.cohort, observation.broke
    # If no result was ever cleared, the places of the results do not matter.
    results = _results(recognised, indices) if cohort.has_cleared(broke) else ()
    chances = cohort.turn_survival(len(indices), broke, results)
    turns = dict(zip(indices, chances, strict=True))
    if recognised.moving:
        turns = _with_moving(recognised, turns)
    if notices := recognised.transcript.notices if hoists_system else ():
        # A new notice stands behind the other notices and in front of all turns. It breaks the turns, but no notice.
        held, at = stays(recognised.messages, notices, session.noticed, session.notices_new), set(notices)
        turns = {index: chance if index in at else held * chance for index, chance in turns.items()}
    return turns


def _with_moving(recognised: RecognisedRequest, own: Mapping[int, float]) -> dict[int, float]:
    """The same probabilities for all messages, if some of them may be removed from between the conversation's own
    messages."""
    turns: dict[int, float] = {}
    reached, hazard = 1.0, 0.0
    for index in recognised.turns():
        reached, hazard = own.get(index, reached), hazard + recognised.moving.get(index, 0.0)
        turns[index] = reached * math.exp(-hazard)
    return turns


def _preamble(
    session: Session, observation: RequestObservation, recognised: RecognisedRequest, whole_set: float
) -> PreambleForecast:
    """The hazards of the tools and the system messages. ``whole_set`` is P(all documents in them stay)."""
    fresh = observation.replaced
    edited = changed_places(session.preamble, observation.preamble) - fresh if session.requests else frozenset[int]()
    edited_fixed = edited & changed_places(session.fixed, observation.fixed)
    # A system message's place counts from 1, because the tools stand in front.
    priors = {1 + text.message: CLOCK_CHANGE if text.volatile else 1.0 - whole_set for text in recognised.system}
    head = session.own_head if session.own_head.places else session.shared_head
    whole: list[float] = []
    fixed: list[float] = []
    for place in range(recognised.preamble + 1):
        prior, is_fresh = priors.get(place, STATIC_CHANGE), place in fresh
        whole.append(head.hazard(place, prior, is_fresh=is_fresh, is_edited=place in edited))
        edit = place in edited_fixed
        fixed.append(session.own_fixed.hazard(place, STATIC_CHANGE, is_fresh=is_fresh, is_edited=edit))
    return PreambleForecast(whole, fixed)


def _is_file(element: Element) -> bool:
    return element.item is not None and element.item.kind is PieceKind.FILE


def _spread(hazard: float, parts: Sequence[Part]) -> Iterator[float]:
    """-ln P(a file is unchanged up to the end of each of its spans)."""
    gone, total, end = 1.0 - math.exp(-hazard), sum(part.tokens for part in parts), 0
    for part in parts[:-1]:
        end += part.tokens
        yield -math.log1p(-gone * (_FIRST_LINES + (1 - _FIRST_LINES) * end / total))
    yield hazard


def _results(recognised: RecognisedRequest, turns: Sequence[int]) -> list[int]:
    """The distances of the latest tool results from the end."""
    messages = recognised.messages
    found = (distance for distance, index in enumerate(reversed(turns), 1) if messages[index].has_results)
    return list(islice(found, _MAX_RESULTS))


def _rendered_last(recognised: RecognisedRequest) -> frozenset[int]:
    if not recognised.groups:
        return frozenset()
    last_turn = max((i for i in recognised.turns() if i < recognised.last_user), default=-1)
    return frozenset(g.message for g in recognised.groups if g.message > last_turn and last_turn >= 0)

"""For a layout: how likely the next request repeats everything up to each position, in time."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.core.layout.layout import Layout
from proxy.core.layout.notices import stays
from proxy.core.layout.orders import RequestElements
from proxy.core.providers import CacheProfile, Family
from proxy.core.recognition.fixed_texts import FileClaim
from proxy.core.recognition.pieces import PieceKind
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.item import ContextPiece
from proxy.core.request.message import Part
from proxy.core.request.view import RecognisedRequest
from proxy.core.sessions.observation import RequestObservation
from proxy.core.sessions.preamble_changes import changed_places
from proxy.core.sessions.session import Session
from proxy.core.stability.change_rates import CLOCK_CHANGE, STATIC_CHANGE, change_hazard, file_hazard, later_hazard
from proxy.core.stability.document_retention import DocumentSign
from proxy.core.stability.document_words import read_words
from proxy.core.stability.edit_signals import NO_SIGN, EditSignals, read_signs
from proxy.core.stability.file_words import FileWords

# P(a session goes on that has done so).
_GOES_ON = 0.95
# P(an answer edits any file), as seen on recorded sessions, however many files there are. Where it decides about writes
# it counts alone; where it only orders, it weighs half against what the files promise one by one (measured).
_EDITS_USUALLY = 0.7
_EDITS_NAMED = 0.97
_STORED_SHARE = 0.5
# A client that clears tool results keeps the latest few.
_MAX_RESULTS = 20
# A text and its acknowledgement: a file that is one position.
_WHOLE_PARTS = 2
# Share of first edits that touch a file's first lines (imports); the others are spread evenly (recorded sessions).
_FIRST_LINES = 0.33
# The tag stands at another place in the next request, even where its text is the same.
_TAG_HAZARD = 5.0


@dataclass(frozen=True, slots=True)
class Ordering:
    """How pieces are weighed against each other. The exchange argument says tokens per expected change; what is
    expected is an estimate, and an error on a large piece costs more: its size counts by ``size_power``.
    ``later_weight`` is what requests after the next one weigh."""

    size_power: float
    later_weight: float


# Two orders where markers are to be paid for: one that trusts the estimates little, one that puts what is large first.
# On recorded and generated sessions one alone costs 0.5 to 1 % more.
_MARKED = (Ordering(size_power=0.35, later_weight=1.0), Ordering(size_power=0.6, later_weight=1.0))
# Where every prefix is stored for free, a changed piece is read up to its change and a wrong guess wastes no write.
_STORED = (Ordering(size_power=0.6, later_weight=1.0),)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of the next request, made once per request and used for every candidate layout.

    ``body`` is P(the session's next request comes within the life), ``preamble`` P(any request with the same preamble
    does);
    ``turns`` maps a message's index to P(the next request repeats the conversation up to it); ``hazards`` maps a
    context piece to -ln P(unchanged), ``whole`` a context message's index to the sum over its pieces;
    ``head_hazards`` holds the tools' -ln P(unchanged), then each system message's; ``shared``
    are the first turns, with which other sessions of the cohort begin, too. ``fixed_hazards`` is as ``head_hazards``,
    for system messages without what moves in them. ``rendered_last`` are the context messages with no turn between
    them and the last exchange. ``documents`` is what the request shows of the retrieved ones; ``whole_set`` P(they all
    stay): ``hazards`` of documents are for where they do not.
    """

    body: float
    preamble: float
    turns: Mapping[int, float]
    hazards: Mapping[str, float]
    later: Mapping[str, float]
    signs: Mapping[str, EditSignals]
    whole: Mapping[int, float]
    shared: frozenset[int]
    head_hazards: Sequence[float]
    fixed_hazards: Sequence[float]
    rendered_last: frozenset[int] = frozenset()
    edits: frozenset[str] = frozenset()
    edit_scale: float = 1.0
    whole_edits: Mapping[int, float] = field(default_factory=dict)
    orderings: Sequence[Ordering] = _MARKED
    documents: Sequence[DocumentSign] = ()
    whole_set: float = 0.0

    def weight(self, item: ContextPiece, tokens: int, ordering: Ordering) -> float:
        """The larger, the earlier a piece should stand."""
        hazard = self.hazards[item.key] + ordering.later_weight * self.later[item.key]
        return float(tokens**ordering.size_power) / max(hazard, 1e-6)

    def positions(self, layout: Layout, *, is_natural: bool = False) -> list[float]:
        """P(the next request comes in time and repeats everything up to the position), never rising.

        In the client's own order (``is_natural``) context that stands directly in front of the last exchange will have
        this exchange in front of it next time.
        """
        moves = self.rendered_last if is_natural else frozenset()
        result: list[float] = []
        reached, hazard, edits, documents, reader = 1.0, 0.0, 0.0, 0.0, max(self.preamble, self.body)
        kept, turns, shared = 1.0, self.turns, self.shared
        starts = layout.starts
        for index, (message, start) in enumerate(zip(layout.turns, starts, strict=True), 1):
            if message >= 0:
                if message not in shared:
                    reader = self.body
                    reached = min(reached, turns.get(message, 0.0))
            else:
                element = layout.elements[index - 1]
                if element.message in moves:
                    hazard += _TAG_HAZARD
                elif element.kind is ElementKind.WHOLE:
                    hazard += self.whole[element.message]
                    edits += self.whole_edits[element.message]
                elif element.item is not None and element.item.key in self.edits:
                    own = self.hazards[element.item.key]
                    if len(element.parts) > _WHOLE_PARTS:
                        before = reader * reached * math.exp(-hazard) * self._held(documents)
                        result += [before * self._unedited(edits + part) for part in _spread(own, element.parts[:-1])]
                        edits += own
                        kept = math.exp(-hazard) * self._held(documents) * self._unedited(edits)
                        result.append(reader * reached * kept)
                        continue
                    edits += own
                elif element.kind is ElementKind.DOCUMENT and not _is_file(element):
                    documents += self._hazard(element)
                else:
                    hazard += self._hazard(element)
                kept = math.exp(-hazard) * self._held(documents) * self._unedited(edits)
            chance = reader * reached * kept
            count = (starts[index] if index < len(starts) else len(layout.ends)) - start
            if count == 1:
                result.append(chance)
            else:
                result += [chance] * count
        return result

    def _unedited(self, hazard: float) -> float:
        """P(the answer edits none of some files), by the sum of their hazards. Files are not edited independently: most
        answers edit one or two of them, however many there are."""
        return 1.0 - self.edit_scale * (1.0 - math.exp(-hazard)) if hazard else 1.0

    def _held(self, hazard: float) -> float:
        """P(the next request has some documents), by the sum of their hazards."""
        return self.whole_set + (1.0 - self.whole_set) * math.exp(-hazard) if hazard else 1.0

    def _hazard(self, element: Element) -> float:
        match element.kind:
            case ElementKind.TOOLS:
                return self.head_hazards[0]
            case ElementKind.MESSAGE | ElementKind.REST:
                return self.head_hazards[element.message + 1]
            case ElementKind.SYSTEM:
                return self.fixed_hazards[element.message + 1]
            case ElementKind.TAG:
                return _TAG_HAZARD
            case _:
                return self.hazards[element.item.key] if element.item is not None else 0.0


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
    turn_indices = recognised.turns()
    survival = cohort.breaks.survival(len(turn_indices), observation.broke, _results(recognised, turn_indices))
    continues = _GOES_ON
    if not session.requests:
        continues = cohort.continues()
    signs = read_signs(recognised, material.items, observation.ages, file_words)
    usual = _usual_edit(signs)
    hazards: dict[str, float] = {}
    later: dict[str, float] = {}
    edits: set[str] = set()
    is_stored = profile.family in (Family.GRID, Family.UNIT)
    for item in (item for group in recognised.groups for item in group.items):
        key = item.key
        if item.kind is PieceKind.FILE and item.claim is not FileClaim.READ_ONLY:
            edits.add(key)
            tokens = material.sizes[key]
            sign = signs.get(key, NO_SIGN)
            hazards[key] = file_hazard(observation.ages[key], tokens, sign)
            later[key] = later_hazard(observation.ages[key], tokens, observation.rates.get(key) if is_stored else None)
        else:
            hazards[key] = later[key] = change_hazard(
                item.kind, item.claim, observation.ages[key], observation.rates.get(key)
            )
    fresh = observation.replaced
    edited = changed_places(session.preamble, observation.preamble) - fresh if session.requests else frozenset[int]()
    edited_fixed = edited & changed_places(session.fixed, observation.fixed)
    retrieved, documents = (
        recognised.retrieved(),
        [item for item in recognised.documents() if item.kind is PieceKind.DOCUMENT],
    )
    for item in (item for item in recognised.documents() if item.kind is PieceKind.FILE):
        # Most clients show what stays in the system prompt; what does not is known by how often it changed.
        rate = observation.rates.get(item.key)
        hazards[item.key] = later[item.key] = change_hazard(
            item.kind, FileClaim.READ_ONLY, observation.ages[item.key], rate
        )
    shown = _shown(session, recognised, [document.digest for document in retrieved])
    whole_set = cohort.documents.stays(shown) if documents else 0.0
    priors = _head_priors(recognised, whole_set)
    for document, one in zip(documents, shown, strict=False):
        hazards[document.key] = cohort.documents.hazard(one)
        later[document.key] = cohort.documents.hazard(one.later())
    turns = dict(zip(turn_indices, survival, strict=True))
    if notices := recognised.transcript.notices if profile.hoists_system else ():
        # Hoisted ones stand in front of all turns.
        held = stays(recognised.messages, notices, session.noticed, session.notices_new)
        turns = {index: held * chance for index, chance in turns.items()} | dict.fromkeys(notices, held)
    return Forecast(
        body=continues * cohort.returns_within(profile.life_s, observation.gap),
        preamble=cohort.shares_within(profile.life_s),
        turns=turns,
        hazards=hazards,
        later=later,
        signs=signs,
        head_hazards=[
            session.head_hazard(
                place,
                priors.get(place - 1, STATIC_CHANGE),
                is_fresh=place in fresh,
                is_edited=place in edited,
            )
            for place in range(recognised.preamble + 1)
        ],
        rendered_last=_rendered_last(recognised),
        fixed_hazards=[
            session.fixed_hazard(place, is_fresh=place in fresh, is_edited=place in edited_fixed)
            for place in range(recognised.preamble + 1)
        ],
        shared=frozenset(turn_indices[: cohort.shared_turns(observation.turns)]),
        whole={g.message: sum(hazards[i.key] for i in g.items if i.key not in edits) for g in recognised.groups},
        whole_edits={g.message: sum(hazards[i.key] for i in g.items if i.key in edits) for g in recognised.groups},
        edits=frozenset(edits),
        orderings=_STORED if is_stored else _MARKED,
        edit_scale=_edit_scale(sum(hazards[key] for key in edits), usual, _STORED_SHARE if is_stored else 1.0),
        documents=shown,
        whole_set=whole_set,
    )


def _is_file(element: Element) -> bool:
    return element.item is not None and element.item.kind is PieceKind.FILE


def _shown(session: Session, recognised: RecognisedRequest, documents: Sequence[bytes]) -> Sequence[DocumentSign]:
    """What the request shows of its documents. Documents that the last two requests had are not read
    once more: what belongs to a prompt, and stands in every request, would be read each time for nothing."""
    is_known = session.documents.are_lasting(documents)
    return session.documents.signs(documents, [(0.0, 0.0)] * len(documents) if is_known else read_words(recognised))


def _head_priors(recognised: RecognisedRequest, whole_set: float) -> dict[int, float]:
    """P(a system message changes) before anything was seen, where that is not what it is of fixed text."""
    return {text.message: CLOCK_CHANGE if text.volatile else 1.0 - whole_set for text in recognised.system}


def _spread(hazard: float, parts: Sequence[Part]) -> Iterator[float]:
    """-ln P(a file is unchanged up to the end of each of its spans)."""
    gone, total, end = 1.0 - math.exp(-hazard), sum(part.tokens for part in parts), 0
    for part in parts[:-1]:
        end += part.tokens
        yield -math.log1p(-gone * (_FIRST_LINES + (1 - _FIRST_LINES) * end / total))
    yield hazard


def _edit_scale(hazard: float, usual: float, share: float) -> float:
    """By how much P(an answer edits some files) is scaled, so that P(it edits any) agrees with what is usual; ``share``
    is how much that weighs."""
    if hazard <= 0:
        return 1.0
    independent = 1.0 - math.exp(-hazard)
    return (share * usual + (1.0 - share) * independent) / independent


def _usual_edit(signs: Mapping[str, EditSignals]) -> float:
    """P(the answer edits any file), by what the prompt says."""
    if any(sign.is_told for sign in signs.values()):
        return _EDITS_NAMED
    return _EDITS_USUALLY


def _results(recognised: RecognisedRequest, turns: Sequence[int]) -> list[int]:
    """How far from the end the latest tool results stand."""
    found: list[int] = []
    for distance, index in enumerate(reversed(turns), 1):
        if recognised.messages[index].role == "tool":
            found.append(distance)
            if len(found) == _MAX_RESULTS:
                break
    return found


def _rendered_last(recognised: RecognisedRequest) -> frozenset[int]:
    last_turn = max((i for i in recognised.turns() if i < recognised.last_user), default=-1)
    return frozenset(g.message for g in recognised.groups if g.message > last_turn and last_turn >= 0)

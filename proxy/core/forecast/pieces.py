"""How long the movable pieces of a request last: files, maps and documents."""

import math
from collections.abc import Mapping, Sequence

from proxy.core.layout.orders import RequestElements
from proxy.core.recognition.fixed_texts import FileClaim
from proxy.core.recognition.pieces import ContextPiece, PieceKind
from proxy.core.request.view import ContextMessage, RecognisedRequest
from proxy.core.sessions.observation import RequestObservation
from proxy.core.sessions.session import Session
from proxy.core.stability.change_rates import change_hazard, file_hazard, later_hazard
from proxy.core.stability.document_retention import DocumentSign, are_lasting, document_signs, read_words
from proxy.core.stability.edit_signals import NO_SIGN, EditSignals, FileWords, read_signs
from proxy.core.value import dataclass

# P(an answer edits any file), however many files there are, and the same probability if the prompt names a file (both
# from recorded sessions). If every prefix is stored for free, this probability only decides the order. It then has the
# weight ``_STORED_SHARE`` against the probability from the single files' hazards (measured).
_EDITS_USUALLY = 0.7
_EDITS_NAMED = 0.97
_STORED_SHARE = 0.5
_EDITED_USUALLY = 2.0
"""The number of files that an answer edits on recorded sessions. It is hardly ever larger."""


@dataclass(frozen=True, slots=True)
class PieceForecast:
    """The expectations about each movable piece in the next request.

    ``hazards`` maps a piece to -ln P(unchanged), ``later`` is the same for the requests after the next one. ``signs``
    are the request's signs of edits, by file. ``edits`` are the files that an answer may edit. ``edit_scale`` scales
    P(an answer edits some of them). ``documents`` are the request's signs of its retrieved documents. ``whole_set`` is
    P(all of them stay), and the documents' hazards apply if not all of them stay. ``usual_edit`` is P(the answer edits
    any file) for such prompts in general.
    """

    hazards: Mapping[str, float]
    later: Mapping[str, float]
    signs: Mapping[str, EditSignals]
    edits: frozenset[str]
    edit_scale: float
    documents: Sequence[DocumentSign]
    whole_set: float
    usual_edit: float

    def whole(self, group: ContextMessage) -> tuple[float, float]:
        """The hazards of a whole context message: the sum for the pieces that no answer edits, and the sum for the
        pieces that an answer may edit."""
        own = [(item.key in self.edits, self.hazards[item.key]) for item in group.items]
        return sum(hazard for is_edit, hazard in own if not is_edit), sum(hazard for is_edit, hazard in own if is_edit)

    def unchanged(self, hazard: float, documents: float, edits: float) -> float:
        """P(everything is unchanged), from three sums of hazards: of independent pieces, of documents, and of files
        that an answer may edit. Documents do not change independently, because all of them may stay together. Files do
        not either, because most answers edit one or two files, however many there are."""
        held = self.whole_set + (1.0 - self.whole_set) * math.exp(-documents) if documents else 1.0
        unedited = 1.0 - self.edit_scale * (1.0 - math.exp(-edits)) if edits else 1.0
        return math.exp(-hazard) * held * unedited


_NO_PIECES = PieceForecast({}, {}, {}, frozenset(), 1.0, (), 0.0, 0.0)


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
    if not recognised.groups and not recognised.system:
        return _NO_PIECES
    ages, rates = observation.ages, observation.rates
    signs = read_signs(recognised, material.items, ages, file_words)
    hazards: dict[str, float] = {}
    later: dict[str, float] = {}
    edits: list[str] = []
    busy = _busy(
        [rates.get(item.key, 0.0) for group in recognised.groups for item in group.items if _is_editable(item)]
    )
    least = -math.log1p(-busy)
    for item in (item for group in recognised.groups for item in group.items):
        key = item.key
        if _is_editable(item):
            tokens = material.sizes[key]
            edits.append(key)
            hazards[key] = max(least, file_hazard(ages[key], tokens, signs.get(key, NO_SIGN)))
            later[key] = max(least, later_hazard(ages[key], tokens, rates.get(key) if is_stored else None))
        else:
            hazards[key] = later[key] = change_hazard(item.kind, item.claim, ages[key], rates.get(key))
    for item in (item for item in recognised.documents() if item.kind is PieceKind.FILE):
        # In the system prompt most clients show files that stay. A file that does not stay is known by its rate of
        # change.
        rate = rates.get(item.key)
        hazards[item.key] = later[item.key] = change_hazard(item.kind, FileClaim.READ_ONLY, ages[item.key], rate)
    odds, documents = session.cohort.documents, recognised.retrieved()
    shown = _shown(session, recognised, [document.digest for document in documents])
    for document, one in zip(documents, shown, strict=True):
        hazards[document.key], later[document.key] = odds.hazard(one), odds.hazard(one.later())
    share = _STORED_SHARE if is_stored else 1.0
    usual = _usual_edit(signs)
    any_edit = busy + (1.0 - busy) * session.cohort.edits.shifted(usual)
    scale = _edit_scale(sum([hazards[key] for key in edits]), any_edit, share)
    whole_set = odds.stays(shown) if documents else 0.0
    return PieceForecast(hazards, later, signs, frozenset(edits), scale, shown, whole_set, usual if edits else 0.0)


def _busy(rates: Sequence[float]) -> float:
    """The share of the files that change besides the few that an answer usually edits. It follows from each file's rate
    of change, because the signs of edits say nothing about these files."""
    return min(max(0.0, sum(rates) - _EDITED_USUALLY) / max(1.0, len(rates) - _EDITED_USUALLY), 0.95)


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


def _usual_edit(signs: Mapping[str, EditSignals]) -> float:
    """P(the answer edits any file), if the signs name a file and if they do not."""
    if any(sign.is_told for sign in signs.values()):
        return _EDITS_NAMED
    return _EDITS_USUALLY

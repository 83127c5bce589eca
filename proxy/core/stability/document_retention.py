"""How likely retrieved documents are to be retrieved again, learnt per client from each request's signs of them.

A retriever makes its query from the last message, from the last two or from the whole conversation. It ranks by
similarity or not at all, and some documents suit every question. Clients differ in this, so only the starting point of
learning is fixed here. The log odds are linear in the signs, and their coefficients are learnt one by one (logistic
regression, each coefficient with its own certainty).
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from proxy.core.request.view import RecognisedRequest
from proxy.core.stability.change_rates import DecayedRate
from proxy.core.stability.edit_signals import shown, text_of

# The starting coefficients, fitted to generated sessions of five kinds of query (BM25 over three manuals). Each
# coefficient's spread over the five kinds is its uncertainty. The coefficients in order: for a document in its first
# request, in its second, and from the third on; for its rank; for its words from the last question, and from the
# question before.
_PRIOR = (-0.78, -0.46, 1.0, -0.36, 1.16, -0.07)
_SPREAD = (1.46, 1.61, 1.40, 1.40, 0.63, 0.63)
# The documents of one request come and go together, so each of them counts as less than one observation.
_WEIGHT = 0.7
_MOST = 0.97
# P(all of a request's documents stay), before anything was seen, and the number of requests as which it counts. Most
# documents are retrieved for one question, but documents that belong to a prompt are written in the same form. On
# generated sessions, 0.15 costs prompts whose documents never change up to 20 %, and 0.45 costs prompts with retrieved
# documents 1 %.
_WHOLE = DecayedRate(prior=0.45, weight=0.6, decay=0.9)
# The share of each document's own hazard that counts among several documents, if not all of them stay.
_TOGETHER = 0.7
# The number of a request's documents that are remembered.
MAX_DOCUMENTS = 24
# The part of a question that is read, and the part of all documents together (the beginning of each). Reading more
# takes longer than the rest of planning.
_READ_CHARS = 4_000
_MAX_WORDS = 60
_DOCUMENTS_CHARS = 40_000
# A shorter word is rarely what a text is about.
_WORD = re.compile(r"[^\W\d_]\w{3,}")


class DocumentSign(NamedTuple):
    """The signs that a request gives of one of its documents.

    ``place`` is its rank, from -0.5 (the first) to 0.5 (the last). ``run`` is the number of requests in a row that have
    had it by now. ``asked`` is its share of the last question's words, minus the average share of the documents.
    ``before`` is the same for the question before.
    """

    place: float
    run: int
    asked: float = 0.0
    before: float = 0.0

    def later(self) -> "DocumentSign":
        """The signs as the next request will show them. The question of that request is not known yet."""
        return DocumentSign(self.place, self.run + 1, 0.0, self.asked)

    def values(self) -> tuple[float, ...]:
        """The values that the coefficients are multiplied with."""
        runs = float(self.run == 1), float(self.run == 2), float(self.run > 2)
        return *runs, self.place, 2.0 * self.asked, 2.0 * self.before


class DocumentOdds(Struct, array_like=True):
    """The odds that were learnt from one client's requests. ``whole`` has two pairs of counts: one for requests whose
    documents had just changed, and one for requests whose documents were all in the request before. Each pair counts
    the requests that were seen, and those of them whose documents the next request repeated. Raises ValueError for
    numbers that cannot be used in a calculation."""

    means: list[float] = field(default_factory=lambda: list(_PRIOR))
    precisions: list[float] = field(default_factory=lambda: [1 / spread**2 for spread in _SPREAD])
    whole: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0), (0.0, 0.0)])

    def __post_init__(self) -> None:
        numbers = [*self.means, *self.precisions, *(number for pair in self.whole for number in pair)]
        is_whole = len(self.means) == len(self.precisions) == len(_PRIOR) and len(self.whole) == 2
        if not is_whole or not all(map(math.isfinite, numbers)) or min(self.precisions) <= 0:
            raise ValueError("no odds of documents")

    def chance(self, sign: DocumentSign) -> float:
        """P(the next request has the document, if it does not have all of them). An uncertain estimate is nearer to one
        half."""
        values = sign.values()
        odds = sum(value * mean for value, mean in zip(values, self.means, strict=True))
        doubt = sum(value * value / precision for value, precision in zip(values, self.precisions, strict=True))
        return min(max(_share(odds / math.sqrt(1 + math.pi / 8 * doubt)), 1 - _MOST), _MOST)

    def stays(self, signs: Iterable[DocumentSign]) -> float:
        """P(the next request has all of a request's documents)."""
        seen, kept = self.whole[_is_old(signs)]
        return _WHOLE.share(kept, seen)

    def hazard(self, sign: DocumentSign) -> float:
        """-ln P(the next request has the document, if it does not have all of them), scaled by its weight among other
        documents."""
        return -_TOGETHER * math.log(self.chance(sign))

    def learn(self, signs: Sequence[DocumentSign], kept: Sequence[bool]) -> None:
        """Learn from the signs of a request's documents and from which of them the next request has (``kept``)."""
        weight = _WEIGHT * (1 - self._is_whole(signs) if all(kept) else 1)
        for sign, stayed in zip(signs, kept, strict=True):
            values = sign.values()
            share = _share(sum(value * mean for value, mean in zip(values, self.means, strict=True)))
            for place, value in enumerate(values):
                if value:
                    self.precisions[place] += weight * value * value * share * (1 - share)
                    self.means[place] += weight * value * (stayed - share) / self.precisions[place]
        if signs:
            which = _is_old(signs)
            self.whole[which] = _WHOLE.added(self.whole[which], happened=all(kept))

    def _is_whole(self, signs: Sequence[DocumentSign]) -> float:
        """P(documents that all stayed did so as a whole). In that case they say nothing about each single document."""
        stays = self.stays(signs)
        return stays / (stays + (1 - stays) * math.prod(map(self.chance, signs)))


def _is_old(signs: Iterable[DocumentSign]) -> bool:
    return all(sign.run > 1 for sign in signs)


def _share(odds: float) -> float:
    return 1 / (1 + math.exp(-max(min(odds, 30.0), -30.0)))


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


def followed(
    last: Mapping[bytes, DocumentSign], documents: Sequence[bytes], signs: Sequence[DocumentSign], odds: DocumentOdds
) -> dict[bytes, DocumentSign]:
    """Record a request that counts. The ``odds`` learn which of the documents ``last`` it has. Its own documents are
    returned, to be remembered."""
    now = set(documents)
    odds.learn(list(last.values()), [one in now for one in last])
    return dict(zip(documents[:MAX_DOCUMENTS], signs, strict=False))


def read_words(recognised: RecognisedRequest) -> list[tuple[float, float]]:
    """For each document: its share of the last question's words, minus the average share of the documents, and the same
    for the question before."""
    retrieved = recognised.retrieved()
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

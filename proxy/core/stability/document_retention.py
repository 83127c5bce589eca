"""How likely retrieved documents are to be retrieved again: learnt per client, by what each request shows of them.

A retriever makes its query from the last message, from the last two or from the whole conversation; it ranks by
likeness or not at all; some documents suit every question. Clients differ in this, so only the point where learning
begins is fixed here. The log odds are linear in the signs, and their coefficients are learnt one by one (logistic
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

# Fitted to generated sessions of five kinds of query (BM25 over three manuals), each coefficient's spread over them as
# its uncertainty: of a document in its first request, in its second, and from the third on; by rank; by the words that
# it has of the last question, and of the one before.
_PRIOR = (-0.78, -0.46, 1.0, -0.36, 1.16, -0.07)
_SPREAD = (1.46, 1.61, 1.40, 1.40, 0.63, 0.63)
# Documents of one request come and go together: each is less than one observation.
_WEIGHT = 0.7
_MOST = 0.97
# P(all of a request's documents stay), before anything was seen, and as how many requests it counts. Most documents
# are retrieved for one question, but what belongs to a prompt is written like them. On generated sessions 0.15 costs
# prompts whose documents never change up to 20 %, and 0.45 costs retrieved ones 1 %.
_WHOLE = DecayedRate(prior=0.45, weight=0.6, decay=0.9)
# How much of what is expected of each document counts among several, for those that do not stay as a whole.
_TOGETHER = 0.7
# The documents of a request that are remembered.
MAX_DOCUMENTS = 24
# A question is read this far, and so much of all documents together, of each the beginning: what is longer takes
# longer than the rest of planning.
_READ_CHARS = 4_000
_MAX_WORDS = 60
_DOCUMENTS_CHARS = 40_000
# What is shorter is rarely what a text is about.
_WORD = re.compile(r"[^\W\d_]\w{3,}")


class DocumentSign(NamedTuple):
    """What a request shows of one of its documents.

    ``place`` is its rank, from -0.5 (the first) to 0.5 (the last); ``run`` in how many requests in a row it stands by
    now; ``asked`` which share of the last question's words it has, more than the others have, and ``before`` the same
    of the question before.
    """

    place: float
    run: int
    asked: float = 0.0
    before: float = 0.0

    def later(self) -> "DocumentSign":
        """The same as the next request will see it, whose question is not known yet."""
        return DocumentSign(self.place, self.run + 1, 0.0, self.asked)

    def values(self) -> tuple[float, ...]:
        """As the coefficients take it."""
        runs = float(self.run == 1), float(self.run == 2), float(self.run > 2)
        return *runs, self.place, 2.0 * self.asked, 2.0 * self.before


class DocumentOdds(Struct, array_like=True):
    """What one client's requests have taught. ``whole`` are counts of requests whose documents had just changed, and
    of those that had them all before: seen, and those of them that the next request repeated. Raises ValueError for
    what cannot be calculated with."""

    means: list[float] = field(default_factory=lambda: list(_PRIOR))
    precisions: list[float] = field(default_factory=lambda: [1 / spread**2 for spread in _SPREAD])
    whole: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0), (0.0, 0.0)])

    def __post_init__(self) -> None:
        numbers = [*self.means, *self.precisions, *(number for pair in self.whole for number in pair)]
        is_whole = len(self.means) == len(self.precisions) == len(_PRIOR) and len(self.whole) == 2
        if not is_whole or not all(map(math.isfinite, numbers)) or min(self.precisions) <= 0:
            raise ValueError("no odds of documents")

    def chance(self, sign: DocumentSign) -> float:
        """P(the next request has the document, where it has not all of them), as far as is known: what is uncertain is
        nearer to one half."""
        values = sign.values()
        odds = sum(value * mean for value, mean in zip(values, self.means, strict=True))
        doubt = sum(value * value / precision for value, precision in zip(values, self.precisions, strict=True))
        return min(max(_share(odds / math.sqrt(1 + math.pi / 8 * doubt)), 1 - _MOST), _MOST)

    def stays(self, signs: Iterable[DocumentSign]) -> float:
        """P(the next request has all of a request's documents)."""
        seen, kept = self.whole[_is_old(signs)]
        return _WHOLE.share(kept, seen)

    def hazard(self, sign: DocumentSign) -> float:
        """-ln P(the next request has the document, where it has not all of them), as it counts among others."""
        return -_TOGETHER * math.log(self.chance(sign))

    def learn(self, signs: Sequence[DocumentSign], kept: Sequence[bool]) -> None:
        """A request's documents, and which of them the next one has."""
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
        """P(documents that all stayed did so as a whole), which says nothing of each."""
        stays = self.stays(signs)
        return stays / (stays + (1 - stays) * math.prod(map(self.chance, signs)))


def _is_old(signs: Iterable[DocumentSign]) -> bool:
    return all(sign.run > 1 for sign in signs)


def _share(odds: float) -> float:
    return 1 / (1 + math.exp(-max(min(odds, 30.0), -30.0)))


def are_lasting(last: Mapping[bytes, DocumentSign], documents: Sequence[bytes]) -> bool:
    """Whether the last two requests had all of these, as far as is remembered. ``last`` are the last request's."""
    return all(one in last and last[one].run > 1 for one in documents[:MAX_DOCUMENTS])


def document_signs(
    last: Mapping[bytes, DocumentSign], documents: Sequence[bytes], asked: Sequence[tuple[float, float]]
) -> list[DocumentSign]:
    """What a request shows of its documents, behind one with the documents ``last``; ``asked`` as in
    ``DocumentSign``, for each."""
    highest = max(1, len(documents) - 1)
    return [
        DocumentSign(rank / highest - 0.5, last[one].run + 1 if one in last else 1, *words)
        for rank, (one, words) in enumerate(zip(documents, asked, strict=True))
    ]


def followed(
    last: Mapping[bytes, DocumentSign], documents: Sequence[bytes], signs: Sequence[DocumentSign], odds: DocumentOdds
) -> dict[bytes, DocumentSign]:
    """A request that counts: the ``odds`` learn which of the documents ``last`` it has, and its own are remembered."""
    now = set(documents)
    odds.learn(list(last.values()), [one in now for one in last])
    return dict(zip(documents[:MAX_DOCUMENTS], signs, strict=False))


def read_words(recognised: RecognisedRequest) -> list[tuple[float, float]]:
    """For each document: its share of the last question's words, less what the documents have on average, and the same
    of the question before."""
    retrieved = recognised.retrieved()
    if not retrieved:
        return []
    most = _DOCUMENTS_CHARS // len(retrieved)
    documents = [item.text[:most].lower() for item in retrieved]
    last = recognised.last_user
    before = next((i for i in range(last - 1, -1, -1) if recognised.messages[i].role == "user"), None)
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

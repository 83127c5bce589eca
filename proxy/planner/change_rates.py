"""How likely a piece of a prompt is to be unchanged in the next request. The estimates are learnt from priors.

There are four sources: where a client's conversation breaks (``turn_survival``: most clients only append, some rewrite
the last message, some clear old tool results), how often a context piece changes (``change_hazard``), how often answers
edit any file (``CalibrationCounter``), and how likely retrieved documents are to be retrieved again (``DocumentOdds``).
The survival of a prefix is the product over the pieces in it.

A retriever makes its query from the last message, from the last two or from the whole conversation. It ranks by
similarity or not at all, and some documents suit every question. Clients differ in this, so only the starting point of
learning is fixed here. The log odds are linear in the signs of each request, and their coefficients are learnt one by
one (logistic regression, each coefficient with its own certainty).

A request also tells which files the answer will change: by names, identifiers and plain words in the prompt, and by an
answer whose edits were not made (``EditSignals``). A client that shows files renders them again after they were edited,
so an answer that edits a file is seen in the next request. Each sign was found to be informative on recorded sessions.
"""

import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from string import ascii_letters
from types import MappingProxyType
from typing import NamedTuple
from zlib import crc32

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from proxy.kit.lru import Bounded
from proxy.kit.value import dataclass
from proxy.protocol.recognition import ContextPiece, FileClaim, MessageKind, PieceKind
from proxy.protocol.request.message import Message
from proxy.protocol.request.transcript import RecognisedRequest
from proxy.protocol.wire.json_body import Unreadable, members_of, text_value

# Shorter words are rarely what a text is about.
_SHORTEST_CHARS = 4
# Every character that is not a letter separates words, so an identifier is read as the words in it. (A regular
# expression takes half as long again.)
_LETTERS = bytes(ord(chr(code).lower()) if chr(code) in ascii_letters else ord(" ") for code in range(256))
_MAX_PROMPT_WORDS = 60
_MAX_FILE_CHARS = 100_000

Checksums = Sequence[int]
"""The checksums of the words of a text, ascending."""


class FileWords:
    """The words of files by the file's digest. Each file is read once, and no text is kept."""

    __slots__ = ("_known",)

    def __init__(self, capacity_bytes: int) -> None:
        self._known: Bounded[bytes, Checksums] = Bounded(capacity_bytes, lambda words: 250 + 4 * len(words))

    def shares(self, prompt: str, files: Mapping[str, ContextPiece]) -> dict[str, float]:
        """For each file, its share of the prompt's words that some of the files have and others do not have, minus an
        even share. A word that several files have is divided evenly among them. Empty if no word distinguishes the
        files."""
        if len(files) < 2:
            return {}
        known = [self._words(item) for item in files.values()]
        found = [0.0] * len(known)
        for word in _words_of(prompt)[:_MAX_PROMPT_WORDS]:
            checksum = crc32(word)
            at = [bisect_left(words, checksum) for words in known]
            holders = [n for n, words in enumerate(known) if at[n] < len(words) and words[at[n]] == checksum]
            if len(holders) < len(known):
                for place in holders:
                    found[place] += 1.0 / len(holders)
        total = sum(found)
        return {key: own / total - 1.0 / len(found) for key, own in zip(files, found, strict=True)} if total else {}

    def _words(self, item: ContextPiece) -> Checksums:
        words = self._known.get(item.digest)
        if words is None:
            # Words that are too short are never looked for, so nothing is gained by leaving them out.
            words = array("I", sorted(map(crc32, set(_split(item.text[:_MAX_FILE_CHARS])))))
            self._known.put(item.digest, words)
        else:
            self._known.move_to_end(item.digest)
        return words


def _split(text: str) -> list[bytes]:
    return text.encode("utf-8", "surrogatepass").translate(_LETTERS).split()


def _words_of(text: str) -> list[bytes]:
    """Each word once that is not too short, in the order of the text."""
    return [part for part in dict.fromkeys(_split(text)) if len(part) >= _SHORTEST_CHARS]


# A prompt is read this far from either end: a longer prompt quotes something.
_READ_CHARS = 4_000
# An answer is read up to this length, divided by the number of files that are looked for in it.
_ANSWER_CHARS = 20_000_000
_MAX_SYMBOLS = 12
_MIN_STEM_CHARS = 3
# Words of code: joined by an underscore, in camel case, or between backticks.
_SYMBOL_NAMES = re.compile(
    r"`([^`\n]{4,60})`|\b([A-Za-z][A-Za-z0-9]*_[A-Za-z0-9_]+|_+[A-Za-z][A-Za-z0-9_]{2,}"
    r"|[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]+|[a-z]+[A-Z][A-Za-z0-9]+)\b"
)
# The text in front of a word of code at the place where it is defined, and the length in which it is looked for. Then
# the number of places that are looked at for a definition and for a name, and the longest name that is looked for.
_DEFINES = re.compile(r"\b(?:def|class|func|function|fn|const|let|var|type|struct|interface|enum|trait) +\Z")
_DEFINES_CHARS = 16
_MAX_PLACES = 40
_MAX_NAME_PLACES = 1_000
_MAX_NAME_CHARS = 300
_NULL = Raw(b"null")


class EditSignals(Struct, frozen=True):
    """The signs that a request gives of one file.

    ``is_hinted``: its name is a word of the prompt, with or without its extension. ``is_answered``: the answer before
    the prompt names it and it has not changed since, so the client asks again. ``symbols`` is its share of the files in
    which an identifier of the prompt stands or is defined. ``words`` is how much larger its share of the prompt's plain
    words is than an even share. ``is_beside``: other files are named, and this one is not.
    """

    is_named: bool = False
    is_hinted: bool = False
    is_answered: bool = False
    symbols: float = 0.0
    words: float = 0.0
    is_beside: bool = False

    @property
    def is_told(self) -> bool:
        """Whether the prompt, or the answer before it, names the file."""
        return self.is_named or self.is_answered


NO_SIGN = EditSignals()


def read_signs(
    recognised: RecognisedRequest, items: Mapping[str, ContextPiece], ages: Mapping[str, int], file_words: FileWords
) -> Mapping[str, EditSignals]:
    """The signs, by file."""
    files = {key: item for key, item in items.items() if item.kind is PieceKind.FILE}
    if not files:
        return MappingProxyType({})
    prompt = shown(recognised.messages[recognised.last_user])
    answer = _answer(recognised)[: _ANSWER_CHARS // len(files)]
    shares, words = _shares(prompt, files.values()), file_words.shares(prompt, files)
    found: dict[str, EditSignals] = {}
    for key in files:
        path = path_of(key)
        name = path.rpartition("/")[2]
        stem = name.partition(".")[0] or name
        is_named = bool(name) and stands(name, prompt)
        found[key] = EditSignals(
            is_named=is_named,
            is_hinted=is_named or (len(stem) >= _MIN_STEM_CHARS and stands(stem, prompt)),
            is_answered=ages.get(key, 0) > 0 and bool(path) and path in answer and stands(path, answer),
            symbols=shares.get(key, 0.0),
            words=words.get(key, 0.0),
        )
    if any(sign.is_told for sign in found.values()):
        return {key: sign if sign.is_told else replace(sign, is_beside=True) for key, sign in found.items()}
    return found


def path_of(key: str) -> str:
    """The path of a file, read from its key."""
    return key.partition("file:")[2].partition("#")[0]


def shown(message: Message) -> str:
    """The beginning and the end of what the user wrote, without a reminder that the client appends."""
    known = message.recognition
    if known is not None and known.form is MessageKind.PROMPT and message.text is not None:
        text = "".join(message.text[c.start : c.end] for c in known.cuts if c.kind is PieceKind.PROMPT)
    else:
        text = text_of(message)
    return text if len(text) <= 2 * _READ_CHARS else text[:_READ_CHARS] + "\n" + text[-_READ_CHARS:]


def _answer(recognised: RecognisedRequest) -> str:
    """The text of the assistant's message directly in front of the prompt. Empty if another message stands there."""
    before = [i for i in recognised.turns if i < recognised.last_user][-1:]
    if not before or recognised.messages[before[0]].role != "assistant":
        return ""
    return text_of(recognised.messages[before[0]])


def text_of(message: Message) -> str:
    """All text of a message."""
    return message.text if message.text is not None else message.derived(read_text)


def read_text(message: Message) -> str:
    """The text of a message, read from its JSON. Empty if there is no text."""
    try:
        content = text_value(members_of(message.raw).get("content", _NULL))
    except Unreadable:
        content = None
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _shares(prompt: str, files: Iterable[ContextPiece]) -> dict[str, float]:
    """For each file, its largest share of the files in which an identifier of the prompt stands, or of the files that
    define the identifier. A change to a function is mostly made in the file that defines it."""
    symbols = list(dict.fromkeys(a or b for a, b in _SYMBOL_NAMES.findall(prompt)))[:_MAX_SYMBOLS]
    shares: dict[str, float] = {}
    for symbol in symbols:
        holders = [item for item in files if symbol in item.text]
        homes = [item for item in holders if _defines(item.text, symbol)]
        for among in (holders, homes):
            for item in among:
                shares[item.key] = max(shares.get(item.key, 0.0), 1 / len(among))
    return shares


def _defines(text: str, symbol: str) -> bool:
    """Whether the word is defined in the text, judged by the word in front of it."""
    return any(
        _DEFINES.search(text[max(0, at - _DEFINES_CHARS) : at]) and not _is_inner(text[end : end + 1])
        for at, end in _places(symbol, text, _MAX_PLACES)
    )


def stands(name: str, text: str) -> bool:
    """Whether the name stands in the text as a word of its own."""
    if len(name) > _MAX_NAME_CHARS or name not in text:
        return False
    return any(
        not _is_inner(text[at - 1 : at]) and not _is_inner(text[end : end + 1])
        for at, end in _places(name, text, _MAX_NAME_PLACES)
    )


def _places(word: str, text: str, most: int) -> Iterator[tuple[int, int]]:
    """The beginning and the end of the word at its first ``most`` places in the text."""
    at = text.find(word)
    for _ in range(most):
        if at < 0:
            return
        yield at, at + len(word)
        at = text.find(word, at + 1)


def _is_inner(character: str) -> bool:
    return character.isalnum() or character in {"_", "-"}


Counts = tuple[float, float]
"""How many observations there were, and in how many of them the event happened. Both numbers decay."""

RATE_STEP = 0.3
"""The weight of the newest request: the last four or five requests make most of a rate."""

FIRST_RATE = 0.1
"""The rate of change of a piece that was never seen before."""


@dataclass(frozen=True, slots=True)
class DecayedRate:
    """The rule by which a chance is estimated.

    ``prior`` is the chance before anything was seen, and it counts as ``weight`` observations. With each observation
    the earlier ones count ``decay`` times as much as before.
    """

    prior: float
    weight: float
    decay: float = 1.0

    def share(self, happened: float, seen: float) -> float:
        """The chance of an event, if it ``happened`` in this number of the ``seen`` observations."""
        return (happened + self.prior * self.weight) / (seen + self.weight)

    def added(self, counts: Counts, *, happened: bool) -> Counts:
        return self.decay * counts[0] + 1.0, self.decay * counts[1] + happened

    def of(self, observations: Iterable[bool]) -> float:
        """The chance after these observations, the oldest first."""
        decay, seen, count = self.decay, 0.0, 0.0
        for happened in observations:  # this is what ``added`` does, without a call for each observation
            seen, count = decay * seen + 1.0, decay * count + happened
        return (count + self.prior * self.weight) / (seen + self.weight)


# Log odds that the answer to a request changes a file, fitted to recorded editing sessions (logistic regression; each
# session predicted from the others: log loss 0.35, by age alone 0.48). The terms for the number of requests since the
# file's last change, and for its size:
_FILE_BASE = -2.6
_FILE_BY_AGE = (1.4, 0.5, 0.6, 0.6, 0.0, 0.0, -0.4)
_FILE_PER_SIZE = 0.4
_USUAL_TOKENS = 2000
# The terms for what the request says about the file (``proxy.planner.change_rates``).
_HINTED = 1.0
_ANSWERED = 2.7
_SYMBOLS = 1.5
_BESIDE = -1.3
# Fitted on prompts and commit messages that real edits followed: 1.1 to 2.6, log loss 1 to 10 % less.
_WORDS = 1.3
# The log odds for a later request, whose prompt is not known yet.
_LATER_BASE = -2.0
# The log odds for a later request, if the share of recent requests that changed the file is known.
_RATED_BASE = -2.45
_RATED_BY_AGE = (0.4, 0.45, 0.25, 0.0, 0.0, 0.0, -0.7)
_PER_RATE = 4.0
_LEAST_SHARE = 0.5

# The share of requests that change a repository map, by the number of requests since its last change.
_MAP_BY_AGE = (0.85, 0.70, 0.40, 0.35, 0.30)
_READ_ONLY = 0.02
_DOCUMENT = 0.60
RATE_WEIGHT = 0.6
# P(change) before anything was seen: for fixed text, and for a system message with volatile lines (the time).
STATIC_CHANGE = 0.02
CLOCK_CHANGE = 0.9

_BREAK_DECAY = 0.93
_OTHER_KIND = 0.15
# A clearing of tool results is looked for among this number of the newest breaks.
_CLEARING_BREAKS = 2
# This share of the requests that do not append, divided by a message's distance from the end, breaks at the message or
# in front of it.
_BREAKS_DEEPER = 0.35
# P(a client that has just cleared tool results keeps all of them next time), before anything was seen.
_PRIOR_CLEARING = 0.2


def file_hazard(age: int, tokens: int, sign: EditSignals) -> float:
    """-ln P(unchanged by the answer) of a file that has ``tokens`` tokens and last changed ``age`` requests ago.
    ``sign`` is what the request says about it."""
    odds = _size_odds(tokens) + _FILE_BASE + _FILE_BY_AGE[min(age, len(_FILE_BY_AGE) - 1)]
    odds += _HINTED * sign.is_hinted + _ANSWERED * sign.is_answered + _BESIDE * sign.is_beside
    odds += _WORDS * sign.words
    if sign.symbols >= _LEAST_SHARE:
        odds += _SYMBOLS * sign.symbols
    return _hazard(odds)


def later_hazard(age: int, tokens: int, rate: float | None) -> float:
    """The same for a later request, which may say anything about the file. ``rate`` is the share of recent requests
    that changed the file."""
    odds = _size_odds(tokens)
    if rate is None:
        return _hazard(odds + _LATER_BASE)
    return _hazard(odds + _RATED_BASE + _RATED_BY_AGE[min(age, len(_RATED_BY_AGE) - 1)] + _PER_RATE * rate)


def _size_odds(tokens: int) -> float:
    return _FILE_PER_SIZE * math.log(max(tokens, 100) / _USUAL_TOKENS)


def _hazard(odds: float) -> float:
    """-ln(1 - p) for log odds, p at most 0.95."""
    return min(math.log1p(math.exp(odds)), 3.0)


def change_hazard(kind: PieceKind, claim: FileClaim, age: int, rate: float | None) -> float:
    """-ln P(unchanged in the next request) of a context piece other than an editable file, last changed ``age``
    requests ago. ``rate`` is the share of recent requests that changed it."""
    if claim is FileClaim.READ_ONLY:
        probability = _READ_ONLY
    elif kind is PieceKind.SYMBOL:
        probability = _MAP_BY_AGE[min(age, len(_MAP_BY_AGE) - 1)]
    else:
        probability = _DOCUMENT
    if rate is not None:
        probability += RATE_WEIGHT * (rate - probability)
    return -math.log1p(-min(probability, 0.95))


def fixed_hazard(seen: int, changes: int, prior: float) -> float:
    """-ln P(unchanged) of a fixed piece (tools, a system message) that changed in ``changes`` of ``seen`` requests."""
    # The prior counts as one request.
    return -math.log1p(-min((changes + prior) / (seen + 1), 0.98))


EVERYTHING = 1 << 30
"""The distance of a break at the first message. It says the same of a conversation that is longer by now."""


class HistoryDivergence(NamedTuple):
    """The point where a conversation broke: how many of the earlier request's messages, counted from its end, the next
    request did not repeat (0: it only appended; 1: the last message was rewritten; large: the client trimmed or
    summarised; ``EVERYTHING``: the first message is another one).

    ``results`` is how many of these messages are tool results, if the first of these messages is a tool result;
    otherwise it is 0. A client that clears old results keeps the same number of them, however many messages are between
    them.
    """

    messages: int
    results: int = 0

    def distance(self, results: Sequence[int]) -> int:
        """The distance from the end at which the same break stands in another request. ``results`` are the distances of
        that request's tool results from its end, the nearest first."""
        return results[self.results - 1] if 0 < self.results <= len(results) else self.messages


def turn_survival(
    seen: Sequence[HistoryDivergence], prior_append: float, turns: int, results: Sequence[int] = ()
) -> list[float]:
    """P(the next request repeats everything up to this message), for each of ``turns`` messages in order.

    ``seen`` are the breaks of a cohort's conversations, oldest first. ``results`` are the distances of the tool results
    from the end, the nearest (1: the last message) first.

    The prior counts as one observation: the request appends with the probability ``prior_append``, otherwise it
    rewrites the last message or, rarely, anything before it. A client that has just cleared results is likely to clear
    the next one. A break counts less if the break before it was of another kind than the newest break.
    """
    counts = [0.0] * (turns + 1)
    weight = 1.0
    total = 1.0
    never_cleared = not any(one.results > 0 for one in seen)
    clears = not never_cleared and _is_clearing(seen, len(seen))
    for place in range(len(seen) - 1, -1, -1):
        one = seen[place]
        is_alike = place == len(seen) - 1 or (place > 0 and (never_cleared or _is_clearing(seen, place) == clears))
        share = weight if is_alike else weight * _OTHER_KIND
        counts[min(one.messages if never_cleared else one.distance(results), turns)] += share
        total += share
        weight *= _BREAK_DECAY
    newest_clearing = next((one for one in reversed(seen) if one.results > 0), None) if clears else None
    cleared = min(newest_clearing.distance(results), turns) if newest_clearing is not None else 0
    priors = _priors(prior_append, turns.bit_length())[:turns]
    priors = (*(min(prior, _PRIOR_CLEARING) for prior in priors[:cleared]), *priors[cleared:])
    # The message at a distance from the end (1: the last) survives if the break is nearer to the end.
    result = [(nearer + prior) / total for nearer, prior in zip(accumulate(counts[:turns]), priors, strict=True)]
    return result[::-1]


@lru_cache(maxsize=64)
def _priors(prior_append: float, bits: int) -> tuple[float, ...]:
    """P(the message at a distance from the end survives), before any break was seen, from distance 1 up to the largest
    number with ``bits`` bits. A long conversation needs hundreds of them, and its next request needs the same ones."""
    rest = 1 - prior_append
    return prior_append, *(prior_append + rest * (1 - _BREAKS_DEEPER / distance) for distance in range(2, 1 << bits))


def _is_clearing(seen: Sequence[HistoryDivergence], place: int) -> bool:
    """Whether tool results were being cleared before this break. An answer without a call in between clears nothing,
    but it does not end the habit."""
    return any(one.results > 0 for one in seen[max(0, place - _CLEARING_BREAKS) : place])


_MENTION_DECAY = 0.95
# The weight of the general estimate, as a number of answers seen.
_MENTION_WEIGHT = 6.0


class CalibrationCounter(Struct, array_like=True):
    """Counts of answers that may edit files: how many there were, how many were expected to edit any file, and how many
    did. Older answers count less."""

    seen: float = 0.0
    expected: float = 0.0
    changed: float = 0.0

    def add(self, chance: float, *, is_changed: bool) -> None:
        """Count one more answer."""
        self.seen = self.seen * _MENTION_DECAY + 1.0
        self.expected = self.expected * _MENTION_DECAY + chance
        self.changed = self.changed * _MENTION_DECAY + is_changed

    def shifted(self, chance: float) -> float:
        """The ``chance`` that is expected in general, corrected by the answers that were seen here: by how much larger
        the log odds of a change are here."""
        usual, more = self.expected / self.seen if self.seen else 0.0, 0.0
        if self.seen:
            here = (_MENTION_WEIGHT * usual + self.changed) / (_MENTION_WEIGHT + self.seen)
            more = _log_odds(here) - _log_odds(usual)
        return 1.0 / (1.0 + math.exp(-_log_odds(chance) - more))


def _log_odds(chance: float) -> float:
    return math.log(max(chance, 1e-4) / max(1.0 - chance, 1e-4))


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
        weight = _WEIGHT
        if all(kept):
            # If documents that all stayed did so as a whole, they say nothing about each single document.
            stays = self.stays(signs)
            weight *= 1 - stays / (stays + (1 - stays) * math.prod(map(self.chance, signs)))
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


def _is_old(signs: Iterable[DocumentSign]) -> bool:
    return all(sign.run > 1 for sign in signs)


def _share(odds: float) -> float:
    return 1 / (1 + math.exp(-max(min(odds, 30.0), -30.0)))

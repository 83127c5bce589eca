"""The signs in a request that tell which files the answer will change: names, identifiers and plain words in the
prompt, and an answer whose edits were not made.

A client that shows files renders them again after they were edited, so an answer that edits a file is seen in the next
request. Each sign was found to be informative on recorded editing sessions (``proxy.planner.change_rates``).

"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import ascii_letters
from types import MappingProxyType
from zlib import crc32

from msgspec import Raw, Struct
from msgspec.structs import replace

from proxy.kit.lru import Bounded
from proxy.protocol.recognition import ContextPiece, MessageKind, PieceKind
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

    def __init__(self, capacity_bytes: int = 2**23) -> None:
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
_SYMBOLS = re.compile(
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
_MEMO = "text"
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
    if message.text is not None:
        return message.text
    known = message.memo.get(_MEMO)
    if isinstance(known, str):
        return known
    text = message.memo[_MEMO] = read_text(message)
    return text


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
    symbols = list(dict.fromkeys(a or b for a, b in _SYMBOLS.findall(prompt)))[:_MAX_SYMBOLS]
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

"""Which files have the words of a prompt: what is asked for in plain words is mostly done where they stand."""

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from zlib import crc32

from proxy.core.lru import Bounded
from proxy.core.recognition.pieces import ContextPiece

# Shorter words are rarely what a text is about.
_SHORTEST_CHARS = 4
# All but letters part words: identifiers are read as what they say. (A regular expression takes half as long again.)
_LETTERS = bytes(code if ord("a") <= code <= ord("z") else ord(" ") for code in range(256))
_MAX_PROMPT_WORDS = 60
_MAX_FILE_CHARS = 100_000

Checksums = Sequence[int]
"""The words of a text, each as its checksum, ascending."""


class FileWords:
    """The words of files by digest: a file is read once. No text is kept."""

    __slots__ = ("_known",)

    def __init__(self, capacity_bytes: int = 2**23) -> None:
        self._known: Bounded[bytes, Checksums] = Bounded(capacity_bytes, lambda words: 250 + 4 * len(words))

    @property
    def bytes(self) -> int:
        """About what it takes in memory."""
        return self._known.bytes

    def shares(self, prompt: str, files: Mapping[str, ContextPiece]) -> dict[str, float]:
        """For each file, its share of the prompt's words that some of the files have and some have not, less what an
        even share would be; a word that several have counts as much as they are fewer. Empty where nothing tells."""
        if len(files) < 2:
            return {}
        known = [self._words(item) for item in files.values()]
        found = [0.0] * len(known)
        for word in list(dict.fromkeys(_words_of(prompt)))[:_MAX_PROMPT_WORDS]:
            checksum = crc32(word)
            holders = [place for place, words in enumerate(known) if _has(words, checksum)]
            if len(holders) < len(known):
                for place in holders:
                    found[place] += 1.0 / len(holders)
        total = sum(found)
        return {key: own / total - 1.0 / len(found) for key, own in zip(files, found, strict=True)} if total else {}

    def _words(self, item: ContextPiece) -> Checksums:
        words = self._known.get(item.digest)
        if words is None:
            found = set(_words_of(item.text[:_MAX_FILE_CHARS]))
            words = self._known[item.digest] = array("I", sorted(set(map(crc32, found))))
        self._known.used(item.digest)
        return words


def _words_of(text: str) -> list[bytes]:
    parts = text.lower().encode("utf-8", "surrogatepass").translate(_LETTERS).split()
    return [part for part in parts if len(part) >= _SHORTEST_CHARS]


def _has(words: Checksums, checksum: int) -> bool:
    place = bisect_left(words, checksum)
    return place < len(words) and words[place] == checksum

"""Folds of answers that are no streams: a JSON body, which is read when it has ended, and bytes that nobody reads.

A body that is too long to be kept passes on as it comes, and is read in outline (``proxy.core.response.outline``).
Sans-IO.
"""

from dataclasses import replace

from proxy.core.account.said import known_items
from proxy.core.response.event_format import BOM, payload_of
from proxy.core.response.outcome import AnswerFacts, Outcome
from proxy.core.response.outline import Outline
from proxy.core.wire.json_body import Unreadable, members_of

MAX_BODY_BYTES = 1 << 20
"""Of a longer JSON body only the outline is kept."""
_BYTES_PER_TOKEN = 4
_READ = frozenset(
    {
        "usage", "usageMetadata", "choices", "diagnostics", "prompt_cache_diagnostics", "service_tier", "duration",
        "id", "status", "model", "store", "background", "conversation", "container", "file", "output_file_id",
        "error_file_id",
    }
)  # fmt: skip
"""The small members of an answer; the others are skipped without being built."""
_ITEM_LISTS = ("output", "data")


class BodyFold:
    """An answer that is one JSON body: passed on as it comes, a copy of it is read at the end. ``length`` is how long
    it says that it is."""

    __slots__ = ("_chunks", "_length", "_outcome", "_outline", "_size", "has_text", "saw_content")

    def __init__(self, length: int = 0) -> None:
        self._length = length
        self._chunks: list[bytes] = []
        self._size = 0
        self._outline: Outline | None = None
        self._outcome: Outcome | None = None
        self.saw_content = self.has_text = False

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; it passes as it is."""
        self.saw_content = self.has_text = True
        self._size += len(chunk)
        if self._outline is not None:
            self._outline.feed(chunk)
            return chunk
        self._chunks.append(chunk)
        if self._size > MAX_BODY_BYTES:
            self._outline = Outline()
            for kept in self._chunks:
                self._outline.feed(kept)
            self._chunks.clear()
        return chunk

    def close(self) -> bytes:
        """The body ended: read it."""
        body = b"".join(self._chunks) if self._outline is None else self._outline.text()
        self._chunks.clear()
        self._outcome = replace(_outcome_of(body), saw_content=self.saw_content)
        return b""

    def outcome(self) -> Outcome:
        """What the body said; before ``close`` no more than how long the whole is, as its model has written it."""
        if self._outcome is not None:
            return self._outcome
        return Outcome(saw_content=self.saw_content, tokens=max(self._size, self._length) // _BYTES_PER_TOKEN)


class RawFold:
    """An answer that is neither a stream nor JSON: audio, files, compressed bytes."""

    __slots__ = ("has_text", "saw_content")

    def __init__(self) -> None:
        self.saw_content = self.has_text = False

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; it passes as it is."""
        self.saw_content = self.has_text = True
        return chunk

    def close(self) -> bytes:
        """Nothing is left."""
        return b""

    def outcome(self) -> Outcome:
        """Nothing is known."""
        return Outcome(saw_content=self.saw_content)


def _outcome_of(body: bytes) -> Outcome:
    try:
        members = members_of(body.removeprefix(BOM))
    except Unreadable:
        return Outcome()
    payload = {name: payload_of(bytes(raw)) for name, raw in members.items() if name in _READ}
    facts = AnswerFacts()
    facts.learn(payload | {name: known_items(members[name]) for name in _ITEM_LISTS if name in members})
    return facts.outcome()

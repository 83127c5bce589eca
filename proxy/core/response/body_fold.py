"""Folds of answers that are no streams: a JSON body, which is read when it has ended, and bytes that are not read.

A body that is too long to be kept is passed on as it comes, and only its outline is read
(``proxy.core.response.outline``).
Sans-IO.
"""

import msgspec
from msgspec import Raw

from proxy.core.account.said import known_items
from proxy.core.response.event_format import BOM, payload_of
from proxy.core.response.outcome import AnswerFacts, Outcome
from proxy.core.response.outline import Outline
from proxy.core.value import replace
from proxy.core.wire.surrogates import read_or_mended

MAX_BODY_BYTES = 1 << 20
"""If a JSON body is longer than this, only its outline is kept."""
_BYTES_PER_TOKEN = 4
_MOST_ANSWERS = 1000
"""Of a longer list of answers, the last ones are read: their counters are cumulative."""
_READ = (
    "usage", "usageMetadata", "timings", "choices", "candidates", "diagnostics", "prompt_cache_diagnostics",
    "service_tier", "duration", "id", "status", "model", "store", "background", "conversation", "container", "file",
    "output_file_id", "error_file_id",
)  # fmt: skip
"""The small members of an answer. The others are skipped without being built. In texts, each half of a surrogate pair
is replaced by another character."""
_ITEM_LISTS = ("output", "data")
_Body = msgspec.defstruct("_Body", [(name, Raw, Raw()) for name in (*_READ, *_ITEM_LISTS)])
# Gemini streams a list of answers if it is not asked for events:
# https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent.
_BODY = msgspec.json.Decoder(_Body | list[_Body])  # type: ignore[valid-type]


class RawFold:
    """An answer that is not read: audio, files, compressed bytes. If it states its ``length`` in bytes, the chunk that
    completes it is held back until ``end``. A byte that ``is_compressed`` counts as a token of text."""

    keeps_end = False
    """The end of a body is no event after which nothing follows."""
    is_between = True

    def __init__(self, length: int | None = None, *, is_compressed: bool = False) -> None:
        self._left = length
        self._bytes_per_token = 1 if is_compressed else _BYTES_PER_TOKEN
        self._end = b""
        self._is_open = True
        self.saw_content = False
        self.written = 0
        """How many bytes have been received."""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; it passes as it is, unless it is the end."""
        self.saw_content = True
        self.written += len(chunk)
        if self._left is None:
            return chunk
        self._left -= len(chunk)
        if self._left > 0:
            return chunk
        self._end += chunk
        return b""

    def end(self) -> bytes:
        """The end of the answer, if it was held back."""
        end, self._end = self._end, b""
        return end

    def close(self) -> bytes:
        """Returns nothing, because nothing else is left."""
        self._is_open = False
        return b""

    def outcome(self) -> Outcome:
        """The outcome, of which only the size is known."""
        tokens = self.written // self._bytes_per_token
        return Outcome(saw_content=self.saw_content, tokens=tokens, is_open=self._is_open)


class BodyFold(RawFold):
    """An answer that is one JSON body. It is passed on as it comes, and a copy of it is read at the end."""

    def __init__(self, length: int | None = None) -> None:
        super().__init__(length)
        self._length = length or 0
        self._chunks: list[bytes] = []
        self._outline: Outline | None = None
        self._outcome: Outcome | None = None

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; it passes as it is, unless it is the end."""
        passed = super().feed(chunk)
        self._chunks.append(chunk)
        if self.written > MAX_BODY_BYTES:
            self._outline = self._outline or Outline()
            for kept in self._chunks:
                self._outline.feed(kept)
            self._chunks.clear()
        return passed

    def close(self) -> bytes:
        """The body has ended: read it."""
        super().close()
        body = b"".join(self._chunks) if self._outline is None else self._outline.text()
        self._chunks.clear()
        facts, read = AnswerFacts(), read_or_mended(_BODY.decode, body.removeprefix(BOM))
        self._outcome = super().outcome()
        if read is not None:
            for one in read[-_MOST_ANSWERS:] if isinstance(read, list) else [read]:
                found = {name: bytes(raw) for name in (*_READ, *_ITEM_LISTS) if (raw := getattr(one, name))}
                lists = {name: known_items(found.pop(name)) for name in _ITEM_LISTS if name in found}
                facts.learn({name: payload_of(raw) for name, raw in found.items()} | lists)
            told = facts.outcome(saw_content=self.saw_content)
            is_whole = told.usage is not None and told.usage.is_whole
            self._outcome = told if is_whole else replace(told, tokens=self._outcome.tokens)
        return b""

    def outcome(self) -> Outcome:
        """The outcome of the body. Before ``close``, it says only how long the whole body is, because its model has
        already written it."""
        if self._outcome is not None:
            return self._outcome
        tokens = max(self.written, self._length) // _BYTES_PER_TOKEN
        return Outcome(saw_content=self.saw_content, tokens=tokens, is_open=True)

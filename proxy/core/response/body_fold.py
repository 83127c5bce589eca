"""Folds of answers that are no streams: a JSON body, which is read when it has ended, and bytes that nobody reads.

A body that is too long to be kept passes on as it comes, and is read in outline (``proxy.core.response.outline``).
Sans-IO.
"""

import msgspec
from msgspec import Raw

from proxy.core.account.said import Said, known_items
from proxy.core.response.miss_diagnostics import cause_in
from proxy.core.response.outline import Outline
from proxy.core.response.reported import Reported, reported_in
from proxy.core.response.stream import Outcome
from proxy.core.response.usage import usage_of
from proxy.core.wire.surrogates import mended

MAX_BODY_BYTES = 1 << 20
"""Of a longer JSON body only the outline is kept."""
_BYTES_PER_TOKEN = 4


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
        self._outcome = _outcome_of(body, self.saw_content)
        return b""

    def outcome(self) -> Outcome:
        """What the body said; before ``close`` no more than how long the whole is, as its model has written it."""
        if self._outcome is not None:
            return self._outcome
        return Outcome(saw_content=self.saw_content, tokens=max(self._size, self._length) // _BYTES_PER_TOKEN)


class RawFold:
    """An answer that is neither: audio, files, compressed bytes."""

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


_ABSENT = Raw(b"[]")


class _Body(msgspec.Struct):
    """The small members of an answer; the others are skipped without being built."""

    usage: object = None
    usageMetadata: object = None
    choices: object = None
    diagnostics: object = None
    prompt_cache_diagnostics: object = None
    service_tier: object = None
    duration: object = None
    output: Raw = _ABSENT
    data: Raw = _ABSENT
    id: object = None
    status: object = None
    model: object = None
    store: object = None
    background: object = None
    conversation: object = None
    container: object = None
    file: object = None
    output_file_id: object = None
    error_file_id: object = None


class _Item(msgspec.Struct):
    """An element of a list that is told from others by its type."""

    type: object = None


_TOLD = (
    "id", "status", "model", "store", "background", "conversation", "container", "file", "output_file_id",
    "error_file_id", "choices",
)  # fmt: skip
_BODY = msgspec.json.Decoder(_Body)
_ITEMS = msgspec.json.Decoder(list[_Item])


def _answer(body: bytes) -> _Body | None:
    """The members of an answer; of texts that hold half of a surrogate pair, with another character in its place."""
    for read in (bytes, mended):
        try:
            return _BODY.decode(read(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None


def _outcome_of(body: bytes, saw_content: bool) -> Outcome:
    answer = _answer(body)
    if answer is None:
        return Outcome(saw_content=saw_content)
    report = answer.usage if isinstance(answer.usage, dict) else answer.usageMetadata
    return Outcome(
        usage=usage_of(report) if isinstance(report, dict) else None,
        reported=_reported(answer),
        saw_content=saw_content,
        finish_reason=_finish_reason(answer.choices),
        cache_cause=cause_in(answer.diagnostics, answer.prompt_cache_diagnostics),
        said=_said(answer),
    )


def _reported(answer: _Body) -> Reported:
    return reported_in(
        {
            "usage": answer.usage,
            "service_tier": answer.service_tier,
            "duration": answer.duration,
            "output": [{"type": item.type} for item in _items(answer.output)],
            "data": _items(answer.data),
        }
    )


def _items(raw: Raw) -> list[_Item]:
    try:
        return _ITEMS.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def _said(answer: _Body) -> Said:
    said = Said()
    members = {name: getattr(answer, name) for name in _TOLD}
    said.learn({**members, "output": known_items(answer.output)})
    return said


def _finish_reason(choices: object) -> str:
    for choice in choices if isinstance(choices, list) else ():
        finish = choice.get("finish_reason") if isinstance(choice, dict) else None
        if isinstance(finish, str):
            return finish
    return ""

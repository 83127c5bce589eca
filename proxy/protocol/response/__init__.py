"""Reads an answer while it passes through the proxy.

The upstream's bytes come in. The bytes for the client go out unchanged, and after them the facts that the answer told:
usage, price tier, objects, cache diagnostics. This package keeps no more of an answer than it needs and never waits.

Three folds read it: bytes come in, bytes to forward go out, and at the end the facts are known. They are sans-IO, as
h11 is: no sockets, no tasks, no clock.

``Outline`` is of a JSON text that is too long to be kept: the facts that an answer states about itself, without its
content. An answer may be an image, an hour of sound or a million numbers, and its cost is in a few bytes somewhere in
it. The text is fed piece by piece as it passes. The outline is JSON of the same form: long strings are empty, long
lists of numbers have one number, and values that are nested too deeply, or are too large for one member, are null. A
text inside a string is never read as a member, whatever it quotes. ``MOST_BYTES`` bounds the memory, and also the work
that is done token by token. The rest is skipped by patterns. The data of a long server-sent event is read in the same
way; it is one line, as every provider sends it.

``BodyFold`` is for answers that are no streams: bytes that are not read, and a JSON body, which is read when it has
ended. A body that is too long to be kept is passed on as it comes, and only its outline is read.

``StreamFold`` takes a stream of server-sent events in the pieces in which the network delivers it. It passes on whole
events, so that a broken connection never leaves a client with half an event (which a client cannot use anyway). It
holds the last event back until it is told to release it, and drops a usage event that the client did not ask for. It
remembers the usage, the finish reason, errors, and whether any content came. The same bytes come out for any division
into pieces. Nearly every network chunk consists of whole events of plain content. One regular expression over the bytes
recognises that, and the chunk passes without being parsed. The usage event:
https://platform.openai.com/docs/api-reference/chat/create#chat-create-stream_options.
"""

import re
from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Raw

from proxy.kit.value import dataclass, field
from proxy.protocol.response.event_format import (
    BOM,
    MAX_EVENT_BYTES,
    NAMED_ERROR,
    EventCutter,
    EventPart,
    event_data,
    payload_of,
)
from proxy.protocol.response.outcome import AnswerFacts, Outcome, Received, known_items
from proxy.protocol.response.usage import items_of, mapping
from proxy.protocol.wire.json_body import INSIDE, PIECE_BYTES, RUN, SHALLOW, read_or_mended

MOST_BYTES = 256 << 10
"""The most bytes of an outline."""
# What stands behind a member that fills all of this may have so much more, because it may be the usage.
_RESERVED_BYTES = 16 << 10
_MOST_STRING_BYTES = 1024
_MOST_RUN_BYTES = 256
_MOST_DEPTH = 10
# Short strings and short lists of numbers, and the text between them. They are kept as they are.
_SHORT = re.compile(rb'(?:[^"\[\]{}]{0,128}+(?:"[^"\\]{0,256}+"|\[[^"\[\]{}]{0,64}+\]|\{\}))++')
_SPACE = b" \t\r\n"
_KEPT = -1


class Outline:
    """Takes a text in pieces of any size."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._depth = 0
        self._starts: list[int] = []  # the places in the outline where the open containers that are kept begin
        self._skip_to = _KEPT  # the depth of the text at which the part that is skipped now will have ended
        self._run = bytearray()  # the text between two brackets or strings: numbers, words, commas and colons
        self._last = b""  # the last byte of a run that is too long to be kept
        self._is_in_string = self._is_escaped = False
        self._string_at = _KEPT  # the place in the outline where the current string begins
        self._is_long = False
        self._is_lost = False

    def feed(self, text: bytes) -> None:
        """Take the next piece of the text."""
        for begin in range(0, len(text), PIECE_BYTES):
            piece, at = text[begin : begin + PIECE_BYTES], 0
            while at < len(piece) and not self._is_lost:
                if self._is_in_string:
                    at = self._in_string(piece, at)
                elif self._skip_to != _KEPT:
                    at = self._skip(piece, at)
                else:
                    at = self._keep(piece, at)

    def text(self) -> bytes:
        """The outline of a text that has ended. Empty if the text has too many members."""
        self._end_run()
        return b"" if self._is_lost else bytes(self._out)

    def _in_string(self, piece: bytes, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            self._add(piece[at : at + 1])
            return at + 1
        found = INSIDE.match(piece, at)
        assert found is not None
        end = found.end()
        self._add(piece[at:end])
        if end == len(piece):
            return end
        self._is_in_string = piece[end] != ord('"')
        self._is_escaped = self._is_in_string  # by a backslash that is the last byte of the piece
        self._add(piece[end : end + 1], is_end=not self._is_in_string)
        return end + 1

    def _add(self, part: bytes, *, is_end: bool = False) -> None:
        """Add a part of a string. A long string is kept without its content."""
        if self._skip_to != _KEPT:
            return
        if not self._is_long and len(self._out) + len(part) - self._string_at > _MOST_STRING_BYTES:
            self._is_long = True
            del self._out[self._string_at + 1 :]
        if is_end or not self._is_long:
            self._out += part

    def _skip(self, piece: bytes, at: int) -> int:
        found = SHALLOW.match(piece, at)
        assert found is not None
        at = found.end()
        if at == len(piece):
            return at
        if piece[at] == ord('"'):
            self._is_in_string = True
        else:
            self._depth += 1 if piece[at] in b"[{" else -1
            if self._depth <= self._skip_to:
                self._skip_to = _KEPT
        return at + 1

    def _keep(self, piece: bytes, at: int) -> int:
        if self._starts and not self._last and (short := _SHORT.match(piece, at)) is not None:
            self._end_run()
            self._out += short[0]
            if len(self._out) > MOST_BYTES:
                self._shorten()
            return short.end()
        found = RUN.match(piece, at)
        assert found is not None
        if found.end() > at:
            self._add_run(found[0].translate(None, _SPACE))
            at = found.end()
        if at == len(piece):
            return at
        self._end_run()
        mark = piece[at : at + 1]
        if mark == b'"':
            self._is_in_string, self._is_long, self._string_at = True, False, len(self._out)
            self._out += mark
        elif mark in b"[{":
            self._open(mark)
        elif not self._starts:
            self._is_lost = True
        else:
            self._depth -= 1
            self._starts.pop()
            self._out += mark
        if len(self._out) > MOST_BYTES:
            self._shorten()
        return at + 1

    def _open(self, mark: bytes) -> None:
        if self._depth >= _MOST_DEPTH:
            self._skip_to = self._depth
            self._out += b"null"
        else:
            self._starts.append(len(self._out))
            self._out += mark
        self._depth += 1

    def _add_run(self, run: bytes) -> None:
        if len(self._run) + len(run) <= _MOST_RUN_BYTES and not self._last:
            self._run += run
        elif run:
            self._run[1:] = b""
            self._run += b"" if self._run else run[:1]
            self._last = run[-1:]

    def _end_run(self) -> None:
        """End a run. A long run is a list of numbers, or one number that is too long; one number replaces it."""
        if self._last:
            before = self._run if self._run[:1] in b",:" else b""
            self._out += before + b"0" + (b"," if self._last == b"," else b"")
        else:
            self._out += self._run
        self._run.clear()
        self._last = b""

    def _shorten(self) -> None:
        """Replace a member that is too large by null. It is a member of the whole text or, if the text is an object
        around another one (an event around its response), of the inner object."""
        is_around = len(self._starts) > 1 and self._out[self._starts[1]] == ord("{")
        member = self._starts[1 + is_around :]
        open_bytes = len(self._out) - member[0] if member else 0
        if open_bytes <= _RESERVED_BYTES and len(self._out) <= MOST_BYTES + _RESERVED_BYTES:
            return
        level = 2 if is_around and member else 1
        if len(self._starts) <= level:
            self._is_lost = True
            return
        del self._out[self._starts[level] :]
        self._out += b"null"
        del self._starts[level:]
        self._skip_to = level


MAX_BODY_BYTES = 1 << 20
"""If a JSON body is longer than this, only its outline is kept."""
_BYTES_PER_TOKEN = 4
# Of a longer list of answers, the last ones are read: their counters are cumulative.
_MOST_ANSWERS = 1000
# The small members of an answer. The others are skipped without being built. In texts, each half of a surrogate pair is
# replaced by another character.
_READ = (
    "usage", "usageMetadata", "timings", "choices", "candidates", "diagnostics", "prompt_cache_diagnostics",
    "service_tier", "duration", "id", "status", "model", "store", "background", "conversation", "container", "file",
    "output_file_id", "error_file_id",
)  # fmt: skip
_ITEM_LISTS = ("output", "data")
_Body = msgspec.defstruct(
    "_Body", [*((name, object, UNSET) for name in _READ), *((name, Raw, Raw()) for name in _ITEM_LISTS)]
)
# Gemini streams a list of answers if it is not asked for events:
# https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent.
_BODY = msgspec.json.Decoder(_Body | list[_Body])  # type: ignore[valid-type]


@dataclass(slots=True, eq=False)
class BodyFold:
    """An answer that is no stream of events. One JSON body is passed on as it comes, and a copy of it ``is_read`` at
    the end. Nothing else is read: audio, files, compressed bytes, of which each byte counts as a token of text
    (``is_compressed``). If the answer states its length in bytes, the chunk that completes it is held back until
    ``end``."""

    keeps_end = False
    """The end of a body is no event after which nothing follows."""
    is_between = True

    _length: int | None = None
    is_read: bool = True
    is_compressed: bool = False
    saw_content: bool = False
    written: int = 0
    """How many bytes have been received."""
    _end: bytes = b""
    _chunks: list[bytes] = field(default_factory=list)
    _outline: Outline | None = None
    _outcome: Outcome | None = None

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; it passes as it is, unless it is the end."""
        self.saw_content = True
        self.written += len(chunk)
        if self.is_read:
            self._chunks.append(chunk)
            if self.written > MAX_BODY_BYTES:
                self._outline = self._outline or Outline()
                self._outline.feed(b"".join(self._chunks))
                self._chunks.clear()
        if self._length is None or self.written < self._length:
            return chunk
        self._end += chunk
        return b""

    def end(self) -> bytes:
        """The end of the answer, if it was held back."""
        end, self._end = self._end, b""
        return end

    def close(self) -> bytes:
        """The answer has ended: read it. Returns nothing, because nothing else is left."""
        tokens = self.written // (1 if self.is_compressed else _BYTES_PER_TOKEN)
        body = b"".join(self._chunks) if self._outline is None else self._outline.text()
        self._chunks.clear()
        read = read_or_mended(_BODY.decode, body.removeprefix(BOM)) if self.is_read else None
        if read is None:
            self._outcome = Outcome(saw_content=self.saw_content, tokens=tokens)
            return b""
        facts = AnswerFacts()
        for one in read[-_MOST_ANSWERS:] if isinstance(read, list) else [read]:
            found = {name: told for name in _READ if (told := getattr(one, name)) is not UNSET}
            lists = {name: known_items(bytes(raw)) for name in _ITEM_LISTS if (raw := getattr(one, name))}
            facts.learn(found | lists)
        self._outcome = facts.outcome(saw_content=self.saw_content, tokens=lambda: tokens)
        return b""

    def outcome(self) -> Outcome:
        """The outcome of the answer. Before ``close`` only its size is known: for a body that is read the size of all
        of it, because its model has already written it."""
        if self._outcome is not None:
            return self._outcome
        size = max(self.written, self._length or 0) if self.is_read else self.written
        tokens = size // (1 if self.is_compressed else _BYTES_PER_TOKEN)
        return Outcome(saw_content=self.saw_content, tokens=tokens, is_open=True)


# The marks of an event that must be parsed. An unescaped quote is never inside a JSON string, so these are keys.
_NOTABLE = re.compile(
    rb'"(?:usage(?:Metadata)?"(?!\s*:\s*null)|finish_reason"\s*:\s*"|error"(?!\s*:\s*null)|amazon-bedrock-invocation'
    rb'|message_stop"|response\.(?:completed|failed|incomplete)")'
    rb"|\[DONE\]|event: ?error"
)
# Nothing follows these events, as nothing follows [DONE]: https://docs.anthropic.com/en/api/messages-streaming,
# https://platform.openai.com/docs/api-reference/responses-streaming.
_LAST_TYPES = ("message_stop", "response.completed", "response.failed", "response.incomplete")


@dataclass(slots=True, eq=False)
class StreamFold:
    """A stream of server-sent events. ``drop_usage``: the client did not ask for the usage event. The event that ends
    a stream in its format, and what came with it, are held back until ``end`` or ``close``."""

    drop_usage: bool = False
    _cutter: EventCutter = field(default_factory=EventCutter)
    _long: Outline | None = None
    _facts: AnswerFacts = field(default_factory=AnswerFacts)
    _error: Mapping[str, object] | None = None
    _is_done: bool = False
    _end: list[bytes] | None = None
    events: int = 0
    _is_open: bool = True
    _received: Received = field(default_factory=Received)
    saw_content: bool = False
    written: int = 0
    """How many events have come since the first text of the model. It grows while the model writes."""
    keeps_end: bool = False
    """Whether the last event has come, and is held back until ``end`` or ``close``."""

    @property
    def is_between(self) -> bool:
        """Whether no event is open at the end of the bytes that have passed."""
        return self.keeps_end or self._cutter.is_between

    @property
    def is_cut(self) -> bool:
        """Whether a part of an event has passed, and its end has not."""
        return self._long is not None

    def end(self) -> bytes:
        """The last event, and all that came with it."""
        end, self._end, self.keeps_end = b"".join(self._end or ()), [], False
        return end

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk. Returns the whole events that may be forwarded now."""
        if (
            self._cutter.is_between
            and self.saw_content
            and not self._end
            and chunk.endswith((b"\n\n", b"\r\n\r\n"))
            and len(chunk) <= MAX_EVENT_BYTES
            and _NOTABLE.search(chunk) is None
        ):
            self.events += chunk.count(b"data:")
            passed = chunk
        else:
            passed = b"".join([self._pass(part, kind) for part, kind in self._cutter.feed(chunk)])
        if passed:
            self._received.add(passed)
            self.written = self.events if self._received.has_text else 0
        return passed

    def close(self) -> bytes:
        """The stream has ended. An event without its empty line still counts as an event, because most clients read it
        so."""
        self._is_open = False
        rest = b"".join([self._pass(part, kind) for part, kind in self._cutter.close()]) + self.end()
        self._received.add(rest)
        return rest

    def outcome(self) -> Outcome:
        """The outcome of the stream up to now."""
        return self._facts.outcome(
            saw_content=self.saw_content,
            error=self._error,
            events=self.events,
            tokens=self._received.tokens,
            is_open=self._is_open and not self._is_done,
        )

    def _pass(self, part: bytes, kind: EventPart) -> bytes:
        """Look into a part. Returns what may be forwarded of it now: everything before the last event, and no usage
        that the client did not ask for."""
        if kind is EventPart.EVENT:
            part = self._event(part)
        elif kind is not EventPart.BLANK:
            data = part
            if self._long is None:
                self._long, self.saw_content, data = Outline(), True, part.partition(b"data:")[2]
                self.events += 1
            self._long.feed(data)
            if kind is EventPart.LAST_PIECE:
                self._learn(payload_of(self._long.text()))
                self._long = None
        if self._end:
            self._end.append(part)
        elif self._is_done and self._end is None:
            self._end, self.keeps_end = [part], True
        else:
            return part
        return b""

    def _event(self, event: bytes) -> bytes:
        self.events += event.count(b"data:")
        if (self.saw_content and _NOTABLE.search(event) is None) or not (data := event_data(event)):
            return event
        if data.startswith(b"[DONE]"):
            self._is_done = True
            return event
        payload = payload_of(data)
        told = mapping(payload)
        if NAMED_ERROR.match(event):
            payload = told = {**told, "error": told.get("error") or told or {"type": "error"}}
        self._learn(payload)
        # Servers write such an event with an empty list of choices, with null, or without choices.
        drops = self.drop_usage and not told.get("choices") and "error" not in told
        return b"" if drops and isinstance(told.get("usage"), dict) else event

    def _learn(self, payload: object) -> None:
        if not isinstance(payload, dict):
            self.saw_content = True
            return
        self._is_done = self._is_done or payload.get("type") in _LAST_TYPES
        self._facts.learn(payload)
        # The Responses API writes the members of an error beside the event's type.
        error = payload.get("error", payload if payload.get("type") == "error" else None)
        if error or isinstance(error, dict):
            self._error = error if isinstance(error, dict) else {"message": str(error)}
        choices = payload.get("choices")
        # Another dialect has no choices (Responses, Anthropic's messages): all that it says counts as content.
        is_other = not (isinstance(choices, list) or error or "usage" in payload)
        self.saw_content = self.saw_content or is_other or any(map(_has_content, items_of(choices)))


Fold = StreamFold | BodyFold
"""The folds through which the engine passes an answer's bytes."""


def _has_content(choice: Mapping[str, object]) -> bool:
    delta = mapping(choice.get("delta") or choice.get("message"))
    return bool(choice.get("text")) or any(value for name, value in delta.items() if name not in ("role", "index"))

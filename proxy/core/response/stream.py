"""Folds of an answer: bytes come in, bytes to forward go out, and at the end the answer's facts about itself are known.

Sans-IO, as h11 is: no sockets, no tasks, no clock. ``StreamFold`` takes a stream of server-sent events in the pieces in
which the network delivers it. It passes on whole events, so that a broken connection never leaves a client with half an
event (which a client cannot use anyway). It holds the last event back until it is told to release it, and drops a usage
event that the client did not ask for. It remembers the usage, the finish reason, errors, and whether any content came.
The same bytes come out for any division into pieces.

Nearly every network chunk consists of whole events of plain content. One regular expression over the bytes recognises
that, and the chunk passes without being parsed.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream; the usage event:
https://platform.openai.com/docs/api-reference/chat/create#chat-create-stream_options.
"""

import re
from collections.abc import Mapping

from proxy.core.response.body_fold import RawFold
from proxy.core.response.event_format import MAX_EVENT_BYTES, EventCutter, Part, event_data, payload_of
from proxy.core.response.outcome import AnswerFacts, Outcome
from proxy.core.response.outline import LongEvent
from proxy.core.response.received import Received

# The marks of an event that must be parsed. An unescaped quote is never inside a JSON string, so these are keys.
_NOTABLE = re.compile(
    rb'"(?:usage(?:Metadata)?"(?!\s*:\s*null)|finish_reason"\s*:\s*"|error"(?!\s*:\s*null)|amazon-bedrock-invocation'
    rb'|message_stop"|response\.(?:completed|failed|incomplete)")'
    rb"|\[DONE\]"
)
# Nothing follows these events, as nothing follows [DONE]: https://docs.anthropic.com/en/api/messages-streaming,
# https://platform.openai.com/docs/api-reference/responses-streaming.
_LAST_TYPES = frozenset({"message_stop", "response.completed", "response.failed", "response.incomplete"})
_NO_CONTENT_KEYS = frozenset({"role", "index"})


class StreamFold:
    """A stream of server-sent events. ``drop_usage``: the client did not ask for the usage event. The event that ends
    a stream in its format, and what came with it, are held back until ``end`` or ``close``."""

    def __init__(self, *, drop_usage: bool = False) -> None:
        self._drop = drop_usage
        self._cutter = EventCutter()
        self._long: LongEvent | None = None
        self._facts = AnswerFacts()
        self._error: Mapping[str, object] | None = None
        self._is_done = False
        self._end: list[bytes] | None = None
        self.events = 0
        self._is_open = True
        self._received = Received()
        self.saw_content = False
        self.written = 0
        """How many events have come since the first text of the model. It grows while the model writes."""
        self.keeps_end = False
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
            passed = b"".join([self._unless_end(self._pass(part, kind)) for part, kind in self._cutter.feed(chunk)])
        if passed:
            self._received.add(passed)
            self.written = self.events if self._received.has_text else 0
        return passed

    def close(self) -> bytes:
        """The stream has ended. An event without its empty line still counts as an event, because most clients read it
        so."""
        self._is_open = False
        last = b"".join([self._pass(part, kind) for part, kind in self._cutter.close()])
        return self.end() + last

    def outcome(self) -> Outcome:
        """The outcome of the stream up to now."""
        return self._facts.outcome(
            saw_content=self.saw_content,
            error=self._error,
            events=self.events,
            received=self._received,
            is_open=self._is_open and not self._is_done,
        )

    def _unless_end(self, passed: bytes) -> bytes:
        """The part that may be forwarded now, which is everything before the last event."""
        if self._is_done and self._end is None:
            self._end, self.keeps_end = [passed], True
        elif self._end:
            self._end.append(passed)
        else:
            return passed
        return b""

    def _pass(self, part: bytes, kind: Part) -> bytes:
        """Look into a part. Returns it, or nothing if the client did not ask for it."""
        if kind is Part.BLANK:
            return part
        if kind is Part.EVENT:
            return self._event(part)
        if self._long is None:
            self._long, self.saw_content = LongEvent(), True
            self.events += 1
        self._long.feed(part)
        if kind is Part.LAST_PIECE:
            payload = payload_of(self._long.outline())
            self._long = None
            if isinstance(payload, dict):
                self._learn(payload)
        return part

    def _event(self, event: bytes) -> bytes:
        self.events += event.count(b"data:")
        if (self.saw_content and _NOTABLE.search(event) is None) or not (data := event_data(event)):
            return event
        if data.startswith(b"[DONE]"):
            self._is_done = True
            return event
        payload = payload_of(data)
        if not isinstance(payload, dict):
            self.saw_content = True
            return event
        self._learn(payload)
        is_usage_only = payload.get("choices") == [] and isinstance(payload.get("usage"), dict)
        return b"" if self._drop and is_usage_only else event

    def _learn(self, payload: Mapping[str, object]) -> None:
        kind = payload.get("type")
        self._is_done = self._is_done or (isinstance(kind, str) and kind in _LAST_TYPES)
        self._facts.learn(payload)
        error = payload.get("error")
        if isinstance(error, dict):
            self._error = error
        elif error:
            self._error = {"message": str(error)}
        choices = payload.get("choices")
        if isinstance(choices, list):
            has_content = any(isinstance(choice, dict) and _has_content(choice) for choice in choices)
        else:
            # Another dialect (Responses, Anthropic's messages): all that it says counts as content.
            has_content = not (error or "usage" in payload)
        self.saw_content = self.saw_content or has_content


Fold = StreamFold | RawFold
"""The folds through which the engine passes an answer's bytes. A ``BodyFold`` is also a ``RawFold``."""


def _has_content(choice: Mapping[str, object]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta") or choice.get("message")
    return isinstance(delta, dict) and any(v for k, v in delta.items() if k not in _NO_CONTENT_KEYS)

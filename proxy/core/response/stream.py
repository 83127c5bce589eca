"""Folds of an answer: bytes in, bytes to forward out, and at the end what the answer said about itself.

Sans-IO, as h11 is: no sockets, no tasks, no clock. ``StreamFold`` takes a stream of server-sent events as the network
cuts it. It passes whole events on, so that a line that breaks never leaves a client with half an event (a client cannot
use a part of one anyway), keeps the last event back until it is told to let go, drops the usage event that the client
did not ask for, and remembers the usage, the finish reason, errors and whether any content came. However the stream is
cut, the same bytes come out.

Nearly every network chunk is whole events of plain content: one regular expression over the bytes sees that, and the
chunk passes without being parsed.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream; the usage event:
https://platform.openai.com/docs/api-reference/chat/create#chat-create-stream_options.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from proxy.core.account.said import Said
from proxy.core.response.event_format import (
    EDGE_BYTES,
    END,
    MAX_EVENT_BYTES,
    event_data,
    event_end,
    payload_of,
    skip_terminators,
)
from proxy.core.response.long_event import LongEvent
from proxy.core.response.miss_diagnostics import UNTOLD, cause_of
from proxy.core.response.received import Received
from proxy.core.response.reported import NOTHING_REPORTED, Reported, reported_in
from proxy.core.response.usage import Usage, UsageFold

# What makes an event worth parsing. An unescaped quote never stands inside a JSON string, so these are keys.
_NOTABLE = re.compile(
    rb'"(?:usage(?:Metadata)?"(?!\s*:\s*null)|finish_reason"\s*:\s*"|error"(?!\s*:\s*null)|amazon-bedrock-invocation'
    rb'|message_stop"|response\.(?:completed|failed|incomplete)")'
    rb"|\[DONE\]"
)
# Behind these events nothing follows, as behind [DONE]: https://docs.anthropic.com/en/api/messages-streaming,
# https://platform.openai.com/docs/api-reference/responses-streaming.
_LAST_TYPES = frozenset({"message_stop", "response.completed", "response.failed", "response.incomplete"})
_NO_CONTENT_KEYS = frozenset({"role", "index"})
_EMPTY_FINISHES = frozenset({"", "stop", "end_turn"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an answer said about itself. ``error`` is the provider's error object, from a stream that broke off."""

    usage: Usage | None = None
    reported: Reported = NOTHING_REPORTED
    saw_content: bool = False
    finish_reason: str = ""
    is_done: bool = False
    error: Mapping[str, object] | None = None
    events: int = 0
    tokens: int = 0
    """About how many tokens of text came, by our own count; 0 where the usage says it."""
    cache_cause: str = UNTOLD
    said: Said | None = None
    """What it says of the objects of the provider's account."""

    @property
    def is_empty(self) -> bool:
        """The model said nothing, and gave no reason (a length limit, a filter) for it."""
        return not self.saw_content and self.error is None and self.finish_reason in _EMPTY_FINISHES


class Fold(Protocol):
    """What the engine does with an answer's bytes."""

    saw_content: bool

    @property
    def has_text(self) -> bool:
        """Whether any text of the model has come."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what may be forwarded now."""
        ...

    def close(self) -> bytes:
        """The answer ended; returns what is still to be forwarded."""
        ...

    def outcome(self) -> Outcome:
        """What is known up to now."""
        ...


class StreamFold:
    """A stream of server-sent events. ``drop_usage``: the client did not ask for the usage event. The event that ends
    a stream of its format, and what came with it, are kept back until ``end`` or ``close``."""

    __slots__ = (
        "_cause", "_drop", "_edge", "_end", "_error", "_events", "_finish", "_is_done", "_long", "_received",
        "_reported", "_said", "_tail", "_usage", "_waiting", "_waiting_bytes", "saw_content",
    )  # fmt: skip

    def __init__(self, *, drop_usage: bool = False) -> None:
        self._drop = drop_usage
        self._tail = b""  # an event that is not whole yet; of a long one, its last bytes, which have been passed on
        # What came behind the tail and ends no event, either: joined once, so that small pieces cost no more than
        # large ones.
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._edge = b""  # the last bytes of all that is kept
        self._long: LongEvent | None = None
        self._usage = UsageFold()
        self._reported = NOTHING_REPORTED
        self._finish = ""
        self._cause = UNTOLD
        self._said = Said()
        self._error: Mapping[str, object] | None = None
        self._is_done = False
        self._end: list[bytes] | None = None
        self._events = 0
        self._received = Received()
        self.saw_content = False

    @property
    def has_text(self) -> bool:
        """Whether any text of the model has come."""
        return self._received.has_text

    @property
    def keeps_end(self) -> bool:
        """The last event has come, and is kept back until ``end`` or ``close``."""
        return bool(self._end)

    def end(self) -> bytes:
        """The last event, and whatever came with it."""
        end, self._end = b"".join(self._end or ()), []
        return end

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns the whole events that may be forwarded now."""
        if (
            not self._tail
            and self.saw_content
            and not self._end
            and chunk.endswith((b"\n\n", b"\r\n\r\n"))
            and len(chunk) <= MAX_EVENT_BYTES
            and _NOTABLE.search(chunk) is None
        ):
            self._events += chunk.count(b"data:")
            self._received.add(chunk)
            return chunk
        if self._tail and self._long is None and self._goes_on(chunk):
            self._waiting.append(chunk)
            self._waiting_bytes += len(chunk)
            self._edge = (self._edge + chunk)[-EDGE_BYTES:]
            return b""
        whole = self._cut(self._waited() + chunk)
        if whole:
            self._received.add(whole)
        return whole

    def close(self) -> bytes:
        """The stream ended; an event without its empty line is still one, as most clients read it."""
        tail, self._tail = self._tail + self._waited(), b""
        if not tail or self._long is not None:
            return self.end()
        last = self._pass(tail)
        return self.end() + last

    def outcome(self) -> Outcome:
        """What the stream said up to now."""
        usage = self._usage.usage()
        return Outcome(
            usage=usage,
            reported=self._reported,
            saw_content=self.saw_content,
            finish_reason=self._finish,
            is_done=self._is_done,
            error=self._error,
            events=self._events,
            tokens=self._received.tokens() if usage is None else 0,
            cache_cause=self._cause,
            said=self._said,
        )

    def _goes_on(self, chunk: bytes) -> bool:
        """Whether the event that has begun is not over with this chunk, nor too long to be kept."""
        if len(self._tail) + self._waiting_bytes + len(chunk) > MAX_EVENT_BYTES:
            return False
        return END.search(self._edge + chunk) is None

    def _waited(self) -> bytes:
        """What waits, which then waits no more."""
        waited = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return waited

    def _cut(self, chunk: bytes) -> bytes:
        """Pass on what is whole, keep the rest."""
        passed: list[bytes] = []
        kept_from = 0 if self._end else None
        buffer = self._tail + chunk
        position = len(self._tail) if self._long is not None else 0
        search_from = max(0, len(self._tail) - 3)
        while True:
            if self._long is None:
                start = position
                position = skip_terminators(buffer, start)
                passed.append(buffer[start:position])
            end = event_end(buffer, max(position, search_from) if self._long is None else search_from)
            if end is None:
                break
            whole = buffer[position:end]
            event = self._pass(whole) if self._long is None else self._pass_long(self._long, whole)
            if self._is_done and self._end is None:
                self._end, kept_from = [], len(passed)
            passed.append(event)
            self._long = None
            position = search_from = end
        passed.append(self._keep(buffer, position))
        if kept_from is None or self._end is None:
            return b"".join(passed)
        self._end += passed[kept_from:]
        return b"".join(passed[:kept_from])

    def _keep(self, buffer: bytes, position: int) -> bytes:
        """Keep what is not whole yet; returns it where it is too long to be kept."""
        rest = buffer[position:]
        if self._long is None and len(rest) <= MAX_EVENT_BYTES:
            self._tail, self._edge = rest, rest[-EDGE_BYTES:]
            return b""
        if self._long is None:
            self._long, self.saw_content = LongEvent(), True
            self._events += 1
        self._long.feed(rest)
        self._tail = buffer[-3:]
        return rest

    def _pass(self, event: bytes) -> bytes:
        """Look into one event; returns it, or nothing where the client did not ask for it."""
        if len(event) > MAX_EVENT_BYTES:
            self.saw_content = True
            self._events += 1
            return self._pass_long(LongEvent(), event)
        self._events += event.count(b"data:")
        if self.saw_content and _NOTABLE.search(event) is None:
            return event
        data = event_data(event)
        if not data:
            return event
        if data.startswith(b"[DONE]"):
            self._is_done = True
            return event
        payload = payload_of(data)
        if not isinstance(payload, dict):
            self.saw_content = True
            return event
        self._learn(payload)
        return b"" if self._drop and _is_usage_only(payload) else event

    def _pass_long(self, event: LongEvent, rest: bytes) -> bytes:
        """The rest of an event of which only the outline is read."""
        event.feed(rest)
        payload = payload_of(event.outline())
        if isinstance(payload, dict):
            self._learn(payload)
        return rest

    def _learn(self, payload: Mapping[str, object]) -> None:
        self._is_done = self._is_done or payload.get("type") in _LAST_TYPES
        self._usage.feed(payload)
        self._reported = self._reported.merged(reported_in(payload))
        self._said.learn(payload)
        cause = cause_of(payload)
        self._cause = cause if cause != UNTOLD else self._cause
        error = payload.get("error")
        if isinstance(error, dict):
            self._error = error
        elif error:
            self._error = {"message": str(error)}
        choices = payload.get("choices")
        if not isinstance(choices, list):
            # Another dialect (Responses, Anthropic's messages): whatever it says is content.
            self.saw_content = self.saw_content or not (error or "usage" in payload)
            return
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            finish = choice.get("finish_reason")
            if isinstance(finish, str) and finish:
                self._finish = finish
            self.saw_content = self.saw_content or _has_content(choice)


def _is_usage_only(payload: Mapping[str, object]) -> bool:
    return payload.get("choices") == [] and isinstance(payload.get("usage"), dict)


def _has_content(choice: Mapping[str, object]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta") or choice.get("message")
    return isinstance(delta, dict) and any(v for k, v in delta.items() if k not in _NO_CONTENT_KEYS)

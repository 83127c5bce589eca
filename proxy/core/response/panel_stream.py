"""A streamed answer without the calls of our own tool. Sans-IO, as the other folds are.

Words and the client's own calls pass at once; the first piece of a call has its name. Where the model calls our tool
alone, the end of its answer (finish and usage) is kept back, because another answer may go on with it: ``opening`` then
begins that one, whose events carry the first one's name, and the usage of all. ``end`` is what the client gets if no
other answer follows. However the stream is cut, the same bytes come out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proxy.core.response.event_format import MAX_EVENT_BYTES, EventCutter, Part, event_data, with_data
from proxy.core.response.panel_calls import CALLING, MOST_CALLS, TEXTS, Object, called, finish_without, object_in
from proxy.core.response.streamed_calls import StreamedCalls
from proxy.core.response.usage_sums import Report, summed
from proxy.core.wire.surrogates import dumps, loads

# What makes an event worth reading.
_NOTABLE = re.compile(
    rb'"(?:tool_calls"(?!\s*+:\s*+(?:null|\[\s*+\]))|usage"(?!\s*+:\s*+null)|finish_reason"\s*+:\s*+"'
    rb'|error"(?!\s*+:\s*+null))|\[DONE\]'
)
_NAMES = ("id", "object", "created", "model")
_MOST_CHOICES = 128
_MOST_SAID_BYTES = 4 << 20
"""An answer whose events are longer in front of its end is not continued."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What an answer has begun that another goes on with: the members that name it, and the usage up to now."""

    names: Object
    usage: Report | None


class PanelStream:
    """One answer. ``may_follow``: another may go on with it. ``opening`` is what this one goes on with."""

    def __init__(self, *, may_follow: bool, opening: Opening | None = None) -> None:
        self._may_follow, self._opening = may_follow, opening
        self._cutter = EventCutter()
        self._calls: dict[int, StreamedCalls] = {}
        self._said: list[bytes] = []
        self.said_bytes = 0
        """How much of the answer is kept for its message."""
        self._names: Object = opening.names if opening is not None else {}
        self._usage = self._earlier = opening.usage if opening is not None else None
        self._held = self._held_usage = self._done = b""
        self.has_content = False
        """Something that the model says to the client has passed. Only looked at where this goes on with another."""
        self.is_broken = False
        """The provider says in its stream that it has failed."""
        self.is_over = False
        """The last event has come."""

    @property
    def taken(self) -> int:
        """How many calls of our tool were taken out."""
        return sum(calls.taken for calls in self._calls.values())

    @property
    def wanted(self) -> int:
        """How many calls another answer must know the results of; none where the client gets this answer as it is."""
        is_whole = self.is_over and not self.is_broken and len(self._calls) == 1
        return self.taken if self._held and is_whole and self.taken <= MOST_CALLS else 0

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what may pass now."""
        is_plain = self._opening is None and self._names and self._cutter.is_between
        if is_plain and chunk.endswith(b"\n\n") and len(chunk) <= MAX_EVENT_BYTES and _NOTABLE.search(chunk) is None:
            self._note(chunk)
            return chunk
        return self._passed(self._cutter.feed(chunk))

    def close(self) -> bytes:
        """The stream has ended; returns what may pass now."""
        return self._passed(self._cutter.close()) + self._over()

    def message(self) -> Object | None:
        """The model's message with its calls; None where it is too long. Thoughts go back as they came: some providers
        refuse a conversation in which a call has lost the thoughts in front of it
        (https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks,
        https://api-docs.deepseek.com/guides/thinking_mode#tool-calls)."""
        if self.said_bytes > _MOST_SAID_BYTES:
            return None
        texts: dict[str, list[str]] = {name: [] for name in TEXTS}
        thoughts: list[dict[str, Any]] = []
        for event, _ in EventCutter().feed(b"".join(self._said)):
            delta = _first_delta(event)
            for name, parts in texts.items():
                parts.append(text if isinstance(text := delta.get(name), str) else "")
            blocks = delta.get("thinking_blocks")
            thoughts += [one for one in blocks if isinstance(one, dict)] if isinstance(blocks, list) else []
        said = {name: "".join(parts) for name, parts in texts.items()}
        return called({**said, "thinking_blocks": _whole(thoughts)}, self._calls[0].ours)

    def opening(self) -> Opening:
        """What another answer goes on with."""
        return Opening(self._names, self._usage)

    def end(self) -> bytes:
        """All that was kept back: no other answer goes on with this one."""
        kept, self._held, self._held_usage = self._held + self._held_usage, b"", b""
        if self._usage is self._earlier is not None and not self.is_broken:
            kept += b"data: " + dumps({**self._names, "choices": [], "usage": self._earlier}) + b"\n\n"
        kept, self._done = kept + self._done, b""
        return kept

    def _passed(self, parts: Iterable[tuple[bytes, Part]]) -> bytes:
        return b"".join([self._event(part) if kind is Part.EVENT else part for part, kind in parts])

    def _event(self, event: bytes) -> bytes:
        if self._opening is None and self._names and _NOTABLE.search(event) is None:
            self._note(event)
            return event
        data = event_data(event)
        if data.startswith(b"[DONE]"):
            self._done = event
            return self._over()
        try:
            payload = loads(data)
            return self._chunk(event, data, payload) if isinstance(payload, dict) else event
        except (ValueError, RecursionError):
            return event

    def _over(self) -> bytes:
        """The last event has come: what may pass now."""
        self.is_over = True
        return b"" if self.wanted or self._fails_silently else self.end()

    @property
    def _fails_silently(self) -> bool:
        """Where the client has nothing of an answer that goes on with another, it gets the other one's end."""
        return self.is_broken and self._opening is not None and not self.has_content

    def _note(self, event: bytes) -> None:
        if self._may_follow:
            self.said_bytes += len(event)
            if self.said_bytes <= _MOST_SAID_BYTES:
                self._said.append(event)

    def _chunk(self, event: bytes, data: bytes, payload: dict[str, Any]) -> bytes:
        """An event with an object in it."""
        if payload.get("error"):
            self.is_broken = True
            held, self._held = self._held, b""
            return b"" if self._fails_silently else held + event
        told, choices, report = dict(payload), payload.get("choices"), payload.get("usage")
        if self._opening is not None:
            told |= {name: value for name, value in self._names.items() if name in payload}
        elif not self._names and payload.get("id"):  # Azure's first event has no names
            self._names = {name: payload[name] for name in _NAMES if name in payload}
        if isinstance(report, dict):
            self._usage = told["usage"] = summed(self._earlier, report)
        if not isinstance(choices, list) or not choices:
            if not self._held or not isinstance(report, dict):
                return _edited(event, data, payload, told)
            self._held_usage = _edited(event, data, payload, told)
            return b""
        self._note(event)
        shown = [self._choice(choice) for choice in choices]
        if any(end is not None for _, end in shown):
            ends = [end for _, end in shown if end is not None]
            self._held = _edited(event, data, payload, {**told, "choices": ends})
            told.pop("usage", None)
        told["choices"] = [choice for choice, _ in shown if choice is not None]
        return _edited(event, data, payload, told) if told["choices"] else b""

    def _choice(self, choice: Any) -> tuple[Any, Object | None]:
        """What passes of a choice, None where that is nothing; and its end, where that is kept back."""
        index = choice.get("index", 0) if isinstance(choice, dict) else None
        if type(index) is not int or index not in range(_MOST_CHOICES):
            return choice, None
        calls = self._calls.setdefault(index, StreamedCalls())
        delta, finish, end = dict(object_in(choice, "delta")), choice.get("finish_reason"), None
        if isinstance(pieces := delta.get("tool_calls"), list) and pieces:
            delta["tool_calls"] = calls.take(pieces)
            if not delta["tool_calls"]:
                del delta["tool_calls"]
        if self._opening is not None:
            delta.pop("role", None)  # the client has it already; libraries would add up the two
            self.has_content = self.has_content or any(delta.values())
        if calls.taken and not calls.theirs and finish in CALLING:
            finish = finish_without(finish)
            if self._may_follow:
                end, finish = {**choice, "delta": {}, "finish_reason": finish}, None
        if delta == object_in(choice, "delta") and finish == choice.get("finish_reason"):
            return choice, end
        is_left = delta or finish
        return ({**choice, "delta": delta, "finish_reason": finish} if is_left else None), end


def _edited(event: bytes, data: bytes, payload: Object, told: Object) -> bytes:
    return event if told == payload else with_data(event, data, dumps(told))


def _first_delta(event: bytes) -> Object:
    """What an event adds to the first choice."""
    try:
        payload = loads(event_data(event))
    except (ValueError, RecursionError):
        return {}
    choices = payload.get("choices") if isinstance(payload, dict) else None
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index", 0) == 0:
            return object_in(choice, "delta")
    return {}


def _whole(pieces: Iterable[dict[str, Any]]) -> list[Object]:
    """Blocks of thoughts, each of which goes on until it is signed. litellm streams Claude's so."""
    blocks: list[dict[str, Any]] = []
    thoughts: list[list[str]] = []
    for piece in pieces:
        is_thought, last = piece.get("type") == "thinking", blocks[-1] if blocks else {}
        if not is_thought or last.get("type") != "thinking" or last.get("signature"):
            blocks.append(dict(piece))
            thoughts.append([])
        if is_thought:
            thoughts[-1].append(str(piece.get("thinking") or ""))
            blocks[-1] |= {"signature": piece["signature"]} if piece.get("signature") else {}
    return [
        {**block, "thinking": "".join(parts)} if block.get("type") == "thinking" else block
        for block, parts in zip(blocks, thoughts, strict=True)
    ]

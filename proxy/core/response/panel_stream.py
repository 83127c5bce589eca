"""A streamed answer without the calls of our own tool. Sans-IO, as the other folds are.

Words pass at once, the client's own calls as soon as it is certain that they are the client's. Where the model calls
our tool alone, the end of its answer (finish and usage) is kept back, because another answer may go on with it:
``opening`` then begins that one, whose events carry the first one's name, and the usage of all. ``end`` is what the
client gets if no other answer follows. However the stream is cut, the same bytes come out. The calls and words of an
answer are kept up to bounds; what is not kept passes unread.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson
from msgspec import Raw

from proxy.core.response.event_format import MAX_EVENT_BYTES, EventCutter, Part, event_data, payload_of, with_data
from proxy.core.response.panel_calls import CALLING, MOST_CALLS, PanelCall
from proxy.core.response.said_message import SaidMessage
from proxy.core.response.streamed_calls import StreamedCalls
from proxy.core.response.usage_sums import Report, summed
from proxy.core.wire.json_body import Members, Unreadable, elements, join_members, members_of, splice, value

# What makes an event worth reading.
_NOTABLE = re.compile(
    rb'"(?:tool_calls"(?!\s*+:\s*+(?:null|\[\s*+\]))|usage"(?!\s*+:\s*+null)|finish_reason"\s*+:\s*+"'
    rb'|error"(?!\s*+:\s*+null)|role")|\[DONE\]'
)
_NAMES = ("id", "object", "created", "model")
_MOST_CHOICES = 128
_NULL = b"null"
_CHOICES = b'"choices"'


@dataclass(frozen=True, slots=True)
class _Shown:
    """What becomes of a choice in an event: what passes in front of the event, the choice that passes with it, and the
    one that is kept back."""

    before: bytes = b""
    choice: bytes | None = None
    held: bytes | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """What an answer has begun that another goes on with: the members that name it, and the usage up to now."""

    names: Mapping[str, Raw]
    usage: Report | None


class PanelStream:
    """One answer. ``may_follow``: another may go on with it. ``opening`` is what this one goes on with."""

    def __init__(self, *, may_follow: bool, opening: Opening | None = None) -> None:
        self._may_follow = may_follow
        self._opening = opening
        self._cutter = EventCutter()
        self._calls: dict[int, StreamedCalls] = {}
        self._said = SaidMessage()
        self._names: Mapping[str, Raw] = opening.names if opening is not None else {}
        self._usage: Report | None = None
        self._finish: str | None = None
        # How events begin up to their choices, and how they begin for the client.
        self._heads: tuple[bytes, bytes] | None = None
        self._held = b""  # the event that says why the model has finished
        self._held_usage = b""
        self._done = b""
        self._is_named, self._is_single = opening is not None, True
        self.has_content = False
        """Something that the model says to the client has passed. Only looked at where this goes on with another."""
        self.is_broken = False
        """The provider says in its stream that it has failed."""
        self.is_over = False
        """The last event has come."""

    @property
    def taken(self) -> int:
        """How many calls of our tool were taken out."""
        return sum(calls.our_calls for calls in self._calls.values())

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what may pass now."""
        is_plain = self._opening is None and self._is_named and self._cutter.is_between
        if is_plain and chunk.endswith(b"\n\n") and len(chunk) <= MAX_EVENT_BYTES and _NOTABLE.search(chunk) is None:
            self._note(chunk)
            return chunk
        return self._passed(self._cutter.feed(chunk))

    def close(self) -> bytes:
        """The stream has ended; returns what may pass now."""
        return self._passed(self._cutter.close()) + self._over()

    def wanted(self) -> tuple[PanelCall, ...]:
        """The calls that another answer must know the results of; none where the client gets this answer as it is."""
        calls = self._calls.get(0)
        if calls is None or calls.client_calls or not 0 < calls.our_calls <= MOST_CALLS or not self._is_single:
            return ()
        is_whole = self._finish in CALLING if self._finish is not None else bool(self._done)
        return calls.panel_calls() if is_whole and self._may_follow and self.is_over and not self.is_broken else ()

    def message(self, calls: Sequence[PanelCall]) -> bytes | None:
        """The model's message with these calls; None where it is too long."""
        return self._said.message(calls)

    def opening(self) -> Opening:
        """What another answer goes on with."""
        earlier = self._opening.usage if self._opening is not None else None
        return Opening(self._names, earlier if self._usage is None else summed(earlier, self._usage))

    def end(self) -> bytes:
        """All that was kept back: no other answer goes on with this one."""
        kept = self._held + self._last_usage() + self._done
        self._held = self._held_usage = self._done = b""
        return kept

    def _last_usage(self) -> bytes:
        """The event with the usage; one of our own where only earlier answers have reported any."""
        is_told = bool(self._held_usage) or self._usage is not None or self.is_broken
        if is_told or self._opening is None or self._opening.usage is None:
            return self._held_usage
        usage: dict[str, bytes | None] = {"choices": b"[]", "usage": orjson.dumps(self._opening.usage)}
        self._usage = {}
        return b"data: " + join_members(self._names, usage) + b"\n\n"

    def _passed(self, parts: Iterable[tuple[bytes, Part]]) -> bytes:
        return b"".join([self._event(part) if kind is Part.EVENT else part for part, kind in parts])

    def _event(self, event: bytes) -> bytes:
        if self._is_named and _NOTABLE.search(event) is None:
            if self._opening is None:
                self._note(event)
                return event
            if self.has_content and self._heads is not None and event.startswith(self._heads[0]):
                self._note(event)
                return self._heads[1] + event[len(self._heads[0]) :]
        data = event_data(event)
        if data.startswith(b"[DONE]"):
            self._done = event
            return self._over()
        try:
            return self._chunk(event, data, members_of(data)) if data else event
        except Unreadable:
            return event

    def _over(self) -> bytes:
        """The last event has come: what may pass now."""
        self.is_over = True
        ended = [(index, calls.end()) for index, calls in self._calls.items()]
        flushed = b"".join([self._frame(index, piece) for index, pieces in ended for piece in pieces])
        if self.is_broken and self._opening is not None and not self.has_content:
            return b""
        return flushed if self.wanted() else flushed + self.end()

    def _chunk(self, event: bytes, data: bytes, members: Members) -> bytes:
        """An event with JSON in it."""
        if bytes(members.get("error", _NULL)) != _NULL:
            return self._error(event)
        choices = elements(members["choices"]) if bytes(members.get("choices", _NULL)) != _NULL else []
        changes = self._named(members, has_choices=bool(choices)) | self._with_usage(members)
        if not choices:
            return self._without_choices(_edited(event, data, members, changes), members)
        self._note(event)
        shown = [self._choice(raw) for raw in choices]
        before = b"".join([one.before for one in shown])
        held = b",".join([one.held for one in shown if one.held is not None])
        if held:
            self._held = _edited(event, data, members, {**changes, "choices": b"[" + held + b"]"})
            changes = {**changes, "usage": None}
        passed = [one.choice for one in shown if one.choice is not None]
        if not passed:
            return before
        if passed != [bytes(raw) for raw in choices]:
            changes = {**changes, "choices": b"[" + b",".join(passed) + b"]"}
        edited = _edited(event, data, members, changes)
        if self._opening is not None:
            self._heads = _heads(event, edited)
        return before + edited

    def _named(self, members: Members, *, has_choices: bool) -> dict[str, bytes | None]:
        """The members that name the answer, as the client knows it. Azure's first event has no names."""
        if not self._is_named and (has_choices or len(members.get("id", b"")) > len(b'""')):
            self._is_named = True
            self._names = {name: members[name] for name in _NAMES if name in members}
        if self._opening is None:
            return {}
        return {name: bytes(raw) for name, raw in self._names.items() if name in members}

    def _note(self, event: bytes) -> None:
        if self._may_follow:
            self._said.add(event)

    def _without_choices(self, event: bytes, members: Members) -> bytes:
        """An event about the answer as a whole: its usage is kept back with the finish."""
        if self._held and bytes(members.get("usage", _NULL)) != _NULL:
            self._held_usage = event
            return b""
        return event

    def _with_usage(self, members: Members) -> dict[str, bytes | None]:
        """Note the usage in an event; with that of the earlier answers in it, where there are some."""
        found: dict[str, bytes | None] = {}
        earlier = self._opening.usage if self._opening is not None else None
        report = payload_of(bytes(members["usage"])) if "usage" in members else None
        if isinstance(report, dict):
            self._usage = report
            if earlier is not None:
                found["usage"] = orjson.dumps(summed(earlier, report))
        groq = payload_of(bytes(members["x_groq"])) if "x_groq" in members else None
        report = groq.get("usage") if isinstance(groq, dict) else None
        if isinstance(groq, dict) and isinstance(report, dict):
            self._usage = self._usage or report
            if earlier is not None:
                found["x_groq"] = orjson.dumps({**groq, "usage": summed(earlier, report)})
        return found

    def _error(self, event: bytes) -> bytes:
        """The provider has failed. Where the client has words of this answer, it hears of it."""
        self.is_broken = True
        if self._opening is not None and not self.has_content:
            return b""
        held, self._held = self._held, b""
        return held + event

    def _choice(self, raw: Raw) -> _Shown:
        members = members_of(raw)
        index = value(members["index"]) if "index" in members else 0
        if type(index) is not int or index not in range(_MOST_CHOICES):
            return _Shown(choice=bytes(raw))
        self._is_single = self._is_single and index == 0
        calls = self._calls.setdefault(index, StreamedCalls())
        delta = members_of(members["delta"]) if bytes(members.get("delta", _NULL)) != _NULL else {}
        pieces, left = self._delta(calls, delta)
        finish = value(members["finish_reason"]) if "finish_reason" in members else None
        has_finished = isinstance(finish, str) and finish != ""
        if has_finished:
            pieces += calls.end()
            self._finish = str(finish) if index == 0 else self._finish
        if left is None and not (has_finished and calls.our_calls):
            return _Shown(b"".join([self._frame(index, piece) for piece in pieces]), bytes(raw))
        left = delta if left is None else left
        if len(pieces) == 1:
            left, pieces = {**left, "tool_calls": Raw(b"[" + pieces[0] + b"]")}, []
        before = b"".join([self._frame(index, piece) for piece in pieces])
        return self._finished(raw, members, left, calls, before) if has_finished else _unfinished(members, left, before)

    def _finished(self, raw: Raw, members: Members, left: Members, calls: StreamedCalls, before: bytes) -> _Shown:
        """The last event of a choice in which our tool was called, or whose delta has changed."""
        own = join_members(left, {})
        if not calls.our_calls or calls.client_calls:
            return _Shown(before, splice(bytes(raw), members, {"delta": own}))
        was_calling = bytes(members["finish_reason"]) in (b'"tool_calls"', b'"function_call"')
        finish = b'"stop"' if was_calling else bytes(members["finish_reason"])
        if not (self._may_follow and self._is_single):
            return _Shown(before, splice(bytes(raw), members, {"delta": own, "finish_reason": finish}))
        held = splice(bytes(raw), members, {"delta": b"{}", "finish_reason": finish})
        shown = _unfinished(members, left, before)
        return _Shown(before, shown.choice, held)

    def _delta(self, calls: StreamedCalls, delta: Members) -> tuple[list[bytes], Members | None]:
        """The pieces of calls that pass, where they are not those of the delta; and what else is left of it, None where
        it passes as it is."""
        entries = elements(delta["tool_calls"]) if bytes(delta.get("tool_calls", _NULL)) != _NULL else []
        pieces = calls.take(entries)
        is_same = pieces == [bytes(entry) for entry in entries]
        if self._opening is not None:
            self.has_content = self.has_content or bool(pieces) or _has_words(delta)
        if is_same and (self._opening is None or "role" not in delta):
            return [], None
        # The client has the role already; libraries would add up the two.
        dropped = {"tool_calls"} | ({"role"} if self._opening is not None else set())
        return pieces, {name: raw for name, raw in delta.items() if name not in dropped}

    def _frame(self, index: int, piece: bytes) -> bytes:
        """An event with a piece of a call in it that was kept."""
        delta = b'{"index":%d,"delta":{"tool_calls":[%b]},"finish_reason":null}' % (index, piece)
        return b"data: " + join_members(self._names, {"choices": b"[" + delta + b"]"}) + b"\n\n"


def _unfinished(members: Members, left: Members, before: bytes) -> _Shown:
    """A choice with what is left of its delta; nothing where that is nothing."""
    if not left:
        return _Shown(before)
    changes: dict[str, bytes | None] = {"delta": join_members(left, {})}
    if "finish_reason" in members:
        changes["finish_reason"] = _NULL
    return _Shown(before, join_members(members, changes))


def _edited(event: bytes, data: bytes, members: Members, changes: Mapping[str, bytes | None]) -> bytes:
    if not changes:
        return event
    return with_data(event, data, splice(data, members, changes))


def _heads(event: bytes, edited: bytes) -> tuple[bytes, bytes] | None:
    """The beginnings of an event and of its edited form, where all that differs stands in front of the choices."""
    at = event.find(_CHOICES)
    if at < 0 or not edited.endswith(event[at:]):
        return None
    return event[:at], edited[: len(edited) - (len(event) - at)]


def _has_words(delta: Members) -> bool:
    return any(name != "role" and bytes(raw) not in (_NULL, b'""', b"[]", b"{}") for name, raw in delta.items())

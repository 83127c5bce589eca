"""The tool calls of one answer while they stream: which are the client's, and which are the proxy's own. Sans-IO.

A call comes in pieces, and its name may be cut anywhere or come late. Pieces pass as soon as it is certain that the
call is the client's, and in the order of the calls; pieces of calls of our tool never do. Memory is bounded.
"""

from itertools import count

import orjson
from msgspec import Raw

from proxy.core.response.panel_calls import (
    MOST_ARGUMENT_BYTES,
    PANEL_TOOL,
    Members,
    PanelCall,
    panel_call,
    text_of,
)
from proxy.core.wire.json_body import Unreadable, join_members, members_of

_MOST_CALLS = 1024
"""Pieces of further calls pass as they are, but for those of a call that names our tool at once."""
_MOST_KEPT_BYTES = 1 << 20
_NULL = b"null"


class _Call:
    """One call. ``kept`` are its pieces that have not passed; of a call of ours only the arguments are kept."""

    def __init__(self, index: int | None, call_id: bytes) -> None:
        self.index, self.id = index, call_id
        self.members: dict[str, Raw | bytes] = {}
        self.name = ""
        self.arguments: list[bytes] = []
        self.size = self.shift = 0
        self.kept: list[Members] = []
        self.is_ours: bool | None = None
        """Whether the call is of our tool; None while that is not decided."""
        self.passes = False

    def take(self, entry: Members) -> None:
        """Take a piece into account."""
        function = _members(entry.get("function"))
        name = text_of(function.get("name"))
        if self.is_ours is None and not name == self.name == PANEL_TOOL:  # some servers repeat it in each piece
            self.name += name[: len(PANEL_TOOL) + 1]
        for member, raw in entry.items():
            if member not in ("index", "function") and bytes(raw) != _NULL:
                self.members.setdefault(member, raw)
        arguments = bytes(function.get("arguments", b""))
        has_arguments = arguments[:1] == b'"' and len(arguments) > len(b'""')
        if has_arguments and self.size <= MOST_ARGUMENT_BYTES:
            self.size += len(arguments)
            self.arguments.append(arguments[1:-1])
        is_another = not PANEL_TOOL.startswith(self.name)
        if is_another or (has_arguments and self.name) or self.size > MOST_ARGUMENT_BYTES:
            self.settle()

    def settle(self) -> None:
        """No further piece comes, or none is waited for."""
        if self.is_ours is None:
            self.is_ours = self.name == PANEL_TOOL

    def panel_call(self, number: int) -> PanelCall:
        """The call of ours as a whole."""
        arguments = b'"' + b"".join(self.arguments) + b'"' if self.size <= MOST_ARGUMENT_BYTES else None
        return panel_call(self.members, arguments, number)


class StreamedCalls:
    """The calls of one choice. ``take`` and ``end`` give the pieces that may pass now."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}
        self._decided = 0  # so many of the calls, from the first on, are decided
        self._taken: set[int] = set()
        self._kept_bytes = 0
        self._beyond: int | None = None  # the index of the latest call of ours that is not kept
        self.client_calls = self.our_calls = 0

    def take(self, entries: list[Raw]) -> list[bytes]:
        """Take the pieces of one event."""
        passed: list[bytes] = []
        for raw in entries:
            entry = _members(raw)
            call = self._call_of(entry) if entry else None
            if call is None:
                if not self._is_ours_beyond(entry):
                    passed.append(bytes(raw))
                continue
            call.take(entry)
            self._advance(passed)
            if call.is_ours:
                continue
            if call.passes:
                passed.append(_shifted(entry, call.shift))
            else:
                self._keep(call, entry, passed)
        return passed

    def end(self) -> list[bytes]:
        """No further piece comes: every call is decided."""
        passed: list[bytes] = []
        for call in self._calls[self._decided :]:
            call.settle()
        self._advance(passed)
        return passed

    def panel_calls(self) -> tuple[PanelCall, ...]:
        """The calls of ours, when all have ended."""
        numbers = count()
        return tuple(call.panel_call(next(numbers)) for call in self._calls if call.is_ours)

    def _call_of(self, entry: Members) -> _Call | None:
        """The call that a piece belongs to. Some servers give all calls one index: then another id is another call."""
        index = _index(entry.get("index"))
        call_id = bytes(entry.get("id", b""))
        call_id = b"" if call_id in (_NULL, b'""') else call_id
        call = self._latest.get(index)
        if call is not None and not (call_id and call.id and call_id != call.id):
            call.id = call.id or call_id
            return call
        if len(self._calls) >= _MOST_CALLS:
            return None
        call = self._latest[index] = _Call(index, call_id)
        self._calls.append(call)
        return call

    def _is_ours_beyond(self, entry: Members) -> bool:
        """Whether a piece of a call that is not kept belongs to our tool."""
        name, index = text_of(_members(entry.get("function")).get("name")), _index(entry.get("index"))
        if name:
            self._beyond = index if name == PANEL_TOOL else None
        return name == PANEL_TOOL or (not name and index is not None and index == self._beyond)

    def _keep(self, call: _Call, entry: Members, passed: list[bytes]) -> None:
        """Keep a piece until its call is decided, and all calls in front of it."""
        call.kept.append(entry)
        self._kept_bytes += _size(entry)
        if self._kept_bytes > _MOST_KEPT_BYTES:
            passed += self.end()

    def _advance(self, passed: list[bytes]) -> None:
        """Let go what the calls have kept that are decided now, and all in front of them."""
        while self._decided < len(self._calls) and self._calls[self._decided].is_ours is not None:
            call = self._calls[self._decided]
            self._decided += 1
            self._kept_bytes -= sum(map(_size, call.kept))
            if call.is_ours:
                self.our_calls += 1
                self._taken.update(() if call.index is None else (call.index,))
            else:
                self.client_calls += 1
                call.passes = True
                # So many places below this one are empty, because calls of ours stood there.
                call.shift = sum(1 for index in self._taken if call.index is not None and index < call.index)
                passed += [_shifted(entry, call.shift) for entry in call.kept]
            call.kept.clear()


def _shifted(entry: Members, shift: int) -> bytes:
    """A piece with the index that its call has without ours."""
    index = _index(entry.get("index"))
    moved = {} if not shift or index is None else {"index": orjson.dumps(max(0, index - shift))}
    return join_members({name: Raw(bytes(raw)) for name, raw in entry.items()}, moved)


def _size(entry: Members) -> int:
    return sum(map(len, entry.values()))


def _members(raw: Raw | bytes | None) -> Members:
    try:
        return members_of(raw) if raw is not None else {}
    except Unreadable:
        return {}


def _index(raw: Raw | bytes | None) -> int | None:
    text = bytes(raw) if raw is not None else b""
    return int(text) if text.isdigit() and len(text) < 10 else None

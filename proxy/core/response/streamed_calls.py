"""The tool calls of one choice while they stream: which are the client's, and which are the proxy's own. Sans-IO.

A call comes in pieces, of which the first has its whole name, as all providers write it. Memory is bounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core.response.panel_calls import MOST_ARGUMENT_CHARS, MOST_CALLS, is_ours, object_in

_MOST_OPEN = 1024


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that has begun. ``ours`` is what is known of one of our tool. So many places below the index of another
    are empty, because calls of ours stood there."""

    id: object
    name: object
    shift: int
    ours: dict[str, Any] | None


class StreamedCalls:
    """``taken`` and ``theirs`` are how many calls are ours and the client's. Of ours the first ones are kept."""

    def __init__(self) -> None:
        self._latest: dict[int | None, _Call] = {}
        self.ours: list[dict[str, Any]] = []
        self.taken = self.theirs = 0

    def take(self, pieces: Sequence[Any]) -> list[Any]:
        """Take the pieces of one event; returns those of the client's calls."""
        passed = [self._passed(piece) if isinstance(piece, dict) else piece for piece in pieces]
        return [piece for piece in passed if piece is not None]

    def _passed(self, piece: dict[str, Any]) -> dict[str, Any] | None:
        """A piece of a call of the client's, with the index that the call has without ours."""
        index = piece.get("index")
        index = index if type(index) is int else None
        call = self._call_of(index, piece)
        if call.ours is not None:
            return None
        return {**piece, "index": max(0, index - call.shift)} if call.shift and index is not None else piece

    def _call_of(self, index: int | None, piece: dict[str, Any]) -> _Call:
        """The call that a piece belongs to. Some servers give all calls one index: then another id or name is another
        call. Some repeat both in each piece."""
        call, function = self._latest.get(index), object_in(piece, "function")
        call_id, name, arguments = piece.get("id"), function.get("name"), function.get("arguments")
        arguments = arguments if isinstance(arguments, str) else ""
        if call is None or (call_id and call.id and call_id != call.id) or (name and name != call.name):
            return self._begun(index, piece, arguments)
        if call.ours is not None and self.taken <= MOST_CALLS:
            written = call.ours["function"]
            written["arguments"] += arguments if len(written["arguments"]) <= MOST_ARGUMENT_CHARS else ""
        return call

    def _begun(self, index: int | None, piece: dict[str, Any], arguments: str) -> _Call:
        ours = {**piece, "function": {"arguments": arguments}} if is_ours(piece) else None
        if len(self._latest) >= _MOST_OPEN:
            self._latest.clear()
        call = _Call(piece.get("id"), object_in(piece, "function").get("name"), self.taken, ours)
        self._latest[index] = call
        if ours is None:
            self.theirs += 1
            return call
        self.taken += 1
        if self.taken <= MOST_CALLS:
            self.ours.append(ours)
        return call

"""Checks the client's context messages in the sent request. Each must be there once, whole or in parts; if it is in
parts, the opening is with the last part.

Several messages of a client may have the same opening and hold the same files, so they are judged together. The sent
request must have as many openings of each kind as the client sent. Under each claim it must have the same pieces, each
as often as the client sent it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from proxy.core.recognition.fixed_texts import CLAIM_HEADERS, PART_ACKNOWLEDGEMENT
from proxy.core.value import dataclass, field


@dataclass(frozen=True, slots=True)
class Said:
    """One message without its markers. ``text`` joins its parts if all of them are plain text; else it is None."""

    role: str
    text: str | None
    parts: tuple[str, ...]
    rest: str

    @property
    def has_results(self) -> bool:
        """Whether it answers calls. Some clients write results into a user message."""
        return self.role in ("tool", "function") or (
            self.text is None and any('"type":"tool_result"' in part for part in self.parts)
        )

    @property
    def is_asked(self) -> bool:
        """Whether it is a user's message without results."""
        return self.role == "user" and not self.has_results

    def same(self, other: "Said") -> bool:
        """Whether the messages are equal, wherever their text is cut into parts."""
        if self.text is None or other.text is None:
            return self == other
        return (self.role, self.text, self.rest) == (other.role, other.text, other.rest)


@dataclass(frozen=True, slots=True)
class Context:
    """A context message of the client with its acknowledgement. It may be taken apart into ``pieces``, under
    ``header``."""

    message: Said
    ack: Said
    opening: str
    header: str
    pieces: tuple[str, ...]

    @property
    def kind(self) -> tuple[str | None, ...]:
        """Everything that is sent with the last part. It may be the same for several messages."""
        return self.opening, self.header, self.message.rest, self.ack.text, self.ack.rest

    def ends(self, said: Said) -> bool:
        """Whether ``said`` is the opening of this context message with one of its pieces."""
        text = said.text or ""
        is_piece = text.startswith(self.opening) and text.removeprefix(self.opening) in self.pieces
        return is_piece and self.message.rest == said.rest


@dataclass(slots=True)
class Contexts:
    """All context messages of a request, and the parts of them that were found: the pieces by their header, and the
    positions of openings and parts."""

    known: Sequence[Context]
    _openings: Counter[tuple[str | None, ...]] = field(default_factory=Counter)
    _pieces: Counter[tuple[str, str]] = field(default_factory=Counter)
    _last_opening: dict[tuple[str, str], int] = field(default_factory=dict)
    _last_part: dict[tuple[str, str], int] = field(default_factory=dict)

    def take(self, at: int, said: Said, following: Said | None) -> bool:
        """Whether this message and the next one are a context message, or a part of one."""
        if said.role != "user" or said.text is None or following is None:
            return False
        return self._take_opening(at, said, said.text, following) or self._take_part(at, said, said.text, following)

    def _take_opening(self, at: int, said: Said, text: str, following: Said) -> bool:
        found = [one for one in self.known if one.ack.same(following) and (one.message.same(said) or one.ends(said))]
        for context in found[:1]:
            pieces = context.pieces if context.message.same(said) else (text.removeprefix(context.opening),)
            self._openings[context.kind] += 1
            self._pieces.update((context.header, piece) for piece in pieces)
        # If it may be the opening of several messages, it counts for each of them.
        self._last_opening.update({(one.header, piece): at for one in found for piece in one.pieces})
        return bool(found)

    def _take_part(self, at: int, said: Said, text: str, following: Said) -> bool:
        header = next((words for words in CLAIM_HEADERS.values() if text.startswith(words)), None)
        is_acknowledged = following.role == "assistant" and following.text == PART_ACKNOWLEDGEMENT
        if header is None or said.rest != "{}" or not is_acknowledged:
            return False
        piece = text.removeprefix(header)
        if not any(context.header == header and piece in context.pieces for context in self.known):
            return False
        self._pieces[header, piece] += 1
        self._last_part[header, piece] = at
        return True

    def faults(self) -> Iterator[str]:
        """The faults, after all messages were taken."""
        if self._openings != Counter(context.kind for context in self.known):
            yield "a context message is missing, or its opening, or stands there twice"
        if self._pieces != Counter((context.header, piece) for context in self.known for piece in context.pieces):
            yield "the parts of a context message are not its text"
        if any(at > self._last_opening.get(part, -1) for part, at in self._last_part.items()):
            yield "a part of a context message behind its opening"

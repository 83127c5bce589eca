"""The client's context messages in what is sent: each stands there once, either whole or in its parts, the opening with
the last part.

Several messages of a client may have the same opening, and hold the same files. Which part belongs to which message can
be told only when all parts have been seen.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from proxy.core.recognition.fixed_texts import CLAIM_HEADERS, PART_ACKNOWLEDGEMENT

# So many ways to say whose an opening is are tried, where there are no more of them than that.
_MOST_TRIES = 500
_MOST_LEADS = 40


@dataclass(frozen=True, slots=True)
class Said:
    """One message without its markers. ``text`` joins its parts where all of them are plain text; else it is None."""

    role: str
    text: str | None
    parts: tuple[str, ...]
    rest: str

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


@dataclass(frozen=True, slots=True)
class _Lead:
    """A sent message that begins with an opening of the client and is followed by its acknowledgement.

    ``whole`` are the indices of the contexts that it may be as a whole. ``last`` are those whose last part it may be,
    each with the piece.
    """

    at: int
    whole: tuple[int, ...]
    last: tuple[tuple[int, str], ...]


class _Owner(NamedTuple):
    """A context, by its index, and the piece that its last part holds. None as the piece means that the context is
    whole."""

    context: int
    piece: str | None


_Owners = dict[int, _Owner]
"""Whose a lead is, by the lead's index."""


@dataclass(slots=True)
class Contexts:
    """All of a request's, and what was found of them."""

    known: Sequence[Context]
    _leads: list[_Lead] = field(default_factory=list)
    _parts: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))

    def take(self, at: int, said: Said, following: Said | None) -> bool:
        """Whether this message and the next one are a context message, or a part of one."""
        if said.role != "user" or said.text is None or following is None:
            return False
        return self._take_lead(at, said, said.text, following) or self._take_part(at, said, said.text, following)

    def _take_lead(self, at: int, said: Said, text: str, following: Said) -> bool:
        whole: list[int] = []
        last: list[tuple[int, str]] = []
        for index, context in enumerate(self.known):
            if not context.ack.same(following):
                continue
            if context.message.same(said):
                whole.append(index)
            if len(context.pieces) > 1 and context.message.rest == said.rest and text.startswith(context.opening):
                piece = text[len(context.opening) :]
                last += [(index, piece)] if piece in context.pieces else []
        if not whole and not last:
            return False
        self._leads.append(_Lead(at, tuple(whole), tuple(last)))
        return True

    def _take_part(self, at: int, said: Said, text: str, following: Said) -> bool:
        header = next((words for words in CLAIM_HEADERS.values() if text.startswith(words)), None)
        if (
            header is None
            or said.rest != "{}"
            or following.role != "assistant"
            or following.text != PART_ACKNOWLEDGEMENT
        ):
            return False
        piece = text[len(header) :]
        if not any(context.header == header and piece in context.pieces for context in self.known):
            return False
        self._parts[(header, piece)].append(at)
        return True

    def faults(self) -> list[str]:
        """What is wrong, after all messages were taken."""
        plain: _Owners = {}
        for index in range(len(self._leads)):
            options = self._options(index, plain)
            if options:
                plain[index] = options[0]
        found = self._faults(plain)
        if not found or len(self._leads) > _MOST_LEADS:
            return found
        others = islice(self._owners(0, {}), _MOST_TRIES)
        return found if all(self._faults(owners) for owners in others) else []

    def _owners(self, index: int, taken: _Owners) -> Iterator[_Owners]:
        """Every way to assign the leads to messages."""
        if index == len(self._leads):
            yield dict(taken)
            return
        options = self._options(index, taken)
        for option in options:
            yield from self._owners(index + 1, {**taken, index: option})
        if not options:
            yield from self._owners(index + 1, taken)

    def _options(self, index: int, taken: _Owners) -> list[_Owner]:
        """The contexts to which a lead may belong. Of messages that are equal as a whole, only the first counts."""
        lead, owned = self._leads[index], {owner for owner, _ in taken.values()}
        whole = [_Owner(owner, None) for owner in lead.whole if owner not in owned]
        return whole[:1] + [_Owner(owner, piece) for owner, piece in lead.last if owner not in owned]

    def _faults(self, owners: _Owners) -> list[str]:
        found = ["a user message that the client did not send here"] * (len(self._leads) - len(owners))
        found += ["a context message is missing, or its opening"] * (len(self.known) - len(owners))
        wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
        for lead, (owner, piece) in owners.items():
            if piece is None:
                continue
            others = Counter(self.known[owner].pieces)
            others[piece] -= 1
            for other in others.elements():
                wanted[(self.known[owner].header, other)].append(self._leads[lead].at)
        for key in dict.fromkeys([*wanted, *self._parts]):
            found += _misplaced(sorted(self._parts.get(key, ())), sorted(wanted.get(key, ())))
        return found


def _misplaced(places: Sequence[int], deadlines: Sequence[int]) -> list[str]:
    """What is wrong with the places of the parts: each must stand before the opening of its message."""
    if len(places) != len(deadlines):
        return ["the parts of a context message are not its text"]
    if any(place > deadline for place, deadline in zip(places, deadlines, strict=True)):
        return ["a part of a context message behind its opening"]
    return []

"""A conversation as the planner needs it. As the conversation grows, the results for its first messages are taken over.

So a long conversation costs time for its new messages only. Every result for a message depends on this message and
those in front of it, never on the messages behind it.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from copy import copy

from proxy.core.digest import digest
from proxy.core.recognition.pieces import MessageKind, PieceKind
from proxy.core.request.element import Element, message_element
from proxy.core.request.message import SYSTEM_ROLES, Message, PartKind, text_digest

# The greatest length of an assistant message that acknowledges context in words that no recogniser knows.
MAX_GENERIC_ACK_CHARS = 160


class Transcript:
    """The messages of one request.

    ``preamble`` is the number of leading system messages. ``elements`` holds each message as it came, ``turns`` the
    identity of each as a turn. ``pairs`` holds for each user turn its index and a digest of this turn, of the newest
    answer in front of it (of the model or of a tool), and of the turn before that answer. So texts that a client shows
    in front of its prompt and does not keep do not change a pair. ``marked`` are the indices of messages with markers,
    ``recognised`` those of messages that a recogniser took apart, ``notices`` those of system messages behind the
    preamble, and ``signed`` those of messages with signed thinking.
    """

    __slots__ = (
        "_answers", "_before", "_last", "_skips", "elements", "preamble", "marked", "media_at", "messages", "notices",
        "pairs", "recognised", "signed", "turns",
    )  # fmt: skip

    def __init__(
        self, messages: Sequence[Message], base: "Transcript | None" = None, shared: int | None = None
    ) -> None:
        """``base`` is an earlier state of the conversation. Its first ``shared`` messages are also the first ones here;
        None: all of its messages are."""
        self.messages = tuple(messages)
        self.preamble, self.media_at = 0, -1
        self.marked: tuple[int, ...] = ()
        self.recognised: tuple[int, ...] = ()
        self.notices: tuple[int, ...] = ()
        self.signed: tuple[int, ...] = ()
        self.pairs: tuple[tuple[int, bytes], ...] = ()
        self.turns: tuple[bytes, ...] = ()
        self.elements: tuple[Element, ...] = ()
        self._skips: MessageKind | None = None
        self._last = self._before = b""
        self._answers: list[bytes] = []
        first = self._taken_over(base, len(base.messages) if shared is None else shared) if base is not None else 0
        added = self.messages[first:]
        self.turns = (*self.turns, *map(turn_digest, added))
        self.elements = (*self.elements, *self._added(first, added))

    @property
    def client(self) -> str:
        """The name of the recogniser that knows this client's texts: the first one that recognised more than
        instructions. Empty if there is none."""
        for index in self.recognised:
            known = self.messages[index].recognition
            if known is not None and known.form is not MessageKind.SYSTEM:
                return known.name.partition(":")[0]
        return ""

    @property
    def has_media(self) -> bool:
        """Whether an image, a sound or a file is among the messages."""
        return self.media_at >= 0

    @property
    def opening_pairs(self) -> int:
        """How many pairs stand in front of the first answer: they may be the same in many conversations."""
        return next((at for at, answer in enumerate(self._answers) if answer), len(self._answers))

    def newest_pairs(self, most: int) -> int:
        """How many pairs follow the newest answer that has a user's turn behind it: the prompt, and the texts that are
        shown beside it. At most ``most``."""
        newest = self._answers[-most:]
        return next((at for at, answer in enumerate(reversed(newest)) if answer != newest[-1]), len(newest))

    def _taken_over(self, base: "Transcript", shared: int) -> int:
        """Begin with the first ``shared`` messages of an earlier state. Returns how many were taken over."""
        if shared <= base.preamble:
            return 0
        self.preamble = base.preamble
        self.turns, self.elements = base.turns[:shared], base.elements[:shared]
        self.media_at = base.media_at if base.media_at < shared else -1
        self.marked = base.marked[: bisect_left(base.marked, shared)]
        self.recognised = base.recognised[: bisect_left(base.recognised, shared)]
        self.notices = base.notices[: bisect_left(base.notices, shared)]
        self.signed = base.signed[: bisect_left(base.signed, shared)]
        self.pairs = base.pairs[: bisect_left(base.pairs, (shared, b""))]
        self._answers = base._answers[: len(self.pairs)]
        if shared == len(base.messages):
            self._skips, self._last, self._before = base._skips, base._last, base._before
            return shared
        # The state behind the last user's turn is not kept, so it is computed again from there on.
        behind = self.preamble
        if self.pairs:
            behind = self.pairs[-1][0] + 1
            self._last, self._before = self._answers[-1], self.turns[behind - 1]
        pairs: list[tuple[int, bytes]] = []
        for index in range(behind, shared):
            self._pair(index, self.messages[index], pairs)
        self.pairs = (*self.pairs, *pairs)
        return shared

    def _added(self, first: int, added: Sequence[Message]) -> list[Element]:
        pairs: list[tuple[int, bytes]] = []
        numbered = list(enumerate(added, first))
        for index, message in numbered:
            if index == self.preamble and message.role in SYSTEM_ROLES:
                self.preamble += 1
            else:
                self._pair(index, message, pairs)
        self.pairs = (*self.pairs, *pairs)
        self.marked = (*self.marked, *[i for i, one in numbered if one.has_marks])
        self.recognised = (*self.recognised, *[i for i, one in numbered if one.recognition is not None])
        later = [i for i, one in numbered if one.role in SYSTEM_ROLES and i >= self.preamble]
        self.notices = (*self.notices, *later)
        self.signed = (*self.signed, *[i for i, one in numbered if one.is_signed])
        if self.media_at < 0:
            self.media_at = next((i for i, one in numbered if _has_media(one)), -1)
        return [message_element(one, i, "system" if i < self.preamble else "turn") for i, one in numbered]

    def _pair(self, index: int, message: Message, pairs: list[tuple[int, bytes]]) -> None:
        skip, self._skips = self._skips, None
        if message.role == "assistant" and (skip is MessageKind.CONTEXT or (skip and _is_short(message))):
            return
        known = message.recognition
        if known is not None and known.form in (MessageKind.CONTEXT, MessageKind.CANDIDATE):
            self._skips = known.form
            return
        own = self.turns[index]
        if message.is_asked:
            pairs.append((index, digest(self._last, own)))
            self._answers.append(self._last)
        elif message.role not in SYSTEM_ROLES:
            self._last = digest(self._before, own)
        self._before = own

    def replaced(self, changes: Mapping[int, Message]) -> "Transcript":
        """The transcript with other readings of some messages: without their volatile lines, or with the operator's
        texts. Roles, pairs, markers and images stay those of the client's messages."""
        if not changes:
            return self
        new = copy(self)
        messages, turns, elements = list(self.messages), list(self.turns), list(self.elements)
        recognised = set(self.recognised)
        for index, message in changes.items():
            messages[index], turns[index] = message, turn_digest(message)
            elements[index] = message_element(message, index, elements[index].key)
            (recognised.discard if message.recognition is None else recognised.add)(index)
        new.messages, new.turns, new.elements = tuple(messages), tuple(turns), tuple(elements)
        new.recognised = tuple(sorted(recognised))
        return new


def _has_media(message: Message) -> bool:
    return any(part.kind is PartKind.MEDIA for part in message.parts)


def _is_short(message: Message) -> bool:
    """Whether an assistant message may be an acknowledgement of a message that only looks like context. If not, that
    message was a turn, and this one is its answer."""
    return 0 < len(message.lead) <= MAX_GENERIC_ACK_CHARS and not message.call_ids


def turn_digest(message: Message) -> bytes:
    """A turn's identity. A reminder that the client appends to its newest turn is not part of the identity."""
    known = message.recognition
    if known is not None and known.form is MessageKind.PROMPT and message.text is not None:
        prompt = "".join(message.text[c.start : c.end] for c in known.cuts if c.kind is PieceKind.PROMPT)
        # This is the form that the message will have in the next request, when it is no longer the newest.
        return digest(message.role.encode(), text_digest(message.role, prompt))
    return message.digest

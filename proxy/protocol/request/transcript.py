"""A conversation as the planner needs it: its messages, their parts, and what is recognised in them.

As a ``Transcript`` grows, the results for its first messages are taken over. So a long conversation costs time for its
new messages only. Every result for a message depends on this message and those in front of it, never on the messages
behind it.

A message may consist of several parts: ``kept_parts`` is the rest of each part without its volatile text.

The texts of earlier turns are found again by the user's turns of the conversation, each with the answer in front of it
(``user_turns``), and by the head in front of all turns.

A ``RecognisedRequest`` is a whole request with its recognised parts: the fixed ones, the movable ones, and the place
where the last exchange begins.

``span_ends`` divides a long file into spans, for caches that store every prefix: after an edit, the text in front of
the edit is still read from the cache. Spans do not change what is sent: the forecast and the shadow cache use them to
look into one text. The end of a span depends only on the text in front of it, so two versions of a file share their
spans up to the first edit.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from itertools import count, islice, takewhile
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Raw

from proxy.kit.value import chain, dataclass, digest, replace
from proxy.protocol.recognition import MOVABLE_IN_SYSTEM, ContextPiece, FileClaim, MessageKind, PieceKind, Recognition
from proxy.protocol.recognition.lines import bare_lines, can_follow, stay_apart
from proxy.protocol.request.element import Element, message_element
from proxy.protocol.request.message import (
    MARK_KEYS,
    PLAIN_TEXT_KEYS,
    SYSTEM_ROLES,
    Message,
    piece_digest,
)
from proxy.protocol.wire.json_body import Unreadable, elements, members_of, text_value

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
    ``media_at`` is the index of the first message with an image, a sound or a file (-1: there is none).
    """

    __slots__ = (
        "_answers", "_pairing", "elements", "preamble", "marked", "media_at", "messages", "notices", "pairs",
        "recognised", "signed", "turns",
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
        self._answers: Sequence[bytes] = ()
        self._pairing = _Pairing()
        first = unpaired = 0
        if base is not None:
            first, unpaired = self._taken_over(base, len(base.messages) if shared is None else shared)
        if not first:
            of_head = takewhile(lambda message: message.role in SYSTEM_ROLES, self.messages)
            self.preamble = unpaired = sum(1 for _ in of_head)
        added = list(enumerate(self.messages[first:], first))
        self.turns = (*self.turns, *[one.turn for _, one in added])
        indices = range(unpaired, len(self.messages))
        pairs, answers, self._pairing = _paired(self.messages, self.turns, indices, self._pairing)
        self.pairs, self._answers = (*self.pairs, *pairs), (*self._answers, *answers)
        self.marked = (*self.marked, *[i for i, one in added if one.has_marks])
        self.recognised = (*self.recognised, *[i for i, one in added if one.recognition is not None])
        later = [i for i, one in added if one.role in SYSTEM_ROLES and i >= self.preamble]
        self.notices = (*self.notices, *later)
        self.signed = (*self.signed, *[i for i, one in added if one.is_signed])
        if self.media_at < 0:
            self.media_at = next((i for i, one in added if one.media), -1)
        singles = [message_element(one, i, "system" if i < self.preamble else "turn") for i, one in added]
        self.elements = (*self.elements, *singles)

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
    def is_answered(self) -> bool:
        """Whether there is an answer, of the model or of a tool. A question alone may open many conversations."""
        return bool(self._pairing.last)

    @property
    def opening_pairs(self) -> int:
        """How many pairs stand in front of the first answer: they may be the same in many conversations."""
        return next((at for at, answer in enumerate(self._answers) if answer), len(self._answers))

    def newest_pairs(self, most: int) -> int:
        """How many pairs follow the newest answer that has a user's turn behind it: the prompt, and the texts that are
        shown beside it. At most ``most``."""
        newest = self._answers[-most:]
        return next((at for at, answer in enumerate(reversed(newest)) if answer != newest[-1]), len(newest))

    def _taken_over(self, base: "Transcript", shared: int) -> tuple[int, int]:
        """Begin with the first ``shared`` messages of an earlier state. Returns how many were taken over, and the index
        of the first message that is still to be paired."""
        if shared <= base.preamble:
            return 0, 0
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
            self._pairing = base._pairing
            return shared, shared
        # The state behind the last user's turn is not kept, so it is computed again from there on.
        if not self.pairs:
            return shared, self.preamble
        unpaired = self.pairs[-1][0] + 1
        self._pairing = _Pairing(None, self._answers[-1], self.turns[unpaired - 1])
        return shared, unpaired

    def replaced(self, changes: Mapping[int, Message]) -> "Transcript":
        """The transcript with other readings of some messages: without their volatile lines, or with the operator's
        texts. Roles, pairs, markers and images stay those of the client's messages."""
        if not changes:
            return self
        new = copy(self)
        messages, turns, elements = list(self.messages), list(self.turns), list(self.elements)
        recognised = set(self.recognised)
        for index, message in changes.items():
            messages[index], turns[index] = message, message.turn
            elements[index] = message_element(message, index, elements[index].key)
            (recognised.discard if message.recognition is None else recognised.add)(index)
        new.messages, new.turns, new.elements = tuple(messages), tuple(turns), tuple(elements)
        new.recognised = tuple(sorted(recognised))
        return new


class _Pairing(NamedTuple):
    """The state between two messages: the kind of the context that was just shown, a digest of the newest answer, and
    the turn in front of the next message."""

    skips: MessageKind | None = None
    last: bytes = b""
    before: bytes = b""


def _paired(
    messages: Sequence[Message], turns: Sequence[bytes], indices: Iterable[int], at: _Pairing
) -> tuple[list[tuple[int, bytes]], list[bytes], _Pairing]:
    """The pairs of the user's turns among these messages, the answer in front of each, and the state behind them."""
    pairs: list[tuple[int, bytes]] = []
    answers: list[bytes] = []
    skips, last, before = at
    for index in indices:
        message, known = messages[index], messages[index].recognition
        skip, skips = skips, None
        # An assistant message that is too long is no acknowledgement of a message that only looks like context: that
        # message was a turn, and this one is its answer.
        is_short = 0 < len(message.lead) <= MAX_GENERIC_ACK_CHARS and not message.call_ids
        if message.role == "assistant" and (skip is MessageKind.CONTEXT or (skip and is_short)):
            continue
        if known is not None and known.form in (MessageKind.CONTEXT, MessageKind.CANDIDATE):
            skips = known.form
            continue
        own = turns[index]
        if message.is_asked:
            pairs.append((index, digest(last, own)))
            answers.append(last)
        elif message.role not in SYSTEM_ROLES:
            last = digest(before, own)
        before = own
    return pairs, answers, _Pairing(skips, last, before)


# Parsing a text of more bytes would hold up all other requests each time.
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """The text that stays of the part with this ``index``. ``is_whole``: all of it stays."""

    index: int
    text: str
    is_whole: bool


def texts_of(message: Message) -> tuple[str, ...] | None:
    """The texts that the content consists of. None for content that is neither a string nor a list of plain text parts,
    and for a very long message without a recognition."""
    if message.text is not None and len(message.parts) == 1:
        return (message.text,)
    if message.recognition is None and len(message.raw) > _MOST_BYTES:
        return None
    try:
        content = members_of(message.raw).get("content")
        if content is None:
            return None
        if not message.is_list:
            found = [text_value(content)]
        else:
            parts = [members_of(part) for part in elements(content)]
            if not all("text" in part and part.keys() <= PLAIN_TEXT_KEYS for part in parts):
                return None
            found = [text_value(part["text"]) for part in parts]
    except Unreadable:
        return None
    texts = tuple(text for text in found if isinstance(text, str))
    return texts if texts and len(texts) == len(found) == len(message.parts) else None


def kept_parts(message: Message) -> tuple[Kept, ...]:
    """The parts of a recognised message without their volatile text. Parts of which nothing stays are left out."""
    texts, known = texts_of(message), message.recognition
    assert texts is not None
    assert known is not None
    volatile = [cut for cut in known.cuts if cut.kind is PieceKind.VOLATILE]
    found: list[Kept] = []
    start = first = 0
    for index, text in enumerate(texts):
        while first < len(volatile) and volatile[first].end <= start:
            first += 1
        left: list[str] = []
        position = 0
        for cut in islice(volatile, first, None):
            begin, end = max(cut.start - start, 0), min(cut.end - start, len(text))
            if begin >= len(text):
                break
            left.append(text[position:begin])
            position = end
        left.append(text[position:])
        kept = "".join(left)
        if kept or not text:
            found.append(Kept(index, kept, kept == text))
        start += len(text)
    return tuple(found)


def part_at(message: Message, position: int) -> int:
    """The index of the part that holds the character at this position of the text."""
    texts = texts_of(message)
    assert texts is not None
    index = 0
    while index < len(texts) - 1 and position >= len(texts[index]):
        position -= len(texts[index])
        index += 1
    return index


NOTHING_MOVES: Mapping[int, float] = MappingProxyType({})
# The beginning of the key of a piece that has a path.
_FILE = "file:"


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """A context message and its acknowledgement. ``message`` and ``ack`` are indices of the request's messages."""

    name: str
    message: int
    ack: int
    opening: str
    claim: FileClaim
    items: tuple[ContextPiece, ...]


@dataclass(frozen=True, slots=True)
class SystemText:
    """A system message taken apart, of which some part can stand elsewhere: the fixed text, the volatile lines, and the
    retrieved documents."""

    message: int
    fixed: str
    volatile: tuple[str, ...]
    documents: tuple[ContextPiece, ...]


class RecognisedRequest:
    """The request's messages with their meaning.

    ``preamble`` is the number of leading system messages. From ``last_user`` on everything is fixed and stays last. If
    there is no user message, ``last_user`` is ``len(messages)`` and nothing is movable. ``moving`` are messages that
    the proxy has put between those of the conversation, and that may stand elsewhere in the next request
    (``Route.moving``). The first ``still`` messages never change their places, nor does anything between them.

    ``items`` are all movable pieces that keep a key over time: files, maps, documents. ``documents`` are retrieved
    documents, and files of the system prompt, that may stand elsewhere, in the client's order; ``retrieved`` are the
    former alone. ``turns`` are the indices of the conversation's messages, without the head and the context, and
    ``own_turns`` those of them that the proxy has not put there. ``turn_digests`` are the identities of these.
    """

    __slots__ = (
        "documents", "groups", "items", "last_user", "messages", "moving", "own_turns", "preamble", "retrieved",
        "still", "system", "transcript", "turn_digests", "turns",
    )  # fmt: skip

    def __init__(
        self,
        transcript: Transcript,
        last_user: int,
        groups: tuple[ContextMessage, ...],
        system: tuple[SystemText, ...],
        moving: Mapping[int, float],
        still: int,
    ) -> None:
        self.transcript, self.messages, self.preamble = transcript, transcript.messages, transcript.preamble
        self.last_user, self.groups, self.system = last_user, groups, system
        self.moving, self.still = moving, still
        self.documents = [item for text in system for item in text.documents]
        self.retrieved = [item for item in self.documents if item.kind is PieceKind.DOCUMENT]
        self.items = [*(item for group in groups for item in group.items), *self.documents]
        taken = {i for group in groups for i in (group.message, group.ack)}
        turns: Sequence[int] = range(self.preamble, len(self.messages))
        self.turns = [i for i in turns if i not in taken] if taken else turns
        self.own_turns = [i for i in self.turns if i not in moving] if moving else self.turns
        self.turn_digests = tuple([transcript.turns[i] for i in self.own_turns])


def recognise_request(
    transcript: Transcript,
    is_movable: Callable[[str], bool],
    moving: Mapping[int, float] = NOTHING_MOVES,
    still: int = 0,
    *,
    has_moved: bool = False,
) -> RecognisedRequest:
    """Pair context messages with their acknowledgements. ``is_movable`` decides about candidates by their names.
    ``moving`` are messages that the proxy has inserted itself. Nothing in the first ``still`` messages may move.
    ``has_moved``: the request was sent before, and all messages count that may have moved in it."""
    messages, preamble = transcript.messages, transcript.preamble
    last_user = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].is_asked), len(messages))
    if not transcript.recognised:
        return RecognisedRequest(transcript, last_user, (), (), moving, still)
    places = range(max(preamble, still), last_user - 1) if last_user < len(messages) else ()
    groups = (_group_at(messages, index, is_movable) for index in transcript.recognised if index in places)
    found = [group for group in groups if group is not None]
    if sum(1 for index in transcript.recognised if _holds_files(messages[index])) > 1:
        # The header would only refer to a message of files, and may mean any of them.
        found = [
            _in_one_piece(group, messages[group.message]) if group.claim is FileClaim.AS_SAID else group
            for group in (found if has_moved else _agreeing(found, messages))
        ]
    system = _system_texts(messages, preamble) if last_user < len(messages) and not still else ()
    return RecognisedRequest(transcript, last_user, _with_distinct_keys(found), system, moving, still)


def _system_texts(messages: Sequence[Message], preamble: int) -> tuple[SystemText, ...]:
    found = []
    for index in range(preamble):
        known, text = messages[index].recognition, messages[index].text
        if known is None or text is None or known.form is not MessageKind.SYSTEM:
            continue
        # Documents stay behind the fixed text of their own message. Only in the last system message is that place the
        # end of the head.
        documents = _documents(text, known, messages[index]) if index == preamble - 1 else ()
        rest = _without(text, known, PieceKind.VOLATILE, *MOVABLE_IN_SYSTEM)
        if not rest.strip() or not stay_apart(rest, [item.text for item in documents]):
            documents = ()
        moves = (PieceKind.VOLATILE, *MOVABLE_IN_SYSTEM) if documents else (PieceKind.VOLATILE,)
        fixed = _without(text, known, *moves)
        volatile = _volatile(text, known, messages[index])
        # A system message that is wholly volatile is moved as a whole, if another system message stays.
        stays = bool(fixed.strip()) or (index > 0 and not fixed and _says_nothing_else(messages[index]))
        if stays and (volatile or documents):
            found.append(SystemText(index, fixed, volatile, documents))
    return tuple(found)


def _volatile(text: str, known: Recognition, message: Message) -> tuple[str, ...]:
    cuts = [(c.start, c.end) for c in known.cuts if c.kind is PieceKind.VOLATILE]
    if len(message.parts) > 1:
        return tuple(text[start:end] for start, end in cuts)
    return tuple(bare_lines(text, cut) for cut in cuts)


def _without(text: str, known: Recognition, *kinds: PieceKind) -> str:
    return "".join(text[c.start : c.end] for c in known.cuts if c.kind not in kinds)


def _says_nothing_else(message: Message) -> bool:
    return message.is_plain or members_of(message.raw).keys() <= {"role", "content", *MARK_KEYS}


def _documents(text: str, known: Recognition, message: Message) -> tuple[ContextPiece, ...]:
    """Documents of a system message. None are returned if a document occurs twice, because only the place tells the two
    apart."""
    cuts = [c for c in zip(known.cuts, message.cut_digests, strict=True) if c[0].kind in MOVABLE_IN_SYSTEM]
    if len({c.key for c, _ in cuts}) < len(cuts):
        return ()
    return tuple(ContextPiece(c.key, c.kind, FileClaim.DOCUMENT, text[c.start : c.end], own) for c, own in cuts)


def _group_at(messages: Sequence[Message], index: int, is_movable: Callable[[str], bool]) -> ContextMessage | None:
    message, ack = messages[index], messages[index + 1]
    known, text = message.recognition, message.text
    if known is None or text is None or ack.role != "assistant" or ack.call_ids or ack.is_signed:
        return None
    if known.form is MessageKind.CANDIDATE:
        is_acknowledged = len(ack.lead) <= MAX_GENERIC_ACK_CHARS and is_movable(known.name)
    else:
        words = known.acknowledgements
        is_acknowledged = known.form is MessageKind.CONTEXT and ack.lead.startswith(tuple(words))
    if not is_acknowledged or len(message.parts) != 1 or not ack.parts:
        return None
    opening = "".join(text[c.start : c.end] for c in known.cuts if c.kind is PieceKind.OPENING)
    items = tuple(
        ContextPiece(c.key, c.kind, known.claim, text[c.start : c.end], own)
        for c, own in zip(known.cuts, message.cut_digests, strict=True)
        if c.kind is not PieceKind.OPENING
    )
    group = ContextMessage(known.name, index, index + 1, opening, known.claim, items)
    # Other members of the message (a name, a client's own field) hold for all of its text.
    is_divisible = can_follow(opening, [item.text for item in items]) and _says_nothing_else(message)
    return group if is_divisible else _in_one_piece(group, message)


def _holds_files(message: Message) -> bool:
    return message.recognition is not None and message.recognition.form in (MessageKind.CONTEXT, MessageKind.CANDIDATE)


def _agreeing(groups: Sequence[ContextMessage], messages: Sequence[Message]) -> list[ContextMessage]:
    """The groups without those that show one file in two versions, in messages of one kind. Only the places of these
    messages say which version is the newer one."""
    versions: dict[tuple[str, str], set[bytes]] = {}
    for group in groups:
        for key, version in _shown(messages[group.message]):
            versions.setdefault((group.name, key), set()).add(version)
    return [g for g in groups if all(len(versions[g.name, key]) == 1 for key, _ in _shown(messages[g.message]))]


def _shown(message: Message) -> list[tuple[str, bytes]]:
    """The keys of the files that a context message shows, each with its version. A piece without a path has no
    versions."""
    cuts = message.recognition.cuts if message.recognition is not None else ()
    return [(c.key, own) for c, own in zip(cuts, message.cut_digests, strict=True) if c.key.startswith(_FILE)]


def _in_one_piece(group: ContextMessage, message: Message) -> ContextMessage:
    text = message.text
    if len(group.items) == 1 or text is None:
        return group
    return replace(group, items=(ContextPiece("files", PieceKind.FILE, group.claim, text, piece_digest(text)),))


def _with_distinct_keys(groups: list[ContextMessage]) -> tuple[ContextMessage, ...]:
    """The same path in two groups (or twice in one group) means two pieces: the later ones get a number."""
    seen: set[str] = set()
    numbers: dict[str, count[int]] = {}
    result = []
    for group in groups:
        items = []
        for item in group.items:
            plain = f"{group.name}/{item.key}"
            key = plain
            if plain in seen:
                key = next(k for n in numbers.setdefault(plain, count(2)) if (k := f"{plain}#{n}") not in seen)
            seen.add(key)
            items.append(ContextPiece(key, item.kind, item.claim, item.text, item.digest))
        result.append(ContextMessage(group.name, group.message, group.ack, group.opening, group.claim, tuple(items)))
    return tuple(result)


_LEAST_CHARS = 3_000
_LEAST_SPAN = 1_500
_SPANS = 8


def span_ends(text: str) -> tuple[int, ...]:
    """The ends of a text's spans: behind lines, at even distances. The last one is the end of the text."""
    length = len(text)
    if length < _LEAST_CHARS:
        return (length,)
    step = _LEAST_SPAN
    while step * _SPANS < length:
        step *= 2
    found: list[int] = []
    at = step
    while at < length - step // 2 and (line := text.find("\n", at)) >= 0:
        found.append(line + 1)
        at = line + 1 + step
    if not found or found[-1] < length:
        found.append(length)
    return tuple(found)


def user_turns(start: bytes, transcript: Transcript, without: Container[int] = ()) -> list[tuple[int, bytes]]:
    """For each user message of the conversation, its index and a digest. The digest covers ``start``, the user's turns
    up to this message, and the answer in front of each. Instructions, context, and the messages ``without`` are left
    out."""
    pairs: Sequence[tuple[int, bytes]] = transcript.pairs
    if without:
        own = (i for i in range(transcript.preamble, len(transcript.messages)) if i not in without)
        pairs, _, _ = _paired(transcript.messages, transcript.turns, own, _Pairing())
    found: list[tuple[int, bytes]] = []
    key = start
    for index, pair in pairs:
        key = chain(key, pair)
        found.append((index, key))
    return found


def tokens_from(
    transcript: Transcript,
    turns: Sequence[tuple[int, bytes]],
    without: Container[int],
    message: int,
    *,
    caches_output: bool,
) -> int:
    """The conversation's tokens from a message up to the end of the previous request. Context and the messages
    ``without`` do not count: they change their places from one request to the next. The answer to the previous request
    counts only if the provider stores answers, too."""
    messages, end = transcript.messages, turns[-1][0]
    if not caches_output and end > message and messages[end - 1].role == "assistant":
        end -= 1
    context = {
        near
        for index in transcript.recognised[bisect_left(transcript.recognised, message) :]
        if (known := messages[index].recognition) is not None and known.form is not MessageKind.PROMPT
        for near in (index, index + 1)
    }
    return sum(messages[i].tokens for i in range(message, end) if i not in context and i not in without)


def head_digest(transcript: Transcript, tools: Raw | bytes | None) -> bytes:
    """A digest of the tools and the system messages in front of the conversation. Volatile lines are left out: they are
    mostly moved to the end."""
    system: list[bytes] = []
    for message in transcript.messages[: transcript.preamble]:
        known = message.recognition
        cuts = zip(known.cuts, message.cut_digests, strict=True) if known is not None and message.cut_digests else ()
        kept = [own for cut, own in cuts if cut.kind is not PieceKind.VOLATILE]
        system.append(digest(*kept) if message.cut_digests else message.digest)
    return digest(bytes(tools) if tools is not None else b"", *system)

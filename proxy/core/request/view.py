"""A whole request with its recognised parts: the fixed ones, the movable ones, and the place where the last exchange
begins."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import MappingProxyType

from proxy.core.recognition.fixed_texts import FileClaim
from proxy.core.recognition.lines import bare_lines, can_follow, stay_apart
from proxy.core.recognition.pieces import MOVABLE_IN_SYSTEM, ContextPiece, MessageKind, PieceKind, Recognition
from proxy.core.request.message import MARK_KEYS, Message, piece_digest
from proxy.core.request.transcript import MAX_GENERIC_ACK_CHARS, Transcript
from proxy.core.value import dataclass, field, replace
from proxy.core.wire.json_body import members_of

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
    """A system message taken apart: the fixed text, the volatile lines, and the retrieved documents."""

    message: int
    fixed: str
    volatile: tuple[str, ...]
    documents: tuple[ContextPiece, ...]

    @property
    def is_moving(self) -> bool:
        """Whether any part of the message can stand elsewhere."""
        return bool(self.volatile or self.documents)


@dataclass(frozen=True, slots=True)
class RecognisedRequest:
    """The request's messages with their meaning.

    ``preamble`` is the number of leading system messages. From ``last_user`` on everything is fixed and stays last. If
    there is no user message, ``last_user`` is ``len(messages)`` and nothing is movable. ``moving`` are messages that
    the proxy has put between those of the conversation, and that may stand elsewhere in the next request
    (``Route.moving``). The first ``still`` messages never change their places, nor does anything between them.
    """

    transcript: Transcript
    last_user: int
    groups: tuple[ContextMessage, ...]
    system: tuple[SystemText, ...]
    moving: Mapping[int, float] = field(default_factory=dict)
    still: int = 0

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages, in the client's order."""
        return self.transcript.messages

    @property
    def preamble(self) -> int:
        """How many leading messages are system messages."""
        return self.transcript.preamble

    def turn_digests(self) -> tuple[bytes, ...]:
        """The identities of the conversation's own messages."""
        turns = self.transcript.turns
        if not self.groups and not self.moving:
            return turns[self.preamble :]
        return tuple(turns[i] for i in self.own_turns())

    def items(self) -> list[ContextPiece]:
        """All movable pieces that keep a key over time: files, maps, documents."""
        return [item for group in self.groups for item in group.items] + self.documents()

    def documents(self) -> list[ContextPiece]:
        """Retrieved documents, and files of the system prompt, that may stand elsewhere, in the client's order."""
        return [item for text in self.system for item in text.documents]

    def retrieved(self) -> list[ContextPiece]:
        return [item for item in self.documents() if item.kind is PieceKind.DOCUMENT]

    def turns(self) -> Sequence[int]:
        """Indices of the conversation's messages, without the head and the context."""
        if not self.groups:
            return range(self.preamble, len(self.messages))
        taken = {i for g in self.groups for i in (g.message, g.ack)}
        return [i for i in range(self.preamble, len(self.messages)) if i not in taken]

    def own_turns(self) -> Sequence[int]:
        """Indices of the conversation's messages without those that the proxy has put between them."""
        turns = self.turns()
        return turns if not self.moving else [i for i in turns if i not in self.moving]


def recognise_request(
    transcript: Transcript,
    is_movable: Callable[[Recognition, Message], bool],
    moving: Mapping[int, float] = NOTHING_MOVES,
    still: int = 0,
    *,
    has_moved: bool = False,
) -> RecognisedRequest:
    """Pair context messages with their acknowledgements. ``is_movable`` decides about candidates by the session's past.
    ``moving`` are messages that the proxy has inserted itself. Nothing in the first ``still`` messages may move.
    ``has_moved``: the request was sent before, and all messages count that may have moved in it."""
    messages, preamble = transcript.messages, transcript.preamble
    last_user = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].is_asked), len(messages))
    places = range(max(preamble, still), last_user - 1) if last_user < len(messages) else ()
    groups = (_group_at(messages, index, is_movable) for index in transcript.recognised if index in places)
    found = [group for group in groups if group is not None]
    if sum(1 for index in transcript.recognised if _holds_files(messages[index])) > 1:
        found = [
            _undivided(group, messages[group.message]) for group in (found if has_moved else _agreeing(found, messages))
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


def _group_at(
    messages: Sequence[Message], index: int, is_movable: Callable[[Recognition, Message], bool]
) -> ContextMessage | None:
    message, ack = messages[index], messages[index + 1]
    known = message.recognition
    if known is None or message.text is None or ack.role != "assistant" or ack.call_ids or ack.is_signed:
        return None
    if known.form is MessageKind.CONTEXT:
        if not any(ack.lead.startswith(words) for words in known.acknowledgements):
            return None
    elif known.form is MessageKind.CANDIDATE:
        if len(ack.lead) > MAX_GENERIC_ACK_CHARS or not is_movable(known, message):
            return None
    else:
        return None
    if len(message.parts) != 1 or not ack.parts:
        return None
    group = _cut(known, message, message.text, index)
    # Other members of the message (a name, a client's own field) hold for all of its text.
    return group if _says_nothing_else(message) else _in_one_piece(group, message.text)


def _cut(known: Recognition, message: Message, text: str, index: int) -> ContextMessage:
    opening = "".join(text[c.start : c.end] for c in known.cuts if c.kind is PieceKind.OPENING)
    items = tuple(
        ContextPiece(c.key, c.kind, known.claim, text[c.start : c.end], own)
        for c, own in zip(known.cuts, message.cut_digests, strict=True)
        if c.kind is not PieceKind.OPENING
    )
    group = ContextMessage(known.name, index, index + 1, opening, known.claim, items)
    return group if can_follow(opening, [item.text for item in items]) else _in_one_piece(group, text)


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


def _undivided(group: ContextMessage, message: Message) -> ContextMessage:
    """The group in one piece, if the header would only refer to a message of files. There are several such messages,
    and the header may mean any of them."""
    if group.claim is not FileClaim.AS_SAID or message.text is None:
        return group
    return _in_one_piece(group, message.text)


def _in_one_piece(group: ContextMessage, text: str) -> ContextMessage:
    if len(group.items) == 1:
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
            numbering = numbers.setdefault(plain, count(1))
            key = next(k for n in numbering if (k := f"{plain}#{n}" if n > 1 else plain) not in seen)
            seen.add(key)
            items.append(ContextPiece(key, item.kind, item.claim, item.text, item.digest))
        result.append(ContextMessage(group.name, group.message, group.ack, group.opening, group.claim, tuple(items)))
    return tuple(result)

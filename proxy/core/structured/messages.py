"""The messages of a request with structured context: those in front of the context, within it, and behind it.

The leading system and developer messages are the system prompt. The prompt begins with the last user message: in a tool
loop it is the user's message, and the calls and results behind it, in their order. Everything between is history. Every
message keeps the client's own bytes, except for markers. The places where a marker may stand are the same as for any
other request.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import takewhile

from msgspec import Raw, Struct

from proxy.core.digest import digest
from proxy.core.layout.render import write_message
from proxy.core.providers import Dialect
from proxy.core.request.message import MARK_KEYS, RESULT_ROLES, SYSTEM_ROLES, MessageReader, answered_calls
from proxy.core.request.tokens import TokenCounter
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Members, Unreadable, elements, members_of, text_json, text_value, value

_NAMES = tuple(f'"{key}"'.encode() for key in MARK_KEYS)


def unmarked(raw: bytes) -> bytes:
    """The message without the client's markers, or as it came if it cannot be read."""
    if not any(name in raw for name in _NAMES):
        return raw
    try:
        return write_message(_reader().read(Raw(raw)), {}, Dialect.NONE)
    except Unreadable:
        return raw


def marked(raw: bytes, dialect: Dialect, *, is_head: bool = False) -> bytes | None:
    """The message with a marker on its last part that may carry one; None if no part may. A system message may carry
    one only at the head of the request (``is_head``)."""
    if dialect is Dialect.NONE:
        return None
    try:
        message = _reader().read(Raw(raw))
    except Unreadable:
        return None
    if message.role == "assistant" or (message.role in SYSTEM_ROLES and not is_head):
        return None
    places = [part.index for part in message.parts if part.markable]
    return write_message(message, {places[-1]: "5m"}, dialect) if places else None


def marks_beside_messages(members: Members) -> int:
    """How many markers a request has outside of its messages: on the whole body, and on its tools. They count towards
    the number of markers that a provider accepts. Tools that cannot be read count as having none."""
    places = [members]
    raw = members.get("tools", b"")
    if any(name in bytes(raw) for name in _NAMES):
        with suppress(Unreadable):
            tools = [members_of(tool) for tool in elements(raw)]
            own = [tool["function"] for tool in tools if bytes(tool.get("function", b"")).startswith(b"{")]
            places += tools + [members_of(function) for function in own]
    return sum(1 for place in places for key in MARK_KEYS if bytes(place.get(key, b"null")) != b"null")


def _reader() -> MessageReader:
    return MessageReader(TokenCounter(capacity=1), ())


class Turn(Struct, frozen=True, gc=False):
    """A message as it came, and the facts that are read from it once. (A struct, not a dataclass: a request has
    thousands.)

    ``role`` is empty if the message names none. ``bare`` is the message without markers, and ``digest`` is the digest
    of ``bare``: a client moves its markers from turn to turn, and only without them does a message stay the same as
    long as its content stays the same. ``has_results``: the message answers calls of a message in front of it. Its role
    shows this, or a part of its content, because some clients write results into a user message. ``parsed`` are its
    members, None if it is not a JSON object."""

    raw: bytes
    role: str
    bare: bytes
    digest: bytes
    has_results: bool
    parsed: Members | None

    @classmethod
    def of(cls, raw: bytes) -> "Turn":
        """Read a message. A value that is not a JSON object is a message without a role."""
        try:
            parsed = members_of(raw)
            said = value(parsed["role"]) if "role" in parsed else ""
            role = said if isinstance(said, str) else ""
            has_results = role in RESULT_ROLES or bool(answered_calls(raw, parsed))
        except Unreadable:
            parsed, role, has_results = None, "", False
        bare = unmarked(raw)
        return cls(raw, role, bare, digest(bare), has_results, parsed)

    def __hash__(self) -> int:
        return hash(self.raw)

    @property
    def members(self) -> Members:
        """The members of the message. Raises Unreadable if it is not a JSON object."""
        if self.parsed is None:
            raise Unreadable("no JSON object")
        return self.parsed

    @property
    def is_system(self) -> bool:
        """Whether it is a system or developer message."""
        return self.role in SYSTEM_ROLES

    @property
    def is_asked(self) -> bool:
        """Whether a turn begins with it: it is a user's message, and not one into which a client writes results."""
        return self.role == "user" and not self.has_results

    def tokens(self, counter: TokenCounter) -> int:
        """The tokens of the message without markers. Freezing uses this number."""
        return counter.count(self.digest, self.bare.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a request in their order. A turn of ``history`` is named by its index in ``history``, which
    begins at 0.

    ``prompt`` begins with the last user message. If a request has no user message, all messages behind the system
    messages are the prompt, so that they stay together and last; the prompt is empty if there are none. ``added`` is
    how many of the system messages are the operator's: the client counts its messages without them.
    """

    system: tuple[Turn, ...] = ()
    history: tuple[Turn, ...] = ()
    prompt: tuple[Turn, ...] = ()
    added: int = 0

    @classmethod
    def of(cls, messages: Iterable[Raw | bytes], own_count: int | None = None) -> "Conversation":
        """Divide messages of any shape into the three parts. A value that cannot be read as a message is a turn without
        a role. The last ``own_count`` messages are the client's; None: all are."""
        turns = [Turn.of(bytes(raw)) for raw in messages]
        behind = sum(1 for _ in takewhile(lambda turn: turn.is_system, turns))
        users = (index for index in range(len(turns) - 1, behind - 1, -1) if turns[index].is_asked)
        last = next(users, behind)
        added = 0 if own_count is None else len(turns) - own_count
        return cls(tuple(turns[:behind]), tuple(turns[behind:last]), tuple(turns[last:]), added)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All messages except the leading system messages."""
        return (*self.history, *self.prompt)

    def __iter__(self) -> Iterator[Turn]:
        """All messages in the client's order."""
        yield from self.system
        yield from self.turns

    def bare(self) -> "Conversation":
        """The conversation without the client's markers."""
        system, history, prompt = (
            tuple([one if one.bare is one.raw else Turn.of(one.bare) for one in turns])
            for turns in (self.system, self.history, self.prompt)
        )
        return Conversation(system, history, prompt, self.added)


def parts_of(members: Members) -> Iterator[tuple[str, str | None]]:
    """The parts of a message's content as pairs of a type and a text, which is None if the part has no text. A content
    that is a string is one text. Any other content that is not a list has no parts. Raises Unreadable."""
    raw = members.get("content", b"")
    first = bytes(memoryview(raw)[:1])
    if first == b'"':
        yield "text", string_of(raw)
    for each in elements(raw) if first == b"[" else ():
        part = members_of(each)
        kind = string_of(part.get("type", b"")) or ""
        yield kind, string_of(part.get("refusal" if kind == "refusal" else "text", b""))


def string_of(raw: Raw | bytes) -> str | None:
    """The text that a value is; None for any other value, which is not parsed. Raises Unreadable."""
    found = text_value(raw) if bytes(memoryview(raw)[:1]) == b'"' else None
    return found if isinstance(found, str) else None


def system_text(conversation: Conversation) -> str:
    """The text of the system messages, with a blank line between two of them. Parts that are not text are left out."""
    return "\n\n".join([text for turn in conversation.system if (text := _text(turn))])


def _text(turn: Turn) -> str:
    try:
        return "".join([text for _, text in parts_of(turn.members) if text is not None])
    except Unreadable:
        return ""


def message(role: str, text: str) -> bytes:
    """A message of this role with this text as its content."""
    return b'{"role":"' + role.encode() + b'","content":' + text_json(text) + b"}"


def pair(text: str, ok: str) -> tuple[bytes, bytes]:
    """A user's message and the assistant's answer."""
    return message("user", text), message("assistant", ok)

"""Structured context: a client says what its pieces are, and the proxy assembles the prompt from them.

The input is the section ``stratiform`` of a chat request, together with the request's messages. The output is a list of
messages, in tiers or flat, and a breakdown of the same blocks. The package never fetches anything, never keeps a text
longer than its bound allows, and never plans. The assembled messages go through the planner like those of any other
client; the planner only observes messages in tiers and flat ones. ``README.md`` explains the rules and how they were
measured.

The modules work in this order. ``form`` reads the section. ``session`` has the texts for the digests in the section,
and the state from earlier requests of the conversation; both together give the context. If a client sends live panels
or describes its messages, ``history`` shortens and repairs the conversation, and ``panels`` places the panels.
``placement`` says how stable each item is. ``assembly`` makes ``blocks`` from all of this. The request with the
messages of these blocks stands in ``session``, too.

This file has a client's context, read and resolved: every path is clean, and every text is present. First come the
values: files, pages, a review, and the context that holds them.

The map of the repository follows: a short block of symbols for each file, the legend with short names of directories,
and the chunks in which the map is sent. A block lists the classes, functions, methods and constants of one file,
without their bodies and without line numbers. It depends only on the file's own text and on the alias of its path. An
edit inside a function, another selection, or a change in another file does not change its bytes. References between
files are therefore kept beside the blocks and never inside them.

Then the section of a request is split into what it says about prompts, about the context window, about the answer, and
about structured context.

The messages are those in front of the context, within it, and behind it. The leading system and developer messages are
the system prompt. The prompt begins with the last user message: in a tool loop it is the user's message, and the calls
and results behind it, in their order. Everything between is history. Every message keeps the client's own bytes, except
for markers. The places where a marker may stand are the same as for any other request.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, takewhile
from typing import Annotated, Protocol

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from proxy.kit.value import dataclass, digest, field, replace
from proxy.planner.render import write_message
from proxy.planner.tiers import Tier
from proxy.protocol.providers import Dialect
from proxy.protocol.request import parts_of
from proxy.protocol.request.message import (
    MARK_KEYS,
    RESULT_ROLES,
    SYSTEM_ROLES,
    MessageReader,
    answered_calls,
    message_json,
)
from proxy.protocol.request.tokens import TokenCounter
from proxy.protocol.wire import check_fields, invalid, names_in
from proxy.protocol.wire.json_body import (
    Members,
    Unreadable,
    elements,
    join_members,
    members_of,
    value,
)


class ContextFile(Struct, frozen=True, gc=False):
    """One file of the client. ``path`` is a clean POSIX path. ``text`` is the whole content; it is None if the content
    cannot be read as text, and such a file is skipped and counted. ``digest`` is the SHA-256 of the text in UTF-8, as
    hexadecimal digits; it is empty if the file has neither text nor digest. A selected file is shown by its text, any
    other file by its symbols. (A struct, not a dataclass: a request has thousands of files.)"""

    path: str
    text: str | None
    digest: str
    is_selected: bool


MOST_URL_CHARS = 8_192
MOST_TITLE_CHARS = 4_096


class FetchedPage(Struct, frozen=True, forbid_unknown_fields=True):
    """A page that the client has fetched from a URL, as it sends the page. ``symbols`` is an optional map of the page's
    own symbols."""

    url: Annotated[str, Meta(min_length=1, max_length=MOST_URL_CHARS)]
    content: str
    title: Annotated[str, Meta(max_length=MOST_TITLE_CHARS)] | None | UnsetType = UNSET
    symbols: str | None | UnsetType = UNSET

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.content or self.symbols)


class Review(Struct, frozen=True, forbid_unknown_fields=True):
    """A code review, as a client sends it. ``stats`` is the client's own summary of the change; ``pre_change_symbols``
    is the symbol map from before the change; ``reverse_diffs`` lead from the new text of a path back to the old one. A
    review that an earlier request has sent has only its ``digest``."""

    branch: str | None | UnsetType = UNSET
    commits: Annotated[tuple[str, ...], Meta(max_length=5_000)] | None | UnsetType = UNSET
    stats: str | None | UnsetType = UNSET
    log: str | None | UnsetType = UNSET
    pre_change_symbols: str | None | UnsetType = UNSET
    reverse_diffs: Annotated[dict[str, str], Meta(max_length=5_000)] | None | UnsetType = UNSET
    digest: str | None | UnsetType = UNSET

    @property
    def texts(self) -> list[str]:
        """All texts that are there."""
        own = (self.stats, self.log, self.pre_change_symbols)
        return [text for text in (*(self.commits or ()), *own, *(self.reverse_diffs or {}).values()) if text]


@dataclass(frozen=True, slots=True)
class StructuredContext:
    """The context of one request.

    ``files`` stand in the client's order. ``symbols`` are the blocks by path that the client sent or the symbol index
    made; ``legend`` explains their notation and is empty without one. ``tree`` lists the paths of the repository; it is
    None if no tree is shown. ``images`` are URLs, data URLs included. ``session`` is the client's name for the
    conversation, or empty. ``removed`` are paths that no longer exist. ``modified`` are paths whose items count as
    changed whatever their digests say; ``broken`` are tiers that the client knows to be broken. ``references`` are the
    edges of the reference graph: for each path, the paths that it refers to.
    """

    files: tuple[ContextFile, ...] = ()
    symbols: Mapping[str, str] = field(default_factory=dict)
    legend: str = ""
    tree: tuple[str, ...] | None = None
    pages: tuple[FetchedPage, ...] = ()
    review: Review | None = None
    images: tuple[str, ...] = ()
    session: str = ""
    removed: frozenset[str] = frozenset()
    modified: frozenset[str] = frozenset()
    broken: frozenset[Tier] = frozenset()
    references: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def has_any(self) -> bool:
        """Whether anything is described."""
        return replace(self, session="") != StructuredContext()

    def selected(self) -> list[ContextFile]:
        """The files that are shown by their text."""
        return [file for file in self.files if file.is_selected and file.text is not None]

    @property
    def chars(self) -> int:
        """The length of all texts that are shown. A text counts as often as it is shown."""
        shown = [file.text or "" for file in self.selected()] + [self.symbols[path] for path in self.mapped()]
        shown += [text for page in self.pages for text in (page.content, page.symbols or "")]
        shown += self.review.texts if self.review is not None else []
        return sum(map(len, shown))

    def mapped(self) -> list[str]:
        """The paths that are shown by their symbols: a file that is selected never appears twice."""
        shown = {file.path for file in self.files if file.is_selected}
        return [path for path, block in self.symbols.items() if block and path not in shown]


@dataclass(frozen=True, slots=True)
class SymbolMap:
    """The symbols of all files of one request.

    ``blocks`` has the text of each file that has symbols, by path, in the order of the files; a block does not end with
    a line break. ``legend`` explains the notation and lists the aliases of directories. ``references`` has, for each
    path, the other paths that it refers to; a path without references may be absent.
    """

    blocks: Mapping[str, str] = field(default_factory=dict)
    legend: str = ""
    references: Mapping[str, frozenset[str]] = field(default_factory=dict)


class SymbolIndexer(Protocol):
    """Makes symbol maps. It is called in several threads at once, never on the event loop. It keeps its results by the
    digest of the text, within a bound of memory."""

    name: str
    priority: int

    def index(self, files: Sequence[ContextFile], aliases: Mapping[str, str]) -> SymbolMap:
        """The symbols of these files. ``aliases`` are those of the session (see ``legend_for``). The digests of the
        files must be those of their texts: the caller has computed them. Never raises an error because of a file's
        content."""


MOST_ALIASES = 64
# Deeper directories get no alias, so that the work is linear in the number of paths.
_MOST_DEPTH = 16
_FEWEST_PATHS = 4
_FEWEST_CHARS_SAVED = 80
_LOOKS_ALIASED = re.compile(r"@\d+/")


def legend_for(
    paths: Collection[str], given: Mapping[str, str], settled: Collection[str] = frozenset()
) -> dict[str, str]:
    """The aliases by directory: the given ones in their order, and behind them new ones for ``paths``.

    ``settled`` are the paths that earlier requests of the session have shown: a directory above one of them gets no new
    alias. The result depends on the set of paths and not on their order.
    """
    aliases = dict(given)
    saved = _saved_chars(set(paths), aliases, {directory for path in settled for directory in _directories(path)})
    best = sorted(saved, key=lambda directory: (-saved[directory], directory))[: max(0, MOST_ALIASES - len(aliases))]
    for directory in sorted(best):
        aliases[directory] = f"@{len(aliases) + 1}"
    return aliases


def shorten(path: str, aliases: Mapping[str, str]) -> str:
    """The path with the longest aliased directory written as its alias, or the path itself. A path that could be
    mistaken for one with an alias is written with ``./`` in front."""
    for directory in _directories(path):
        if directory in aliases:
            return aliases[directory] + path[len(directory) :]
    return f"./{path}" if _LOOKS_ALIASED.match(path) else path


def _directories(path: str) -> Iterator[str]:
    """The directories above a path, the deepest first, without those that are too deep for an alias."""
    parts = path.split("/", _MOST_DEPTH + 1)[:-1][:_MOST_DEPTH]
    for count in range(len(parts), 0, -1):
        yield "/".join(parts[:count])


def _saved_chars(paths: set[str], aliases: Mapping[str, str], closed: set[str]) -> dict[str, int]:
    """The directories that are worth an alias, and how many characters it saves. A path counts only for the deepest
    such directory above it."""
    waiting = Counter(directory for path in paths if (directory := next(_directories(path), "")))
    for directory in list(waiting):
        for above in _directories(directory + "/"):
            waiting.setdefault(above, 0)
    saved = {}
    for directory in sorted(waiting, key=lambda one: (-one.count("/"), one)):
        count = waiting[directory]
        gain = count * (len(directory) - 3) - len(directory)
        if directory in aliases:
            continue
        if directory not in closed and count >= _FEWEST_PATHS and gain >= _FEWEST_CHARS_SAVED:
            saved[directory] = gain
        elif "/" in directory:
            waiting[directory.rpartition("/")[0]] += count
    return saved


CHUNKS = 4
"""Measured on coding sessions that follow a git history, as a share of the cost of full texts: four chunks 0.43 (quiet)
and 0.62 (busy), one message 0.48 and 0.60, tiers by age 0.52 and 0.61, eight chunks 0.42 and 0.62."""
# No chunk is longer than this at first, because recognisers look through 500,000 characters.
_MOST_CHARS = 250_000


@dataclass(frozen=True, slots=True)
class MapChunks:
    """The chunk of each path that was shown in a conversation. ``count`` is the number of chunks."""

    places: Mapping[str, int] = field(default_factory=dict)
    count: int = 0

    def with_paths(self, sizes: Mapping[str, int]) -> "MapChunks":
        """The chunks with these paths added; ``sizes`` gives the number of characters of each path's block. The paths
        of the first request are shared out in their order, so that chunks have about the same size. Later paths go to
        the last chunk."""
        new = [path for path in sizes if path not in self.places]
        if not new:
            return self
        if self.count:
            return MapChunks({**self.places, **dict.fromkeys(new, self.count - 1)}, self.count)
        total = sum(sizes.values())
        count = max(CHUNKS, -(-total // _MOST_CHARS))
        before = accumulate((sizes[path] for path in sorted(sizes)), initial=0)
        places = {
            path: min(start * count // max(total, 1), count - 1)
            for path, start in zip(sorted(sizes), before, strict=False)
        }
        return MapChunks(places, count)

    def shown(self, paths: Iterable[str]) -> list[list[str]]:
        """For each chunk that has any of these paths, its paths among them, sorted."""
        found: list[list[str]] = [[] for _ in range(self.count)]
        for path in sorted(paths):
            found[self.places[path]].append(path)
        return [chunk for chunk in found if chunk]


SECTION = "stratiform"
"""The member of the body in which a client describes its context."""
PROMPTS = "prompts"
WINDOW = "window"
_WISHES = ("return_usage", "return_break")
_OWN = (PROMPTS, WINDOW, *_WISHES)
_BOOLEANS: Mapping[bytes, bool] = {b"true": True, b"false": False, b"null": False}
_SHORT_BYTES = 64


@dataclass(frozen=True, slots=True)
class Section:
    """``prompts`` and ``window`` are the values of these members, None if they are missing or null. ``returns_usage``
    and ``returns_break``: the answer should say what the request used, and which part of it breaks the cache. ``rest``
    is the section without these four members, None if it has no other members: it describes no structured context.
    ``is_split``: the section has at least one of the four, even if it is null."""

    prompts: bytes | None = None
    window: bytes | None = None
    rest: bytes | None = None
    returns_usage: bool = False
    returns_break: bool = False
    is_split: bool = field(default=False, compare=False)


def split(raw: Raw | bytes) -> Section:
    """The section in its parts. If the section is not an object, all of it is ``rest``, and the reader of structured
    context refuses it. Raises Unreadable. Raises InvalidRequest if one of its fields stands twice, or if a field that
    must be a boolean is not one."""
    if bytes(memoryview(raw)[:1]) != b"{":
        return Section(rest=bytes(raw))
    members = members_of(raw)
    if members.keys().isdisjoint(_OWN):
        return Section(rest=bytes(raw))
    check_fields(bytes(raw), len(members) + sum(names_in(bytes(value)) for value in members.values()), SECTION)
    rest = join_members(members, dict.fromkeys(_OWN)) if members.keys() - _OWN else None
    usage, break_ = (_wish(members, name) for name in _WISHES)
    return Section(_said(members, PROMPTS), _said(members, WINDOW), rest, usage, break_, is_split=True)


def _wish(members: Mapping[str, Raw | bytes], name: str) -> bool:
    asked = _BOOLEANS.get(bytes(members.get(name, b"null")))
    if asked is None:
        raise invalid(f"{SECTION}.{name}", "must be a boolean or null", "invalid_type")
    return asked


def _said(members: Mapping[str, Raw | bytes], name: str) -> bytes | None:
    raw = bytes(members.get(name, b"null"))
    return None if raw == b"null" else raw


def section_of(members: Mapping[str, Raw | bytes] | None) -> Raw | bytes | None:
    """The section; None if it is missing, null or an empty object."""
    raw = (members or {}).get(SECTION)
    if raw is None or (len(raw) < _SHORT_BYTES and b"".join(bytes(raw).split()) in (b"null", b"{}")):
        return None
    return raw


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
        """The tokens of the message without markers. Of a list of parts, each part has the tokens that the planner
        counts: the data of an image are no text. Freezing uses this number."""
        with suppress(Unreadable):
            if bytes(memoryview(self.members.get("content", b""))[:1]) == b"[":
                return counter.counted(self.digest, lambda: MessageReader(counter, ()).read(Raw(self.raw)).tokens)
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


def system_text(conversation: Conversation) -> str:
    """The text of the system messages, with a blank line between two of them. Parts that are not text are left out."""
    return "\n\n".join([text for turn in conversation.system if (text := _text(turn))])


def _text(turn: Turn) -> str:
    try:
        return "".join([text for _, text in parts_of(turn.members) if text is not None])
    except Unreadable:
        return ""


def pair(text: str, ok: str) -> tuple[bytes, bytes]:
    """A user's message and the assistant's answer."""
    return message_json("user", text), message_json("assistant", ok)

"""A client's context, read and resolved: every path is clean, and every text is present. No file is read here.

First come the values: files, pages, a review, and the context that holds them.

The map of the repository follows: a short block of symbols for each file, the legend with short names of directories,
and the chunks in which the map is sent. A block lists the classes, functions, methods and constants of one file,
without their bodies and without line numbers. It depends only on the file's own text and on the alias of its path. An
edit inside a function, another selection, or a change in another file does not change its bytes. References between
files are therefore kept beside the blocks and never inside them.

At the end, the section of a request is split into what it says about prompts, about the context window, about the
answer, and about structured context.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Protocol

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from proxy.core.layout.tiers import Tier
from proxy.core.value import dataclass, field, replace
from proxy.core.wire.json_body import join_members, members_of
from proxy.core.wire.refusals import check_fields, invalid
from proxy.core.wire.scan import names_in


class ContextFile(Struct, frozen=True, gc=False):
    """One file of the client. ``path`` is a clean POSIX path. ``text`` is the whole content; it is None if the content
    cannot be read as text, and such a file is skipped and counted. ``digest`` is the SHA-256 of the text in UTF-8, as
    hexadecimal digits; it is empty if the file has neither text nor digest. A selected file is shown by its text, any
    other file by its symbols. (A struct, not a dataclass: a request has thousands of files.)"""

    path: str
    text: str | None
    digest: str
    is_selected: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A page that the client has fetched from a URL. ``symbols`` is an optional map of the page's own symbols."""

    url: str
    title: str
    content: str
    symbols: str = ""

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
    pages: tuple[Page, ...] = ()
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
        shown += [text for page in self.pages for text in (page.content, page.symbols)]
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
_MOST_DEPTH = 16
"""Deeper directories get no alias, so that the work is linear in the number of paths."""
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
_MOST_CHARS = 250_000
"""No chunk is longer than this at first, because recognisers look through 500,000 characters."""


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
    is the section without these four members, None if it has no other members. ``is_split``: the section has at least
    one of the four, even if it is null."""

    prompts: bytes | None = None
    window: bytes | None = None
    rest: bytes | None = None
    returns_usage: bool = False
    returns_break: bool = False
    is_split: bool = field(default=False, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether the section describes no structured context."""
        return self.rest is None


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

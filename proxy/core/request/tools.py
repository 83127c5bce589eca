"""The tools of a request as positions of the prompt; they stand in front of everything else."""

from collections.abc import Sequence

from msgspec import Raw

from proxy.core.caches.prompt import Life
from proxy.core.digest import digest
from proxy.core.lru import Bounded
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import MARK_KEYS, Part, PartKind, marker_of, named, unmarked
from proxy.core.request.tokens import TokenCounter
from proxy.core.wire.json_body import elements, join_members, members_of, value
from proxy.core.wire.surrogates import raw_text

_MAX_REMEMBERED = 128
_KEY_BYTES = 256
_MOST_NAME_CHARS = 64
_NO_FUNCTION = Raw(b"null")


def bare_tool(raw: bytes) -> bytes:
    """A tool without the markers on the tool and on its function (litellm forwards both)."""
    members = members_of(raw)
    changes: dict[str, bytes | None] = {key: None for key in MARK_KEYS if key in members}
    function = members.get("function", _NO_FUNCTION)
    if bytes(function).startswith(b"{"):
        inner = members_of(function)
        if any(key in inner for key in MARK_KEYS):
            changes["function"] = join_members(inner, {key: None for key in MARK_KEYS if key in inner})
    return join_members(members, changes) if changes else raw


def _digest_and_mark(raw: Raw) -> tuple[bytes, Life | None]:
    """The digest of a tool, and its marker. The digest is the same with and without a marker, wherever the marker
    stands. The function is hashed by its members, too."""
    members = members_of(raw)
    mark = marker_of(members)
    parts: list[bytes] = []
    for key, each in members.items():
        if key == "function" and bytes(each).startswith(b"{"):
            inner = members_of(each)
            mark = mark or marker_of(inner)
            parts.append(digest(*unmarked(inner)))
        elif key not in MARK_KEYS:
            parts.append(named(key, each))
    return digest(b"tool", *parts), mark


def _name(raw: Raw) -> str:
    """The name of a tool, on one line."""
    members = members_of(raw)
    function = members.get("function", _NO_FUNCTION)
    named = members_of(function) if bytes(function).startswith(b"{") else members
    name = value(named["name"]) if "name" in named else None
    return " ".join(name.split())[:_MOST_NAME_CHARS] if isinstance(name, str) and name.strip() else "tool"


def _weight(known: tuple[bytes, Element]) -> int:
    content, element = known
    return 1_000 + len(content) + 300 * len(element.parts)


class ToolReader:
    """Reads a tools array once per distinct array."""

    def __init__(self, counter: TokenCounter, *, capacity_bytes: int = 32 * 2**20) -> None:
        self._counter = counter
        self._base: ToolReader | None = None
        self._known: Bounded[tuple[int, bytes], tuple[bytes, Element]] = Bounded(
            capacity_bytes, _weight, _MAX_REMEMBERED
        )

    def fork(self) -> "ToolReader":
        """A reader for another thread, which knows everything that this reader knows. ``merge`` brings the result
        back."""
        other = ToolReader(self._counter.fork())
        other._base = self
        return other

    def merge(self, other: "ToolReader") -> None:
        self._counter.merge(other._counter)
        for key, known in other._known.items():
            self._known.put(key, known)

    def read(self, raw: Raw | bytes | None) -> tuple[Element, ...]:
        """One element for all tools; nothing if there are no tools. Raises Unreadable if they are no array of
        objects."""
        if raw is None or bytes(raw) in (b"null", b"[]"):
            return ()
        content = bytes(raw)
        # Comparing the bytes is far cheaper than hashing them.
        key = (len(content), content[-_KEY_BYTES:])
        known = self._known.get(key)
        if known is None and self._base is not None:
            known = self._base._known.get(key)
        if known is None or known[0] != content:
            known = (content, self._parse(content))
        self._known.put(key, known)
        return (known[1],)

    def _parse(self, content: bytes) -> Element:
        parts = []
        tools = elements(content)
        for index, raw in enumerate(tools):
            own, mark = _digest_and_mark(raw)
            tokens = self._counter.count(own, raw_text(bytes(raw)))
            # Only the last tool carries our marker: a marker within the list would split tools that always change
            # together.
            parts.append(Part(PartKind.OTHER, own, tokens, index, index == len(tools) - 1, mark))
        return Element(
            key="tools",
            kind=ElementKind.TOOLS,
            digest=digest(*(p.digest for p in parts)),
            parts=tuple(parts),
            tokens=sum(p.tokens for p in parts),
            lead="\n".join(map(_name, tools)),
        )


def in_order(raw: bytes, known: Element, digests: Sequence[bytes]) -> bytes | None:
    """The array ``raw``, which was read as ``known``, with its tools in the order of these ``digests``; None if the
    digests are those of other tools."""
    by_digest = dict(zip((part.digest for part in known.parts), elements(raw), strict=True))
    if len(digests) != len(known.parts) or not by_digest.keys() >= set(digests):
        return None
    return b"[" + b",".join(bytes(by_digest[one]) for one in digests) + b"]"

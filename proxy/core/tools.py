"""The tools of a request as positions of the prompt; they stand in front of everything else."""

from collections import OrderedDict
from hashlib import sha256

from msgspec import Raw

from proxy.core.digest import digest
from proxy.core.layout import Element, ElementKind
from proxy.core.message import MARK_KEYS, Part, PartKind, marker_of
from proxy.core.tokens import TokenCounter
from proxy.core.wire import elements, members_of

_MAX_REMEMBERED = 512


class ToolReader:
    """Reads a tools array once per distinct array."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: OrderedDict[bytes, Element] = OrderedDict()

    def read(self, raw: Raw | None) -> tuple[Element, ...]:
        """One element for all tools; nothing where there are none. Raises Unreadable for no array of objects."""
        if raw is None or bytes(raw) in (b"null", b"[]"):
            return ()
        content = bytes(raw)
        key = sha256(content).digest()
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._parse(content)
            if len(self._known) > _MAX_REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return (known,)

    def _parse(self, content: bytes) -> Element:
        parts = []
        tools = elements(content)
        for index, raw in enumerate(tools):
            members = members_of(raw)
            own = digest(b"tool", *(k.encode() + bytes(v) for k, v in members.items() if k not in MARK_KEYS))
            tokens = self._counter.count(own, bytes(raw).decode("utf-8", "replace"))
            # Only the last tool carries our marker: a marker within the list would split what never changes apart.
            parts.append(Part(PartKind.OTHER, own, tokens, index, index == len(tools) - 1, marker_of(members)))
        return Element(
            key="tools",
            kind=ElementKind.TOOLS,
            digest=digest(*(p.digest for p in parts)),
            parts=tuple(parts),
            tokens=sum(p.tokens for p in parts),
        )

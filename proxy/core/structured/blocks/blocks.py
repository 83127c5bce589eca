"""The parts of an assembly: items, the sections and blocks in which they stand, and the messages that are sent.

The breakdown is made from the same values as the messages, so that both agree.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from proxy.core.digest import DIGEST_BYTES, digest
from proxy.core.layout.tiers import Tier
from proxy.core.value import dataclass, field
from proxy.core.wire.surrogates import utf8


class AssemblyKind(StrEnum):
    """The way in which messages are made from a context."""

    TIERED = "tiered"
    """In tiers, each of which ends at a marker."""
    ECONOMIC = "economic"
    """In an order from which the planner starts."""
    FLAT = "flat"
    """In a fixed order, without markers."""


class Kind(StrEnum):
    """The kind of an item or a section."""

    SYSTEM = "system"
    LEGEND = "legend"
    SYMBOLS = "symbols"
    FILES = "files"
    HISTORY = "history"
    TREE = "tree"
    URLS = "urls"
    REVIEW = "review"
    PANELS = "panels"
    PROMPT = "prompt"
    IMAGES = "images"


class Skip(StrEnum):
    """The reason why an item is not shown."""

    UNREADABLE = "unreadable"
    """A selected file whose content is not text."""
    NO_SYMBOLS = "no-symbols"
    """A file that should be shown by its symbols, but the index has no symbols for it."""
    EMPTY_PAGE = "empty-page"
    """A fetched page without content."""
    NO_PROMPT = "no-prompt"
    """An image in a request without a user message."""


Skipped = Counter[Skip]
"""A count that grows while an assembly is made."""


class Item(NamedTuple):
    """One piece of the context. For files, symbols and history, ``key`` is the tracker's key (``file:src/a.py``,
    ``history:3``). Other keys have a prefix such as ``url:``, ``system:``, ``prompt:`` or ``image:``, or are only a
    name, such as ``tree``.

    ``text`` is the text that is sent for the item, or the URL of an image. A client's message has its JSON in ``raw``
    instead, as it is before anything is added to it."""

    kind: Kind
    key: str
    text: str = ""
    raw: bytes = b""

    @property
    def digest(self) -> bytes:
        """The digest of exactly the bytes that are sent."""
        return digest(self.raw or utf8(self.text))


@dataclass(frozen=True, slots=True)
class Section:
    """Consecutive items of one kind. ``lead`` separates the section from a text in front of it in the same message.
    ``header`` stands in front of the items, and ``joint`` between two of them. ``ok`` is the assistant's answer, if the
    section is the last one of its message."""

    kind: Kind
    items: tuple[Item, ...]
    header: str = ""
    joint: str = ""
    ok: str = ""
    lead: str = ""

    @property
    def text(self) -> str:
        """The section as it is sent, provided that none of its items is a client's message."""
        return self.lead + self.header + self.joint.join([item.text for item in self.items])

    @property
    def words(self) -> str:
        """Everything that is sent besides the items."""
        return self.lead + self.header + self.joint * (len(self.items) - 1) + self.ok


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the request: one of the tiers L0 to L3, or one step of the active part. ``messages`` are JSON objects;
    ``marks`` are the indices of the messages that carry a marker."""

    tier: Tier
    name: str
    sections: tuple[Section, ...]
    messages: tuple[bytes, ...]
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Assembly:
    """The blocks of one request in sending order. ``empty_tiers`` counts the empty tiers among L0 to L3; ``skipped``
    counts the items that are not shown, by ``Skip``."""

    blocks: tuple[Block, ...]
    empty_tiers: int = 0
    skipped: Mapping[Skip, int] = field(default_factory=dict)

    @property
    def messages(self) -> tuple[bytes, ...]:
        """The messages in sending order."""
        return tuple(message for block in self.blocks for message in block.messages)

    def body(self) -> bytes:
        """The JSON array of the messages."""
        return b"[" + b",".join(self.messages) + b"]"

    def shown(self, name: str) -> Iterator[tuple[int, Item]]:
        """The items of the blocks of this name with the indices of their messages. An item that is a pair of messages
        comes twice, with the index of each of its two messages. An item that is a single message comes once."""
        at = 0
        for block in self.blocks:
            items = [item for section in block.sections for item in section.items]
            if block.name == name:
                share = len(block.messages) // max(1, len(items))
                for number, item in enumerate(items):
                    yield from ((at + number * share + each, item) for each in range(share))
            at += len(block.messages)


_TICKS = re.compile("`{3,}")


def fence_for(text: str) -> str:
    """The shortest fence of three or more backticks that the text does not contain."""
    if "```" not in text:
        return "```"
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    return "`" * (longest + 1)


def file_block(path: str, text: str) -> str:
    """A file: its path on a line, a fence without a language, the content, a line break, and the closing fence."""
    fence = fence_for(text)
    return f"{path}\n{fence}\n{text}\n{fence}"


def block_digest(block: str) -> bytes:
    """The digest of exactly the bytes of a block."""
    return sha256(block.encode("utf-8", "surrogatepass")).digest()[:DIGEST_BYTES]

"""The parts of an assembled request, and its breakdown.

The parts are items, the sections and blocks in which they stand, and the messages that are sent. Nothing here changes
the order of the items.

The breakdown says which items stand in which tier, and how many tokens they take. For an assembled request it is made
from the same blocks as the messages, so that it shows what the model receives. Any other request, and a request of
which only the figures are kept, is shown by its inventory.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from proxy.kit.modes import Edit
from proxy.kit.value import dataclass, digest, field
from proxy.planner.session_record import Inventory, ListedItem, ListedSection
from proxy.planner.tiers import ENTRY_N, Change, Tier
from proxy.protocol.request.tokens import IMAGE_TOKENS, TokenCounter
from proxy.protocol.response.usage import Usage
from proxy.protocol.wire.json_body import printable, utf8


class AssemblyKind(StrEnum):
    """The way in which messages are made from a context: in tiers, each of which ends at a marker; in an order from
    which the planner starts; or in a fixed order, without markers."""

    TIERED = "tiered"
    ECONOMIC = "economic"
    FLAT = "flat"


class ItemKind(StrEnum):
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
    """The reason why an item is not shown: a selected file whose content is not text; a file that should be shown by
    its symbols, but the index has none for it; a fetched page without content; an image in a request without a user
    message."""

    UNREADABLE = "unreadable"
    NO_SYMBOLS = "no-symbols"
    EMPTY_PAGE = "empty-page"
    NO_PROMPT = "no-prompt"


Skipped = Counter[Skip]
"""A count that grows while an assembly is made."""


class ContextItem(NamedTuple):
    """One piece of the context. For files, symbols and history, ``key`` is the tracker's key (``file:src/a.py``,
    ``history:3``). Other keys have a prefix such as ``url:``, ``system:``, ``prompt:`` or ``image:``, or are only a
    name, such as ``tree``.

    ``text`` is the text that is sent for the item, or the URL of an image. A client's message has its JSON in ``raw``
    instead, as it is before anything is added to it."""

    kind: ItemKind
    key: str
    text: str = ""
    raw: bytes = b""

    @property
    def digest(self) -> bytes:
        """The digest of exactly the bytes that are sent."""
        return digest(self.raw or utf8(self.text))


@dataclass(frozen=True, slots=True)
class ContextSection:
    """Consecutive items of one kind. ``lead`` separates the section from a text in front of it in the same message.
    ``header`` stands in front of the items, and ``joint`` between two of them. ``ok`` is the assistant's answer, if the
    section is the last one of its message."""

    kind: ItemKind
    items: tuple[ContextItem, ...]
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
    sections: tuple[ContextSection, ...]
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

    def shown(self, name: str) -> Iterator[tuple[int, ContextItem]]:
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
    longest = max(map(len, _TICKS.findall(text))) if "```" in text else 2
    return "`" * (1 + longest)


def file_block(path: str, text: str) -> str:
    """A file: its path on a line, a fence without a language, the content, a line break, and the closing fence."""
    fence = fence_for(text)
    return f"{path}\n{fence}\n{text}\n{fence}"


_TRACKED = frozenset({ItemKind.FILES, ItemKind.SYMBOLS, ItemKind.HISTORY})
_FLAGGED = (ItemKind.SYSTEM, ItemKind.LEGEND, ItemKind.TREE, ItemKind.URLS, ItemKind.HISTORY)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The facts of a breakdown besides the inventory. ``changes`` are those of the last answer. ``empty_tiers_total``
    is the sum over the session. ``last`` and ``total`` are the usage that the provider reported for the last answer and
    for the whole session. Sizes are in tokens, and None if they are not known. ``edits`` counts the messages and panels
    that were edited besides the layout, by the reason."""

    model: str = ""
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    changes: Sequence[Change] = ()
    empty_tiers_total: int = 0
    last: Usage | None = None
    total: Usage | None = None
    edits: Mapping[Edit, int] = field(default_factory=dict)


def inventory_of(assembly: Assembly, counter: TokenCounter, counts: Mapping[str, int]) -> Inventory:
    """The items of an assembly with their tokens: a client's message is counted as its JSON, and every image counts the
    same, whatever its URL is. ``counts`` gives the number of unchanged responses (N) by key."""

    def tokens(item: ContextItem) -> int:
        text = item.raw.decode("utf-8", "replace") or item.text
        return IMAGE_TOKENS if item.kind is ItemKind.IMAGES else counter.count(item.digest, text)

    blocks = sorted(assembly.blocks, key=attrgetter("tier"))
    sections = tuple(
        ListedSection(
            block.tier,
            str(section.kind),
            counter.count(digest(utf8(section.words)), section.words) if section.words else 0,
            tuple(
                ListedItem(item.key, tokens(item), counts.get(item.key, 0) if item.kind in _TRACKED else None)
                for item in section.items
            ),
        )
        for block in blocks
        for section in block.sections
    )
    marked = tuple(dict.fromkeys(block.tier for block in blocks if block.marks))
    skipped = {str(reason): count for reason, count in assembly.skipped.items()}
    return Inventory(sections, marked, assembly.empty_tiers, skipped)


def shown(inventory: Inventory, about: Circumstances) -> dict[str, object]:
    """The breakdown, as a value that can be written as JSON.

    Every sum in it is the sum of the items and of the words around them; the JSON frame of a message does not count.
    ``cached_tokens`` are the tokens of the tiers L0 to L3, not the tokens of cache hits. ``breakpoint`` says whether a
    marker stands in the tier. ``promotions`` are pairs of a key and its new tier. ``demotions`` are pairs of a key and
    the tier that it left, downwards or out of the request. ``context_map_tokens`` are those of all symbols.
    """
    tiers: dict[Tier, list[ListedSection]] = {}
    for section in inventory.sections:
        tiers.setdefault(section.tier, []).append(section)
    tokens, kinds = inventory.tier_tokens(), _by_kind(inventory)
    total, used = sum(tokens.values()), about.total or Usage(0, 0)
    return {
        "model": printable(about.model),
        "max_input_tokens": about.max_input_tokens,
        "max_output_tokens": about.max_output_tokens,
        "total_tokens": total,
        "used_tokens": total,
        "remaining_tokens": None if about.max_input_tokens is None else about.max_input_tokens - total,
        "cached_tokens": total - tokens[Tier.ACTIVE],
        "cache_hit_rate": hit_rate(about.last, about.total),
        "blocks": [_block(tier, own, is_marked=tier in inventory.marked) for tier, own in tiers.items()],
        "tier_info": _tier_info(inventory),
        "context_map_tokens": kinds[ItemKind.SYMBOLS]["tokens"],
        "promotions": [[printable(c.key), c.target.label] for c in about.changes if c.target is not None and _is_up(c)],
        "demotions": [
            [printable(c.key), c.source.label] for c in about.changes if c.source is not Tier.ACTIVE and not _is_up(c)
        ],
        "empty_tiers": inventory.empty_tiers,
        "empty_tiers_session_total": about.empty_tiers_total,
        "skipped": dict(inventory.skipped),
        "breakdown": kinds,
        "panels": list(inventory.panels),
        "edits": {str(edit): count for edit, count in about.edits.items()},
        "freezing_cost": round(inventory.freezing_cost),
        "session_totals": {
            "prompt": used.prompt,
            "completion": used.output,
            "total": used.prompt + used.output,
            "cache_hit": used.read,
            "cache_write": used.write,
        },
    }


def hit_rate(last: Usage | None, total: Usage | None) -> float:
    """The share of the prompt that the provider read from its cache: in the last request, or in the session if the
    usage of the last request is not known. It is 0.0 if neither is known."""
    for usage in (last, total):
        if usage is not None and usage.prompt > 0:
            return usage.read / usage.prompt
    return 0.0


def _block(tier: Tier, sections: Sequence[ListedSection], *, is_marked: bool) -> dict[str, object]:
    return {
        "tier": tier.label,
        "name": "Active" if tier is Tier.ACTIVE else tier.name,
        "tokens": sum(section.tokens for section in sections),
        "cached": tier is not Tier.ACTIVE,
        "breakpoint": is_marked,
        "threshold": ENTRY_N[tier],
        "contents": [
            {
                "type": section.kind,
                "tokens": section.tokens,
                "count": len(section.items),
                "items": [_item(tier, item) for item in section.items],
            }
            for section in sections
        ],
    }


def _item(tier: Tier, item: ListedItem) -> dict[str, object]:
    """One item. If it is tracked, the value also says how far it is on its way to the next tier."""
    found: dict[str, object] = {"key": printable(item.key), "tokens": item.tokens}
    if item.n is not None:
        above = None if tier is Tier.L0 else Tier(tier - 1)
        threshold = None if above is None else ENTRY_N[above]
        found |= {
            "n": item.n,
            "next_tier": None if above is None else above.label,
            "next_threshold": threshold,
            "progress": 1.0 if threshold is None else min(1.0, item.n / threshold),
        }
    return found


def _tier_info(inventory: Inventory) -> dict[str, object]:
    """For each tier, its tokens, how many symbols, files and turns stand in it, and which other kinds stand in it."""
    counts = Counter[tuple[Tier, str]]()
    for section in inventory.sections:
        counts[section.tier, section.kind] += len(section.items)
    found: dict[str, object] = {}
    for tier, tokens in inventory.tier_tokens().items():
        found[tier.label] = {
            "tokens": tokens,
            **{kind.value: counts[tier, kind] for kind in (ItemKind.SYMBOLS, ItemKind.FILES, ItemKind.HISTORY)},
            **{f"has_{kind}": counts[tier, kind] > 0 for kind in _FLAGGED},
        }
    return found | {"empty_tiers": inventory.empty_tiers}


def _is_up(change: Change) -> bool:
    return change.target is not None and change.target < change.source


def _by_kind(inventory: Inventory) -> dict[str, dict[str, int]]:
    """The numbers of tokens and items by their kind, over all tiers."""
    tokens, items = Counter[str](), Counter[str]()
    for section in inventory.sections:
        tokens[section.kind] += section.tokens
        items[section.kind] += len(section.items)
    return {str(kind): {"tokens": tokens[kind], "count": items[kind]} for kind in ItemKind}

"""The breakdown of an assembled request: which items stand in which tier, and how many tokens they take.

It is made from the blocks that the messages are made of, so that it shows what the model receives.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.core.digest import digest
from proxy.core.layout.tiers import ENTRY_N, Change, Tier
from proxy.core.reasons import Edit
from proxy.core.request.tokens import IMAGE_TOKENS, TokenCounter
from proxy.core.response.usage import Usage
from proxy.core.structured.blocks.blocks import Assembly, Block, Item, Kind, Section
from proxy.core.wire.long_text import utf8
from proxy.core.wire.surrogates import printable

_TRACKED = frozenset({Kind.FILES, Kind.SYMBOLS, Kind.HISTORY})
_NOTHING = Usage(0, 0)


@dataclass(frozen=True, slots=True)
class Measure:
    """Counts the tokens of a text, and those of a message that is given as JSON."""

    text: Callable[[str], int]
    message: Callable[[bytes], int]

    @classmethod
    def of(cls, counter: TokenCounter) -> "Measure":
        """Counts each text once. A message is counted as its JSON."""

        def message(raw: bytes) -> int:
            return counter.count(digest(b"json", raw), raw.decode("utf-8", "replace"))

        return cls(lambda text: counter.count(digest(b"block", utf8(text)), text), message)

    def item(self, item: Item) -> int:
        """Tokens of one item. An image counts the same whatever its URL."""
        if item.kind is Kind.IMAGES:
            return IMAGE_TOKENS
        return self.message(item.raw) if item.raw else self.text(item.text)

    def section(self, section: Section) -> int:
        """Tokens of the words around the items of a section."""
        return self.text(section.words) if section.words else 0


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a breakdown says besides the blocks. ``counts`` is N by key; ``changes`` are those of the last answer.
    ``empty_tiers_total`` is the sum over the session. ``last`` and ``total`` are the usage that the provider reported
    for the last answer and for all of the session. Sizes are tokens, None where they are not known. ``panels`` say of
    the live panels in sending order where they stand and what they cost; ``edits`` counts the messages and panels that
    were edited besides the layout, by the reason; ``freezing_cost`` is what freezing has cost the session so far, in
    tokens at the plain input price."""

    model: str = ""
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    changes: Sequence[Change] = ()
    empty_tiers_total: int = 0
    last: Usage | None = None
    total: Usage | None = None
    panels: Sequence[Mapping[str, object]] = ()
    edits: Mapping[Edit, int] = field(default_factory=dict)
    freezing_cost: float = 0.0


def breakdown(assembly: Assembly, measure: Measure, about: Circumstances) -> dict[str, object]:
    """A value that can be written as JSON.

    Every sum in it is the sum of the items and of the words around them; the frame of a message counts nothing.
    ``cached_tokens`` are those of the tiers L0 to L3, and no hits; ``breakpoint`` says whether a marker stands in the
    tier. ``promotions`` are pairs of a key and its new tier, ``demotions`` of a key and the tier that it left.
    """
    blocks = [_tier_block(tier, own, measure, about) for tier, own in _by_tier(assembly.blocks)]
    total = sum(block.tokens for block in blocks)
    left = None if about.max_input_tokens is None else about.max_input_tokens - total
    return {
        "model": printable(about.model),
        "max_input_tokens": about.max_input_tokens,
        "max_output_tokens": about.max_output_tokens,
        "total_tokens": total,
        "used_tokens": total,
        "remaining_tokens": left,
        "cached_tokens": sum(block.tokens for block in blocks if block.tier is not Tier.ACTIVE),
        "cache_hit_rate": hit_rate(about.last, about.total),
        "blocks": [block.value() for block in blocks],
        "promotions": [[printable(c.key), c.target.label] for c in about.changes if c.target is not None and _is_up(c)],
        "demotions": [[printable(c.key), c.source.label] for c in about.changes if _is_down(c)],
        "empty_tiers": assembly.empty_tiers,
        "empty_tiers_session_total": about.empty_tiers_total,
        "skipped": {str(reason): count for reason, count in assembly.skipped.items()},
        "breakdown": _by_kind(blocks),
        "panels": list(about.panels),
        "edits": {str(edit): count for edit, count in about.edits.items()},
        "freezing_cost": round(about.freezing_cost),
        "session_totals": _totals(about.total or _NOTHING),
    }


def hit_rate(last: Usage | None, total: Usage | None) -> float:
    """The share of the prompt that the provider read from its cache: of the last answer, or of the session where the
    last one is not known. 0.0 where neither is."""
    for usage in (last, total):
        if usage is not None and usage.prompt > 0:
            return usage.read / usage.prompt
    return 0.0


@dataclass(frozen=True, slots=True)
class _Content:
    kind: Kind
    tokens: int
    items: tuple[dict[str, object], ...]

    def value(self) -> dict[str, object]:
        return {"type": str(self.kind), "tokens": self.tokens, "count": len(self.items), "items": list(self.items)}


@dataclass(frozen=True, slots=True)
class _TierBlock:
    tier: Tier
    contents: tuple[_Content, ...]
    is_marked: bool

    @property
    def tokens(self) -> int:
        return sum(content.tokens for content in self.contents)

    def value(self) -> dict[str, object]:
        return {
            "tier": self.tier.label,
            "name": "Active" if self.tier is Tier.ACTIVE else self.tier.name,
            "tokens": self.tokens,
            "cached": self.tier is not Tier.ACTIVE,
            "breakpoint": self.is_marked,
            "threshold": ENTRY_N[self.tier],
            "contents": [content.value() for content in self.contents],
        }


def _by_tier(blocks: Iterable[Block]) -> Iterator[tuple[Tier, list[Block]]]:
    """The blocks of each tier in which something stands, the most stable tier first."""
    found: dict[Tier, list[Block]] = {}
    for block in blocks:
        found.setdefault(block.tier, []).append(block)
    yield from sorted(found.items())


def _tier_block(tier: Tier, blocks: Sequence[Block], measure: Measure, about: Circumstances) -> _TierBlock:
    sections = [section for block in blocks for section in block.sections]
    contents = tuple(_content(tier, section, measure, about) for section in sections)
    return _TierBlock(tier, contents, any(block.marks for block in blocks))


def _content(tier: Tier, section: Section, measure: Measure, about: Circumstances) -> _Content:
    counted = [(item, measure.item(item)) for item in section.items]
    shown = tuple(_item(tier, item, tokens, about.counts) for item, tokens in counted)
    return _Content(section.kind, sum(tokens for _, tokens in counted) + measure.section(section), shown)


def _item(tier: Tier, item: Item, tokens: int, counts: Mapping[str, int]) -> dict[str, object]:
    """One item; how far it is on its way to the next tier, where it is one that is tracked."""
    found: dict[str, object] = {"key": printable(item.key), "tokens": tokens}
    if item.kind in _TRACKED:
        n = counts.get(item.key, 0)
        above = None if tier is Tier.L0 else Tier(tier - 1)
        threshold = None if above is None else ENTRY_N[above]
        found["n"] = n
        found["next_tier"] = None if above is None else above.label
        found["next_threshold"] = threshold
        found["progress"] = 1.0 if threshold is None else min(1.0, n / threshold)
    return found


def _is_up(change: Change) -> bool:
    return change.target is not None and change.target < change.source


def _is_down(change: Change) -> bool:
    """Whether a piece left a tier downwards, or left the request altogether."""
    return change.source is not Tier.ACTIVE and not _is_up(change)


def _by_kind(blocks: Iterable[_TierBlock]) -> dict[str, object]:
    """Tokens and items by their kind, over all tiers."""
    tokens: Counter[Kind] = Counter()
    items: Counter[Kind] = Counter()
    for content in (content for block in blocks for content in block.contents):
        tokens[content.kind] += content.tokens
        items[content.kind] += len(content.items)
    return {str(kind): {"tokens": tokens[kind], "count": items[kind]} for kind in Kind}


def _totals(usage: Usage) -> dict[str, int]:
    return {
        "prompt": usage.prompt,
        "completion": usage.output,
        "total": usage.prompt + usage.output,
        "cache_hit": usage.read,
        "cache_write": usage.write,
    }

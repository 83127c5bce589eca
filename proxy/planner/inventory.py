"""The contents of a request as figures: its items by their tiers, with tokens and N, and without any text.

A breakdown is made from it. It is small, so that one may be kept for each session (``Inventory.bounded``).
"""

from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxy.kit.secrets import without_keys
from proxy.planner.tiers import Tier

MOST_ITEMS: Final = 256
_KEY_CHARS = 200
# A secret that begins within the shown characters and ends behind them must still be recognised as a secret.
_READ_CHARS = 1_000
_MOST_PANELS = 50
_UNNAMED = frozenset({"urls", "images"})


class ListedItem(Struct, frozen=True, array_like=True):
    """One item. ``n`` counts the responses in which it was unchanged; None: its stability is not tracked."""

    key: str
    tokens: int
    n: int | None = None


class ListedSection(Struct, frozen=True, array_like=True):
    """Items of one kind that follow one another in one tier. ``words`` are the tokens around them."""

    tier: Tier
    kind: str
    words: int = 0
    items: tuple[ListedItem, ...] = ()

    @property
    def tokens(self) -> int:
        return self.words + sum(item.tokens for item in self.items)


class Inventory(Struct, frozen=True, array_like=True):
    """The sections of a request; those of the most stable tier come first. ``marked`` are the tiers in which a marker
    stands. ``empty_tiers`` counts the tiers L0 to L3 in which nothing stands, and ``skipped`` counts the items that are
    not shown, by the reason. ``panels`` are the live panels in sending order, each with its place and its cost.
    ``freezing_cost`` is what freezing has cost the session so far, in tokens at the plain input price."""

    sections: tuple[ListedSection, ...] = ()
    marked: tuple[Tier, ...] = ()
    empty_tiers: int = 0
    skipped: Mapping[str, int] = {}
    panels: Sequence[Mapping[str, object]] = ()
    freezing_cost: float = 0.0

    def tier_tokens(self) -> dict[Tier, int]:
        found = dict.fromkeys(Tier, 0)
        for section in self.sections:
            found[section.tier] += section.tokens
        return found

    def bounded(self, most: int = MOST_ITEMS) -> "Inventory":
        """The same inventory with only the ``most`` largest items, each under a short key, and with one section for
        each kind in a tier. The other items of a section become one item, ``others:COUNT``, so that all sums stay the
        same. Addresses of pages and images, and headers of panels, are left out, because a client may have written
        anything into them."""
        items = [item for section in self.sections for item in section.items]
        kept = set(map(id, nlargest(most, items, key=attrgetter("tokens"))))
        alike: dict[tuple[Tier, str], list[ListedSection]] = {}
        for section in self.sections:
            alike.setdefault((section.tier, section.kind), []).append(section)
        sections = tuple(_joined(*place, some, kept) for place, some in alike.items())
        panels = tuple({name: one for name, one in panel.items() if name != "header"} for panel in self.panels)
        return replace(self, sections=sections, panels=panels[:_MOST_PANELS])


def short_key(key: str) -> str:
    """A piece's key in the form in which it may be kept: shortened, and without anything that looks like a secret. The
    client chooses names of files and attributes of documents."""
    return without_keys(key[:_READ_CHARS])[:_KEY_CHARS]


def _joined(tier: Tier, kind: str, sections: Sequence[ListedSection], kept: Collection[int]) -> ListedSection:
    items = [item for section in sections for item in section.items]
    own = [item for item in items if id(item) in kept]
    names = [f"{kind}:{number}" if kind in _UNNAMED else short_key(item.key) for number, item in enumerate(own)]
    shown = [replace(item, key=name) for item, name in zip(own, names, strict=True)]
    others = [item.tokens for item in items if id(item) not in kept]
    if others:
        shown.append(ListedItem(f"others:{len(others)}", sum(others)))
    return ListedSection(tier, kind, sum(section.words for section in sections), tuple(shown))

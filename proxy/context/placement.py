"""Finds the tier of each item of a context, and its place within the tier. No text is written here.

The file begins with the first places of symbols, before any response: symbols that refer to each other are cached
together.

Then comes the tracker of one conversation: how stable each file, symbol block and turn is. Before a request is sent,
``placement`` says where each item stands, and changes nothing. After the request was answered, and if it counts,
``settle`` takes it into account once. The rules are those of policy ``classic``.

The client's statements about a request already hold for that request. An item whose bytes have changed, or that the
client calls modified, stands in active at once. So the tier that it left is written once and not twice.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile

from proxy.context import StructuredContext
from proxy.context.blocks import file_block
from proxy.kit.value import dataclass, digest, field
from proxy.planner.tiers import ENTRY_N, HISTORY, Change, Classic, ClassicPolicy, Tier, Tracked, groups_of
from proxy.protocol.request.tokens import TokenCounter
from proxy.protocol.wire.json_body import utf8

# The tiers of the first placement. An item reaches L0 by unchanged responses, unless L0 has a target of its own.
_FIRST = (Tier.L1, Tier.L2, Tier.L3)

References = Mapping[str, frozenset[str]]


def first_tiers(tokens: Mapping[str, int], references: References, target: int, l0_target: int = 0) -> dict[str, Tier]:
    """The tier of each path in ``tokens``. ``tokens`` gives the tokens of the text that is sent for each path. The
    result is in sending order: by tier, then by path.

    ``references`` are the paths that a path refers to; paths that are not in ``tokens`` count only as sources of
    references. ``target`` is the number of tokens that a tier should hold; 0 means that no size is set. If
    ``l0_target`` is above 0, the most referenced paths first fill L0 up to that number of tokens. The rules are those
    of the tiered assembly. Apart from sorting, the time is linear in the number of paths and references.
    """
    incoming = Counter(other for path, others in references.items() for other in others if other != path)
    ranked = sorted(tokens, key=lambda path: (-incoming[path], path))  # the most referenced first
    before = accumulate([tokens[path] for path in ranked], initial=0)
    found = {path: Tier.L0 for path, size in zip(ranked, before, strict=False) if size < l0_target}
    left = [path for path in ranked if path not in found]
    clusters = mutual_clusters(sorted(left), references)
    if any(len(cluster) > 1 for cluster in clusters):
        found |= _packed(clusters, tokens, target)
    else:
        found |= _by_references(left, tokens, target)
    return {path: found[path] for path in sorted(found, key=lambda path: (found[path], path))}


def mutual_clusters(paths: Sequence[str], references: References) -> list[list[str]]:
    """The connected components of mutual references: two paths are connected if each refers to the other. A path
    without a mutual reference is a cluster of its own. Clusters and their members keep the order of ``paths``."""
    place = {path: index for index, path in enumerate(paths)}
    left = set(paths)
    clusters: list[list[str]] = []
    for first in paths:
        if first not in left:
            continue
        left.remove(first)
        cluster = [first]
        for path in cluster:  # the list grows during the loop
            found = [other for other in references.get(path, ()) if other in left and path in references.get(other, ())]
            left.difference_update(found)
            cluster += found
        clusters.append(sorted(cluster, key=place.__getitem__))
    return clusters


def _packed(clusters: Sequence[list[str]], tokens: Mapping[str, int], target: int) -> dict[str, Tier]:
    """The tier of each path. The clusters are placed one by one, the largest first, each into the tier that holds the
    fewest tokens so far. Then a tier with fewer tokens than the target joins the smallest other tier that holds
    anything. L3 is checked first, L1 last."""
    sized = sorted(((sum(tokens[path] for path in cluster), cluster) for cluster in clusters), key=lambda c: -c[0])
    sizes = dict.fromkeys(_FIRST, 0)
    members: dict[Tier, list[str]] = {tier: [] for tier in _FIRST}
    for size, cluster in sized:
        tier = min(_FIRST, key=sizes.__getitem__)
        sizes[tier] += size
        members[tier] += cluster
    for tier in reversed(_FIRST):
        others = [other for other in _FIRST if other is not tier and sizes[other] > 0]
        if 0 < sizes[tier] < target and others:
            smallest = min(others, key=sizes.__getitem__)
            sizes[smallest] += sizes[tier]
            members[smallest] += members[tier]
            sizes[tier], members[tier] = 0, []
    return {path: tier for tier in _FIRST for path in members[tier]}


def _by_references(ranked: Sequence[str], tokens: Mapping[str, int], target: int) -> dict[str, Tier]:
    """The most referenced paths fill L1 up to the target, the next ones L2, and the others are L3. Without sizes or
    without a target, L1 is the first fifth of the paths, and L2 goes on to the half."""
    if target <= 0 or not any(tokens[path] for path in ranked):
        fifth, half = len(ranked) // 5, len(ranked) // 2
        return {p: Tier.L1 if i < fifth else Tier.L2 if i < half else Tier.L3 for i, p in enumerate(ranked)}
    found, tier, size = {}, Tier.L1, 0
    for path in ranked:
        if tier is not Tier.L3 and size >= target:
            tier, size = Tier(tier + 1), 0
        found[path] = tier
        size += tokens[path]
    return found


FILE, SYMBOL = "file:", "symbol:"
"""The prefixes of the items' keys: ``file:src/a.py``, ``symbol:src/a.py``."""


@dataclass(frozen=True, slots=True)
class TierItems:
    """The items of one tier in sending order. ``symbols`` and ``files`` are paths; ``history`` are indices of the
    messages between the system messages and the prompt, in rising order."""

    symbols: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    history: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TierPlacement:
    """The tiers of one request. ``tiers`` has an entry for each tier, and each item of the request stands in one of
    them. No turn stands in a more stable tier than an older one, and results stand with their calls. The tiers in
    ``unmarked`` are too small for a breakpoint of their own. ``counts`` is the number of unchanged responses (N) by
    key, for items that are tracked. ``tokens`` gives the tokens of all items of each tier."""

    tiers: Mapping[Tier, TierItems]
    unmarked: frozenset[Tier] = frozenset()
    counts: Mapping[str, int] = field(default_factory=dict)
    tokens: Mapping[Tier, int] = field(default_factory=dict)

    def tier_of(self) -> dict[str, Tier]:
        """The tier of each path's file or symbols, by key."""
        return {
            kind + path: tier
            for tier, items in self.tiers.items()
            for kind, paths in ((FILE, items.files), (SYMBOL, items.symbols))
            for path in paths
        }


# The memory of a tracked item without its key, measured with ``tracemalloc``: the item and its numbers, its digest,
# and what is kept about its text.
_ITEM_BYTES = 320
# Larger than every number that the tracker gives out, so that an item that enters a tier with this request stands last
# in it.
_NEW = 1 << 60

Blocks = dict[str, tuple[str | int, bytes]]
"""By the key of an item: a value that tells whether its text is the same as before, and the digest of its block."""

# An item that is sent: its key, its path, the value that tells whether its text is the same, and the text.
_Listed = tuple[str, str, str | int, str]
# The same with the digest of its block.
_Shown = tuple[str, str, str | int, str, bytes]


class ContextTracker(Classic):
    """The stability of one conversation's items, by the keys ``file:PATH``, ``symbol:PATH`` and ``history:INDEX``. The
    tracker holds digests, counts and paths, never a text."""

    def __init__(self, counter: TokenCounter, policy: ClassicPolicy | None = None) -> None:
        super().__init__(policy)
        self._counter = counter
        self.is_initialised = False
        """Whether the first placement of the symbols, by their references, was done."""
        # The value that tells whether a text is unchanged is the digest of the text for a file. For a symbol block it
        # is Python's own hash, which takes a tenth of a digest's time.
        self._blocks: Blocks = {}
        self._ahead: Blocks = {}

    @property
    def size_bytes(self) -> int:
        """An estimate of the memory that the tracker takes."""
        return sum(_ITEM_BYTES + 2 * len(key) for keys in (self.items, self._ahead) for key in keys)

    def placement(self, context: StructuredContext, history: Sequence[Tracked], head_tokens: int = 0) -> TierPlacement:
        """The place of each item of a request. Files and turns that are not tracked are active. Symbols that are not
        tracked stand in L3, or in active if their file was selected until now.

        ``history`` are the messages between the system messages and the prompt, in their order, by the keys
        ``history:0``, ``history:1`` and so on. ``head_tokens`` are the tokens that
        stand at the head of L0 in front of all items. The tracker does not change.
        """
        files, symbols = self._shown(_files(context)), self._shown(_symbols(context))
        sizes = dict.fromkeys(Tier, 0)
        sizes[Tier.L0] = head_tokens
        counts: dict[str, int] = {}
        placed = self._newcomers(context, symbols)
        symbol_rows = self._rows(context, symbols, placed, sizes, counts)
        file_rows = self._rows(context, files, {}, sizes, counts)
        turns = self._turns(history, sizes, counts)
        tiers = {
            tier: TierItems(_in_order(symbol_rows[tier]), _in_order(file_rows[tier]), tuple(turns[tier]))
            for tier in Tier
        }
        return TierPlacement(tiers, self.unmarked(sizes), counts, sizes)

    def settle(self, context: StructuredContext, history: Sequence[Tracked]) -> list[Change]:
        """Take into account a request that was answered and counts. Call this once for each such request.

        ``context`` and ``history`` are those that ``placement`` had. Returns the moves in the order in which they
        happened. The first placement of the symbols is not a move, and neither is an item that is first seen in active.
        """
        files, symbols = self._shown(_files(context)), self._shown(_symbols(context))
        newcomers = self._newcomers(context, symbols)
        changes = self._depart(context, files, symbols, self._same_turns(history))
        changes += self._arrive(symbols, newcomers)
        for tier in sorted(context.broken):
            self.mark_broken(tier)
        modified = {kind + path for path in context.modified for kind in (FILE, SYMBOL)}
        counted = self._counted([*files, *symbols], modified)
        listed = [*(Tracked(one[0], one[4], self._tokens(one)) for one in counted), *history]
        # The blocks' digests are kept, so that no unchanged text is read again.
        kept = {} if context.symbols else {key: one for key, one in self._blocks.items() if key.startswith(SYMBOL)}
        self._blocks = kept | {one[0]: (one[2], one[4]) for one in (*files, *symbols)}
        self._ahead = {}
        return changes + self.update(listed, self.items.keys(), modified)

    def read_ahead(self, context: StructuredContext, counter: TokenCounter) -> Blocks:
        """Read and count the blocks that are not known yet, for ``know``. Any thread may call this."""
        found: Blocks = {}
        for key, path, source, text in (*_files(context), *_symbols(context)):
            known = self._ahead.get(key) or self._blocks.get(key)
            if known is None or known[0] != source:
                block = _block(key, path, text)
                found[key] = (source, digest(utf8(block)))
                counter.count(found[key][1], block)
        return found

    def know(self, ahead: Blocks) -> None:
        """Store the blocks that were read ahead of a request. They replace the blocks that were read ahead before."""
        self._ahead = ahead

    def _shown(self, items: Iterable[_Listed]) -> list[_Shown]:
        """The items with their digests, which are computed only if a text is not known."""
        ahead, blocks = self._ahead, self._blocks
        found: list[_Shown] = []
        for key, path, source, text in items:
            known = ahead.get(key) or blocks.get(key)
            if known is None or known[0] != source:
                known = source, digest(utf8(_block(key, path, text)))
            found.append((key, path, source, text, known[1]))
        return found

    def _tokens(self, shown: _Shown) -> int:
        """Tokens of the item's block. They are counted only if the block has changed."""
        key, path, _, text, digest = shown
        item = self.items.get(key)
        if item is not None and item.digest == digest:
            return item.tokens
        known = self._counter.known(digest)
        return self._counter.count(digest, _block(key, path, text)) if known is None else known

    def _newcomers(self, context: StructuredContext, symbols: Sequence[_Shown]) -> dict[str, tuple[int, Tier]]:
        """The symbols that are not tracked, by path: each one's rank among the items that enter its tier, and the tier.
        The result is in the order in which they enter."""
        known, removed = self.items, context.removed
        new = [(rank, one) for rank, one in enumerate(symbols) if one[0] not in known or one[1] in removed]
        if self.is_initialised:
            # A block stands in active if its file was selected until now, or if the client calls it modified.
            deselected = {one[1] for _, one in new if FILE + one[1] in known} - removed
            active = deselected | context.modified
            return {one[1]: (rank, Tier.ACTIVE if one[1] in active else Tier.L3) for rank, one in new}
        sizes = {one[1]: self._tokens(one) for _, one in new if one[1] not in context.modified}
        target = self.policy.target_tokens
        first = first_tiers(sizes, context.references, target, target if self.policy.first_l0 == "referenced" else 0)
        found = {path: (rank, tier) for rank, (path, tier) in enumerate(first.items())}
        return found | {one[1]: (rank, Tier.ACTIVE) for rank, one in new if one[1] not in found}

    def _rows(
        self,
        context: StructuredContext,
        shown: Sequence[_Shown],
        placed: Mapping[str, tuple[int, Tier]],
        sizes: dict[Tier, int],
        counts: dict[str, int],
    ) -> dict[Tier, list[tuple[int, str]]]:
        """The paths by tier, each with a number that says when it entered. Adds to ``sizes`` and ``counts``."""
        # Lists by the number of the tier: an enumeration as the key would take a third of the time.
        rows: list[list[tuple[int, str]]] = [[] for _ in Tier]
        tokens = [0] * len(rows)
        items, removed, modified = self.items, context.removed, context.modified
        for index, one in enumerate(shown):
            key, path, _, _, digest = one
            item = None if path in removed else items.get(key)
            if item is not None and item.digest == digest and path not in modified:
                rows[item.tier].append((item.entered, path))
                tokens[item.tier] += item.tokens
                counts[key] = item.n
                continue
            if item is None:
                rank, tier = placed.get(path, (index, Tier.ACTIVE))
                entered = _NEW + rank
            else:
                counts[key], tier = 0, Tier.ACTIVE
                entered = item.entered if item.tier is Tier.ACTIVE else _NEW + index
            rows[tier].append((entered, path))
            tokens[tier] += self._tokens(one)
        for tier in Tier:
            sizes[tier] += tokens[tier]
        return {tier: rows[tier] for tier in Tier}

    def _turns(
        self, history: Sequence[Tracked], sizes: dict[Tier, int], counts: dict[str, int]
    ) -> dict[Tier, list[int]]:
        """The indices of the turns by tier. Adds to ``sizes`` and ``counts``."""
        same, least, start = self._same_turns(history), Tier.L0, 0
        found: dict[Tier, list[int]] = {tier: [] for tier in Tier}
        for group in groups_of(history):
            end = start + len(group)
            least = Tier.ACTIVE if end > same else max(least, *(self.tier(turn.key) for turn in group))
            found[least] += range(start, end)
            sizes[least] += sum(turn.tokens for turn in group)
            start = end
        counts |= {turn.key: self.n(turn.key) for turn in history[:same]}
        return found

    def _same_turns(self, history: Sequence[Tracked]) -> int:
        """How many of the oldest turns are tracked with the same bytes."""
        items = self.items
        same = takewhile(lambda turn: turn.key in items and items[turn.key].digest == turn.digest, history)
        return sum(1 for _ in same)

    def _depart(
        self, context: StructuredContext, files: Sequence[_Shown], symbols: Sequence[_Shown], turns: int
    ) -> list[Change]:
        """Forget the items that no longer exist or are no longer sent, and all turns except the oldest ``turns``. The
        tiers that they leave are broken."""
        gone = [(kind + path, "removed") for path in sorted(context.removed) for kind in (FILE, SYMBOL)]
        shown = {one[0] for one in (*files, *symbols)}
        selected = {file.path for file in context.files if file.is_selected}
        missing = [key for key in self.items.keys() - shown if not key.startswith(HISTORY)]
        for key in sorted(missing, key=self.entered):
            is_file, is_selected = key.startswith(FILE), key.partition(":")[2] in selected
            # A selected file that cannot be read is not sent, and its item stays tracked in its tier.
            if is_file and not is_selected:
                gone.append((key, "deselected"))
            elif not is_file and (is_selected or context.symbols):
                gone.append((key, "selected" if is_selected else "no longer listed"))
        changes = [change for key, reason in gone if (change := self.remove(key, reason)) is not None]
        return changes + (self.purge_history(turns) if f"{HISTORY}{turns}" in self.items else [])

    def _arrive(self, symbols: Sequence[_Shown], newcomers: Mapping[str, tuple[int, Tier]]) -> list[Change]:
        """Track the symbols that stand in a cached tier when they are first seen."""
        changes: list[Change] = []
        shown = {one[1]: one for one in symbols} if newcomers else {}
        for path, (_, tier) in newcomers.items():
            one = shown[path]
            if tier is not Tier.ACTIVE and self.is_initialised:
                changes.append(self.place(Tracked(one[0], one[4], self._tokens(one)), tier))
            elif tier is not Tier.ACTIVE:
                self.seed(Tracked(one[0], b"", self._tokens(one)), tier)
        self.is_initialised = self.is_initialised or bool(symbols)
        return changes

    def _counted(self, shown: Sequence[_Shown], modified: Collection[str]) -> Sequence[_Shown]:
        """The items that are given to the state machine. If active items graduate by leaving this list, an active item
        whose count has reached the entry of L3 is left out."""
        if self.policy.graduation == "count":
            return shown
        least = ENTRY_N[Tier.L3]
        due = {key: item.digest for key, item in self.items.items() if item.tier is Tier.ACTIVE and item.n >= least}
        return [one for one in shown if one[0] in modified or due.get(one[0]) != one[4]]


def _block(key: str, path: str, text: str) -> str:
    """The text of an item as it is sent."""
    return file_block(path, text) if key.startswith(FILE) else text


def _files(context: StructuredContext) -> Iterator[_Listed]:
    return ((FILE + file.path, file.path, file.digest, file.text or "") for file in context.selected())


def _symbols(context: StructuredContext) -> Iterator[_Listed]:
    blocks = ((path, context.symbols[path]) for path in context.mapped())
    return ((SYMBOL + path, path, hash(block), block) for path, block in blocks)


def _in_order(rows: list[tuple[int, str]]) -> tuple[str, ...]:
    rows.sort()
    return tuple(path for _, path in rows)

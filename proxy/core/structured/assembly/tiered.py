"""The tiered assembly: stable items stand in front, and each of the tiers L0 to L3 ends at a marker.

L0 is the system message: the client's system prompt, the legend and the map of the repository, symbols and files. L1 to
L3 are each a user message of symbols and files, and its acknowledgement. The history of a tier follows as it came. A
tier's marker stands on its last message that may carry one. Assistant messages, which include the acknowledgements, may
not carry a marker, and neither may a system message within the history. If no message of a tier may carry one, the
marker stands in front of the tier. The client's own markers are removed, so that there are never more than the four
markers of the tiers.
"""

from collections.abc import Iterator, Mapping, Sequence

from proxy.core.layout.tiers import Tier
from proxy.core.providers import Dialect
from proxy.core.structured.assembly.sections import (
    FILE_JOINT,
    SYMBOL_JOINT,
    AssemblyTexts,
    active_blocks,
    file_items,
    map_sections,
    not_shown,
    one_text,
    pair_block,
    prompt_block,
    raw_block,
    section,
    symbol_items,
    system_messages,
    turns_section,
    without_last_answer,
)
from proxy.core.structured.blocks.blocks import Assembly, Block, Kind, Section, Skipped
from proxy.core.structured.context import ContextFile, StructuredContext
from proxy.core.structured.messages import Conversation, marked, pair
from proxy.core.structured.panels.inlay import NO_INLAY, Inlay
from proxy.core.structured.placement.placement import Placement, TierItems
from proxy.core.value import dataclass, replace

_CACHED = (Tier.L0, Tier.L1, Tier.L2, Tier.L3)
MOST_MARKS = len(_CACHED)


def tiered_assembly(
    context: StructuredContext,
    conversation: Conversation,
    placement: Placement,
    texts: AssemblyTexts,
    dialect: Dialect = Dialect.CACHE_CONTROL,
    *,
    slots: int = MOST_MARKS,
    inlay: Inlay = NO_INLAY,
) -> Assembly:
    """The request in tiers, with markers as the ``dialect`` writes them.

    ``slots`` is how many markers the messages may have: the number that the provider accepts, minus
    ``marks_beside_messages``. If that is less than four, the most stable tiers get no marker, because their ends are
    needed least. The blocks of the ``inlay`` stand in the part without markers: in front of its history, or directly in
    front of the prompt.
    """
    skipped, places = Skipped(not_shown(context)), placement.tiers
    own = conversation.bare()
    source = _Source(context, own, texts, {file.path: file for file in context.selected()})
    cached = [source.first(places[Tier.L0]), *(source.further(tier, places[tier]) for tier in _CACHED[1:])]
    blocks = [*(block for block in cached if block.messages), *source.active(places[Tier.ACTIVE], inlay, skipped)]
    is_marked = [block.tier for block in blocks if block.tier in _CACHED and block.tier not in placement.unmarked]
    ends = frozenset(is_marked[max(0, len(is_marked) - slots) :])
    return Assembly(
        blocks=without_last_answer(tuple(_with_marks(blocks, ends, dialect))),
        empty_tiers=sum(1 for block in cached if not block.messages),
        skipped=dict(skipped),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """The inputs from which blocks are made."""

    context: StructuredContext
    own: Conversation
    texts: AssemblyTexts
    files: Mapping[str, ContextFile]

    def first(self, items: TierItems) -> Block:
        """L0: the system messages with the map and the files, and the history of this tier."""
        symbols = symbol_items(items.symbols, self.context.symbols)
        files = file_items(self.files[path] for path in items.files)
        added = map_sections(self.context.legend, symbols, files, self.texts)
        messages, written = system_messages(self.own.system, added)
        system = turns_section(Kind.SYSTEM, self.own.system, range(len(self.own.system)))
        return self._tier(Tier.L0, (system, *written), messages, items)

    def further(self, tier: Tier, items: TierItems) -> Block:
        """L1 to L3: a message of symbols and files with its acknowledgement, if there are any, and the history of the
        tier."""
        symbols = symbol_items(items.symbols, self.context.symbols)
        files = file_items(self.files[path] for path in items.files)
        more = section(Kind.SYMBOLS, self.texts.repository_map_continued, symbols, SYMBOL_JOINT)
        sections = one_text((more, section(Kind.FILES, self.texts.files[tier], files, FILE_JOINT)))
        if not sections:
            return self._tier(tier, (), (), items)
        text = "".join([one.text for one in sections])
        answered = replace(sections[-1], ok=self.texts.ok)
        return self._tier(tier, (*sections[:-1], answered), pair(text, self.texts.ok), items)

    def _tier(
        self, tier: Tier, sections: Sequence[Section | None], messages: Sequence[bytes], items: TierItems
    ) -> Block:
        history = turns_section(Kind.HISTORY, self.own.history, items.history)
        raws = () if history is None else tuple(item.raw for item in history.items)
        shown = tuple(one for one in (*sections, history) if one is not None)
        return Block(tier, tier.name, shown, (*messages, *raws))

    def active(self, items: TierItems, inlay: Inlay, skipped: Skipped) -> Iterator[Block]:
        """The part without markers. Symbols that have just changed stand in front of it, because they belong to no
        tier."""
        symbols = symbol_items(items.symbols, self.context.symbols)
        more = section(Kind.SYMBOLS, self.texts.repository_map_continued, symbols, SYMBOL_JOINT, self.texts.ok)
        if more is not None:
            yield pair_block(Tier.ACTIVE, "symbols", more)
        files = file_items(self.files[path] for path in items.files)
        yield from active_blocks(self.context, files, self.texts, skipped)
        yield from inlay.front
        yield from raw_block("history", turns_section(Kind.HISTORY, self.own.history, items.history))
        yield from inlay.within.get(len(self.own.history), ())
        yield from prompt_block(self.own.prompt, self.context.images, skipped)


def _with_marks(blocks: Sequence[Block], ends: frozenset[Tier], dialect: Dialect) -> Iterator[Block]:
    """The blocks with a marker at the end of each of these tiers. It stands on the last message since the previous
    marker that may carry one."""
    messages = [list(block.messages) for block in blocks]
    found: list[list[int]] = [[] for _ in blocks]
    behind: list[tuple[int, int]] = []
    for number, block in enumerate(blocks):
        behind += ((number, index) for index in range(len(block.messages)))
        if block.tier not in ends:
            continue
        for at, index in reversed(behind):
            is_head = blocks[at].tier is Tier.L0 and index < _own_messages(blocks[at])
            written = marked(messages[at][index], dialect, is_head=is_head)
            if written is not None:
                messages[at][index] = written
                found[at].append(index)
                break
        behind.clear()
    for block, lines, marks in zip(blocks, messages, found, strict=True):
        yield replace(block, messages=tuple(lines), marks=tuple(marks)) if marks else block


def _own_messages(block: Block) -> int:
    """How many messages of a tier stand in front of its history."""
    turns = sum(len(one.items) for one in block.sections if one.kind is Kind.HISTORY)
    return len(block.messages) - turns

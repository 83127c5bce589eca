"""The assembly without tiers: the client's own order, and no markers of the proxy.

It has two forms. The economic form has the symbol map in chunks, one message each. The planner then handles it like any
other client's request: it moves files and chunks to where they cost least, and places the breakpoints. The flat form
has all symbols in the system message, and stays as it is. A client may ask for it, and it is sent if the tiers fail
with an error of the proxy's own. It uses no state, and every valid request can be assembled in this form. The client's
own markers stay where they are.
"""

from collections.abc import Iterator, Mapping, Sequence

from proxy.core.layout.tiers import Tier
from proxy.core.structured.assembly.sections import (
    SYMBOL_JOINT,
    AssemblyTexts,
    active_blocks,
    conversation_blocks,
    file_items,
    map_sections,
    not_shown,
    pair_block,
    section,
    symbol_items,
    system_messages,
    turns_section,
    without_last_answer,
)
from proxy.core.structured.blocks.blocks import Assembly, Block, Kind, Skipped
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.messages import Conversation, Turn
from proxy.core.structured.panels.inlay import Inlay
from proxy.core.structured.placement.placement import Placement
from proxy.core.value import replace

Chunks = Sequence[Sequence[str]]
"""The paths of each chunk of the symbol map, in sending order."""


def front_of(
    context: StructuredContext, system: Sequence[Turn], texts: AssemblyTexts, chunks: Chunks | None = None
) -> Assembly:
    """Everything in front of a conversation: system prompt, legend and symbols; the list of files, pages, review and
    files. With ``chunks``, each chunk is a message behind the legend. Without them, the symbols stand in the system
    message."""
    skipped = Skipped(not_shown(context))
    symbols = symbol_items(context.mapped(), context.symbols) if chunks is None else ()
    own = turns_section(Kind.SYSTEM, system, range(len(system)))
    messages, added = system_messages(system, map_sections(context.legend, symbols, (), texts))
    sections = (*(() if own is None else (own,)), *added)
    tier = Tier.ACTIVE if chunks is None else Tier.L0
    blocks = [
        *([Block(tier, "system", sections, messages)] if messages else []),
        *_map_blocks(context, chunks or (), texts),
        *active_blocks(context, file_items(context.selected()), texts, skipped),
    ]
    return Assembly(tuple(blocks), skipped=skipped)


def _map_blocks(context: StructuredContext, chunks: Chunks, texts: AssemblyTexts) -> Iterator[Block]:
    for number, paths in enumerate(chunks):
        header = texts.repository_map_continued if number or context.legend else texts.repository_map
        one = section(Kind.SYMBOLS, header, symbol_items(paths, context.symbols), SYMBOL_JOINT, texts.ok)
        if one is not None:
            yield pair_block(Tier.ACTIVE, "symbols", one)


def untiered_assembly(front: Assembly, conversation: Conversation, inlay: Inlay, images: Sequence[str]) -> Assembly:
    """The front, and behind it history and prompt with the blocks that the ``inlay`` puts into them."""
    skipped = Skipped(front.skipped)
    blocks = [*front.blocks, *conversation_blocks(conversation, inlay, images, skipped)]
    return Assembly(without_last_answer(blocks), skipped=dict(skipped))


def in_tiers(assembly: Assembly, placement: Placement) -> Assembly:
    """The same blocks, each in the tier of its least stable item by the ``placement``. This is only for people to see:
    here the tiers do not order the blocks."""
    tiers = placement.tier_of()
    return replace(assembly, blocks=tuple(_seen(block, tiers) for block in assembly.blocks))


def _seen(block: Block, tiers: Mapping[str, Tier]) -> Block:
    keys = [item.key for one in block.sections for item in one.items]
    if not any(key in tiers for key in keys):
        return block
    return replace(block, tier=max(tiers.get(key, Tier.ACTIVE) for key in keys))

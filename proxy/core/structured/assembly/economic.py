"""The assembly of policy ``economic``: context messages in the flat order, with the symbol map in chunks.

The planner takes it from there as it does with any other client's request: it recognises the messages, moves files and
chunks of the map to where they cost least, and places the breakpoints. Nothing is marked here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from proxy.core.layout.tiers import Tier
from proxy.core.structured.assembly.head import map_sections, system_messages, system_section
from proxy.core.structured.assembly.sections import SYMBOL_JOINT, file_items, section, symbol_items
from proxy.core.structured.assembly.tail import active_blocks, conversation_blocks, pair_block, without_last_answer
from proxy.core.structured.assembly.texts import AssemblyTexts
from proxy.core.structured.blocks.blocks import Assembly, Block, Kind, Skipped
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.messages.conversation import Conversation
from proxy.core.structured.panels.inlay import NO_INLAY, Inlay
from proxy.core.structured.placement.placement import Placement
from proxy.core.structured.placement.standing import not_shown


def economic_assembly(
    context: StructuredContext,
    conversation: Conversation,
    chunks: Sequence[Sequence[str]],
    texts: AssemblyTexts,
    inlay: Inlay = NO_INLAY,
) -> Assembly:
    """System prompt and legend; each of the ``chunks`` of the map (paths in sending order) as a message of its own; the
    list of files, pages, review and files; history and prompt with what the ``inlay`` puts into them."""
    skipped = Skipped(not_shown(context))
    legend = map_sections(context.legend, (), (), texts)
    own = system_section(conversation.system)
    head, added = system_messages(conversation.system, legend)
    sections = (*(() if own is None else (own,)), *added)
    blocks = [
        *([Block(Tier.L0, "system", sections, head)] if head else []),
        *_map_blocks(context, chunks, texts),
        *active_blocks(context, file_items(context.selected()), texts, skipped),
        *conversation_blocks(conversation, inlay, context.images, skipped),
    ]
    return Assembly(without_last_answer(blocks), skipped=dict(skipped))


def _map_blocks(context: StructuredContext, chunks: Sequence[Sequence[str]], texts: AssemblyTexts) -> Iterator[Block]:
    for number, paths in enumerate(chunks):
        header = texts.repository_map_continued if number or context.legend else texts.repository_map
        one = section(Kind.SYMBOLS, header, symbol_items(paths, context.symbols), SYMBOL_JOINT, texts.ok)
        if one is not None:
            yield pair_block(Tier.ACTIVE, "symbols", one)


def in_tiers(assembly: Assembly, placement: Placement) -> Assembly:
    """The same blocks, each in the tier of its least stable item by the ``placement``, for people to see: here tiers
    order nothing."""
    tiers = placement.tier_of()
    return replace(assembly, blocks=tuple(_seen(block, tiers) for block in assembly.blocks))


def _seen(block: Block, tiers: Mapping[str, Tier]) -> Block:
    keys = [item.key for one in block.sections for item in one.items]
    if not any(key in tiers for key in keys):
        return block
    return replace(block, tier=max(tiers.get(key, Tier.ACTIVE) for key in keys))

"""The flat assembly: the same context without tiers and without markers of ours.

It is what is sent where a client asks for it, and where the tiers meet an error of the proxy's own. It knows no state,
and every request that has the form of one can be assembled. The client's own markers stay where they are.
"""

from proxy.core.layout.tiers import Tier
from proxy.core.structured.assembly.head import map_sections, system_messages, system_section
from proxy.core.structured.assembly.sections import file_items, symbol_items
from proxy.core.structured.assembly.tail import active_blocks, conversation_blocks, without_last_answer
from proxy.core.structured.assembly.texts import AssemblyTexts
from proxy.core.structured.blocks.blocks import Assembly, Block, Skipped
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.messages.conversation import Conversation
from proxy.core.structured.panels.inlay import NO_INLAY, Inlay
from proxy.core.structured.placement.standing import not_shown


def flat_assembly(
    context: StructuredContext, conversation: Conversation, texts: AssemblyTexts, inlay: Inlay = NO_INLAY
) -> Assembly:
    """System prompt, legend and symbols; the list of files, pages, review and files; history and prompt with what the
    ``inlay`` puts into them."""
    skipped = Skipped(not_shown(context))
    added = map_sections(context.legend, symbol_items(context.mapped(), context.symbols), (), texts)
    own = system_section(conversation.system)
    messages, written = system_messages(conversation.system, added)
    sections = (*(() if own is None else (own,)), *written)
    blocks = [
        *([Block(Tier.ACTIVE, "system", sections, messages)] if messages else []),
        *active_blocks(context, file_items(context.selected()), texts, skipped),
        *conversation_blocks(conversation, inlay, context.images, skipped),
    ]
    return Assembly(without_last_answer(blocks), skipped=dict(skipped))

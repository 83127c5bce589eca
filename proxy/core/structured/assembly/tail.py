"""The active part of an assembly, which no breakpoint covers: the list of files, fetched pages, what is under review,
the working files, the rest of the history, and the prompt with its images."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from proxy.core.layout.tiers import Tier
from proxy.core.structured.assembly.sections import (
    FILE_JOINT,
    pages_section,
    review_section,
    section,
    tree_section,
    turns_section,
)
from proxy.core.structured.assembly.texts import AssemblyTexts
from proxy.core.structured.blocks.blocks import Block, Item, Kind, Section, Skip, Skipped
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.messages.conversation import Conversation
from proxy.core.structured.messages.turn import Turn
from proxy.core.structured.messages.written import pair
from proxy.core.structured.panels.inlay import Inlay
from proxy.core.wire.json_body import Unreadable, elements, join_members, members_of
from proxy.core.wire.surrogates import text_json


def active_blocks(
    context: StructuredContext, files: Sequence[Item], texts: AssemblyTexts, skipped: Skipped
) -> Iterator[Block]:
    """The list of files, the pages, the review and the working files: a message each, and its acknowledgement."""
    named = (
        ("tree", tree_section(context.tree, texts)),
        ("urls", pages_section(context.pages, texts, skipped)),
        ("review", review_section(context, texts)),
        ("files", section(Kind.FILES, texts.working_files, files, FILE_JOINT, texts.ok)),
    )
    for name, one in named:
        if one is not None:
            yield pair_block(Tier.ACTIVE, name, one)


def pair_block(tier: Tier, name: str, one: Section) -> Block:
    """A section as a message of its own, and its acknowledgement."""
    return Block(tier, name, (one,), pair(one.text, one.ok))


def raw_block(name: str, one: Section | None) -> Iterator[Block]:
    """Active messages of the client's, one after another; nothing where there are none."""
    if one is not None:
        yield Block(Tier.ACTIVE, name, (one,), tuple(item.raw for item in one.items))


def conversation_blocks(
    conversation: Conversation, inlay: Inlay, images: Sequence[str], skipped: Skipped
) -> Iterator[Block]:
    """History and prompt with what the ``inlay`` puts in front of them and into them."""
    history, prompt = conversation.history, conversation.prompt
    yield from inlay.front
    starts = sorted({0, len(history), *inlay.within})
    for start, end in pairwise([*starts, len(history) + len(prompt)]):
        yield from inlay.within.get(start, ())
        if start < len(history):
            yield from raw_block("history", turns_section(Kind.HISTORY, history, range(start, end)))
        elif start == len(history):
            yield from prompt_block(prompt[: end - start], images, skipped)
        else:
            yield from raw_block(
                "prompt", turns_section(Kind.PROMPT, prompt, range(start - len(history), end - len(history)))
            )


def prompt_block(turns: Sequence[Turn], images: Sequence[str], skipped: Skipped) -> Iterator[Block]:
    """The last user message with the images behind its own content, and all that follows it."""
    prompt = turns_section(Kind.PROMPT, turns, range(len(turns)))
    shown = _with_images(turns[0].raw, images) if images and turns and turns[0].role == "user" else None
    if prompt is None or shown is None:
        skipped.update({Skip.NO_PROMPT: len(images)} if images else {})
        yield from raw_block("prompt", prompt)
        return
    items = tuple(Item(Kind.IMAGES, f"image:{i}", url) for i, url in enumerate(images))
    behind = tuple(turn.raw for turn in turns[1:])
    yield Block(Tier.ACTIVE, "prompt", (prompt, Section(Kind.IMAGES, items)), (shown, *behind))


def _with_images(raw: bytes, images: Sequence[str]) -> bytes | None:
    """The message with images behind its content; None where the content is of no form that has parts."""
    try:
        members = members_of(raw)
        content = bytes(members.get("content", b"null"))
        if content.startswith(b'"'):
            own = [b'{"type":"text","text":' + content + b"}"] if content != b'""' else []
        elif content.startswith(b"["):
            own = [bytes(part) for part in elements(content)]
        elif content == b"null":
            own = []
        else:
            return None
    except Unreadable:
        return None
    added = (b'{"type":"image_url","image_url":{"url":' + text_json(url) + b"}}" for url in images)
    return join_members(members, {"content": b"[" + b",".join((*own, *added)) + b"]"})


def without_last_answer(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks such that the assistant's acknowledgement is not the last message: a model would go on with it. This
    is so only where a client sends neither a history nor a prompt."""
    if not blocks or not blocks[-1].sections[-1].ok:
        return tuple(blocks)
    last = blocks[-1]
    sections = (*last.sections[:-1], replace(last.sections[-1], ok=""))
    return (*blocks[:-1], replace(last, sections=sections, messages=last.messages[:-1]))

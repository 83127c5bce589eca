"""The making of messages from a context whose items have their places. Nothing here decides where an item stands.

The file begins with the sections of an assembly: each is a header and the items below it, and is left out if it has no
items. The words are read from ``prompts`` at the rim. The head is the client's system messages, with the map of the
repository and the stable files behind them. The active part, which no breakpoint covers, is the list of files, pages,
review, working files, the rest of the history, and the prompt.

Then comes the tiered assembly: stable items stand in front, and each of the tiers L0 to L3 ends at a marker. L0 is the
system message: the client's system prompt, the legend and the map of the repository, symbols and files. L1 to L3 are
each a user message of symbols and files, and its acknowledgement. The history of a tier follows as it came. A tier's
marker stands on its last message that may carry one. Assistant messages, which include the acknowledgements, may not
carry a marker, and neither may a system message within the history. If no message of a tier may carry one, the marker
stands in front of the tier. The client's own markers are removed, so that there are never more than the four markers of
the tiers.

At the end stands the assembly without tiers: the client's own order, and no markers of the proxy. It has two forms. The
economic form has the symbol map in chunks, one message each. The planner then handles it like any other client's
request: it moves files and chunks to where they cost least, and places the breakpoints. The flat form has all symbols
in the system message, and stays as it is. A client may ask for it, and it is sent if the tiers fail with an error of
the proxy's own. It uses no state, and every valid request can be assembled in this form. The client's own markers stay
where they are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from proxy.context import (
    ContextFile,
    Conversation,
    FetchedPage,
    StructuredContext,
    Turn,
    marked,
    pair,
)
from proxy.context.blocks import Assembly, Block, ContextItem, ContextSection, ItemKind, Skip, Skipped, file_block
from proxy.context.history.compaction import CompactionTexts
from proxy.context.panels import PanelTexts
from proxy.context.panels.board import NO_INLAY, Inlay
from proxy.context.placement import FILE, SYMBOL, TierPlacement
from proxy.kit.value import dataclass, replace
from proxy.planner.tiers import Tier
from proxy.protocol.providers import Dialect
from proxy.protocol.request.message import message_json
from proxy.protocol.wire.json_body import Unreadable, elements, join_members, members_of, text_json


@dataclass(frozen=True, slots=True)
class AssemblyTexts:
    """The words of an assembly. Headers end with a blank line; ``ok``, ``urls_ok`` and ``review_ok`` are the
    assistant's answers to the messages.

    The words are those of the tiered assembly, byte for byte. ``{count}`` in ``file_count`` is the number of files.
    """

    repository_map: str
    repository_map_continued: str
    reference_l0: str
    reference_l1: str
    reference_l2: str
    reference_l3: str
    file_tree: str
    file_count: str
    urls: str
    review: str
    review_summary: str
    review_log: str
    review_symbols: str
    review_diffs: str
    working_files: str
    ok: str
    urls_ok: str
    review_ok: str


@dataclass(frozen=True, slots=True)
class ContextTexts:
    """All words that an assembly adds: those of the tiers, of live panels, and of compactions."""

    tiered: AssemblyTexts
    panels: PanelTexts
    compaction: CompactionTexts


SYMBOL_JOINT = "\n"
FILE_JOINT = "\n\n"
PAGE_JOINT = "\n---\n"
PART_JOINT = "\n\n"
"""The separator between the system prompt, the map and the files, if they share a message."""


def symbol_items(paths: Iterable[str], symbols: Mapping[str, str]) -> tuple[ContextItem, ...]:
    """The symbol blocks of these paths."""
    return tuple([ContextItem(ItemKind.SYMBOLS, SYMBOL + path, symbols[path]) for path in paths])


def file_items(files: Iterable[ContextFile]) -> tuple[ContextItem, ...]:
    """The files as they are sent. Their texts must be known."""
    return tuple(
        [ContextItem(ItemKind.FILES, FILE + file.path, file_block(file.path, file.text or "")) for file in files]
    )


def section(
    kind: ItemKind, header: str, items: Sequence[ContextItem], joint: str = "", ok: str = ""
) -> ContextSection | None:
    """A header and the items below it. None without items, because a header never stands alone."""
    return ContextSection(kind, tuple(items), header, joint, ok) if items else None


def turns_section(kind: ItemKind, turns: Sequence[Turn], indices: Iterable[int]) -> ContextSection | None:
    """The client's messages as they came, named by their kind and their indices."""
    return section(kind, "", [ContextItem(kind, f"{kind}:{index}", raw=turns[index].raw) for index in indices])


def one_text(sections: Iterable[ContextSection | None]) -> tuple[ContextSection, ...]:
    """The sections that are not None, with separators so that their texts can be joined to one text."""
    shown = [one for one in sections if one is not None]
    return tuple(replace(one, lead=PART_JOINT) if index else one for index, one in enumerate(shown))


def tree_section(tree: Iterable[str] | None, texts: AssemblyTexts) -> ContextSection | None:
    """The list of all files: flat, sorted, one path per line, below the number of files."""
    paths = sorted(set(tree or ()))
    if not paths:
        return None
    count = texts.file_count.replace("{count}", str(len(paths)))
    return section(
        ItemKind.TREE, texts.file_tree, [ContextItem(ItemKind.TREE, "tree", count + "\n".join(paths))], ok=texts.ok
    )


def pages_section(pages: Iterable[FetchedPage], texts: AssemblyTexts) -> ContextSection | None:
    """The fetched pages that have any content, with a line of dashes between two of them."""
    items = [ContextItem(ItemKind.URLS, f"url:{page.url}", page_text(page)) for page in pages if not page.is_empty]
    return section(ItemKind.URLS, texts.urls, items, PAGE_JOINT, texts.urls_ok)


def page_text(page: FetchedPage) -> str:
    """A page: its title and its URL on a line each, its content, and its symbols if it has any."""
    lead = f"{page.title}\n{page.url}" if page.title else page.url
    return "\n\n".join(part for part in (lead, page.content, page.symbols) if part)


def review_section(context: StructuredContext, texts: AssemblyTexts) -> ContextSection | None:
    """The review: summary, log, symbols, and the diffs of the selected files only, under their headers. Parts that the
    review does not have are left out."""
    review = context.review
    if review is None:
        return None
    commits = "\n".join(("Commits:", *(f"- {commit}" for commit in review.commits))) if review.commits else ""
    branch = f"Branch: {review.branch}" if review.branch else ""
    selected = [file.path for file in context.files if file.is_selected]
    diffs = [file_block(path, diff) for path in selected if (diff := (review.reverse_diffs or {}).get(path))]
    parts = (
        (texts.review_summary, "\n".join(part for part in (branch, commits, review.stats) if part)),
        (texts.review_log, review.log or ""),
        (texts.review_symbols, review.pre_change_symbols or ""),
        (texts.review_diffs, FILE_JOINT.join(diffs)),
    )
    text = PART_JOINT.join(header + part for header, part in parts if part)
    return section(
        ItemKind.REVIEW,
        texts.review,
        [ContextItem(ItemKind.REVIEW, "review", text)] if text else [],
        ok=texts.review_ok,
    )


def map_sections(
    legend: str, symbols: Sequence[ContextItem], files: Sequence[ContextItem], texts: AssemblyTexts
) -> tuple[ContextSection, ...]:
    """The sections behind the client's words in the system message: the legend, the symbols, and the stable files."""
    header = texts.repository_map
    legends = section(ItemKind.LEGEND, header, [ContextItem(ItemKind.LEGEND, "legend", legend)] if legend else [])
    symbol_map = section(ItemKind.SYMBOLS, "" if legends else header, symbols, SYMBOL_JOINT)
    return one_text((legends, symbol_map, section(ItemKind.FILES, texts.reference_l0, files, FILE_JOINT)))


def not_shown(context: StructuredContext) -> Skipped:
    """How many selected files cannot be read, how many files have no symbols although their symbols would be shown, and
    how many pages are empty."""
    selected = {file.path for file in context.files if file.is_selected}
    unreadable = sum(1 for file in context.files if file.is_selected and file.text is None)
    bare = sum(1 for path, block in context.symbols.items() if not block and path not in selected)
    empty = sum(1 for page in context.pages if page.is_empty)
    return +Skipped({Skip.UNREADABLE: unreadable, Skip.NO_SYMBOLS: bare, Skip.EMPTY_PAGE: empty})


def head(
    turns: Sequence[Turn], added: Sequence[ContextSection]
) -> tuple[tuple[bytes, ...], tuple[ContextSection, ...]]:
    """The system messages with the added sections, and all sections of these messages as they are written."""
    messages, written = system_messages(turns, added)
    own = turns_section(ItemKind.SYSTEM, turns, range(len(turns)))
    return messages, written if own is None else (own, *written)


def system_messages(
    turns: Sequence[Turn], sections: Sequence[ContextSection]
) -> tuple[tuple[bytes, ...], tuple[ContextSection, ...]]:
    """The system messages with the added sections, and the sections as they are written. The addition stands at the end
    of the last message, after a blank line. It becomes a message of its own if there is no system message, or if the
    last one's content is neither a text nor a list."""
    raws, own = tuple(turn.raw for turn in turns), tuple(sections)
    if not own:
        return raws, own
    added = "".join([one.text for one in own])
    content = _content(raws[-1]) if raws else b""
    if not content.startswith((b'"', b"[")):
        return (*raws, message_json("system", added)), own
    lead = "" if content == b'""' else PART_JOINT
    text = text_json(lead + added)
    if content.startswith(b'"'):
        whole = content[:-1] + text[1:]
    else:
        parts = (*map(bytes, elements(content)), b'{"type":"text","text":' + text + b"}")
        whole = b"[" + b",".join(parts) + b"]"
    last = join_members(members_of(raws[-1]), {"content": whole})
    return (*raws[:-1], last), (replace(own[0], lead=lead), *own[1:])


def _content(raw: bytes) -> bytes:
    """The content of a message as JSON; empty if it cannot be read."""
    try:
        content = bytes(members_of(raw).get("content", b""))
        if content.startswith(b"["):
            elements(content)
        return content
    except Unreadable:
        return b""


def active_blocks(context: StructuredContext, files: Sequence[ContextItem], texts: AssemblyTexts) -> Iterator[Block]:
    """The list of files, the pages, the review and the working files. Each is one message with its acknowledgement."""
    yield from pair_block("tree", tree_section(context.tree, texts))
    yield from pair_block("urls", pages_section(context.pages, texts))
    yield from pair_block("review", review_section(context, texts))
    yield from pair_block("files", section(ItemKind.FILES, texts.working_files, files, FILE_JOINT, texts.ok))


def pair_block(name: str, one: ContextSection | None) -> Iterator[Block]:
    """A section of the active part as a message of its own, with its acknowledgement; nothing without a section."""
    if one is not None:
        yield Block(Tier.ACTIVE, name, (one,), pair(one.text, one.ok))


def raw_block(name: str, one: ContextSection | None) -> Iterator[Block]:
    """A block of consecutive active messages of the client; nothing if there are none."""
    if one is not None:
        yield Block(Tier.ACTIVE, name, (one,), tuple(item.raw for item in one.items))


def conversation_blocks(
    conversation: Conversation, inlay: Inlay, images: Sequence[str], skipped: Skipped, first: int = 0
) -> Iterator[Block]:
    """The history from its message ``first`` on and the prompt, with the blocks that the ``inlay`` puts in front of
    them and into them."""
    history, prompt = conversation.history, conversation.prompt
    yield from inlay.front
    starts = sorted({first, len(history), *(at for at in inlay.within if at > first)})
    for start, end in pairwise([*starts, len(history) + len(prompt)]):
        yield from inlay.within.get(start, ())
        if start < len(history):
            yield from raw_block("history", turns_section(ItemKind.HISTORY, history, range(start, end)))
        elif start == len(history):
            yield from prompt_block(prompt[: end - start], images, skipped)
        else:
            yield from raw_block(
                "prompt", turns_section(ItemKind.PROMPT, prompt, range(start - len(history), end - len(history)))
            )


def prompt_block(turns: Sequence[Turn], images: Sequence[str], skipped: Skipped) -> Iterator[Block]:
    """The last user message with the images behind its own content, and everything that follows it."""
    prompt = turns_section(ItemKind.PROMPT, turns, range(len(turns)))
    shown = _with_images(turns[0].raw, images) if images and turns and turns[0].role == "user" else None
    if prompt is None or shown is None:
        skipped.update({Skip.NO_PROMPT: len(images)} if images else {})
        yield from raw_block("prompt", prompt)
        return
    items = tuple(ContextItem(ItemKind.IMAGES, f"image:{i}", url) for i, url in enumerate(images))
    behind = tuple(turn.raw for turn in turns[1:])
    yield Block(Tier.ACTIVE, "prompt", (prompt, ContextSection(ItemKind.IMAGES, items)), (shown, *behind))


def _with_images(raw: bytes, images: Sequence[str]) -> bytes | None:
    """The message with images behind its content; None if the content has a form that cannot have parts."""
    try:
        members = members_of(raw)
        content = bytes(members.get("content", b"null"))
        own = [bytes(part) for part in elements(content)] if content.startswith(b"[") else []
    except Unreadable:
        return None
    if content.startswith(b'"') and content != b'""':
        own = [b'{"type":"text","text":' + content + b"}"]
    elif not content.startswith((b'"', b"[", b"null")):
        return None
    added = (b'{"type":"image_url","image_url":{"url":' + text_json(url) + b"}}" for url in images)
    return join_members(members, {"content": b"[" + b",".join((*own, *added)) + b"]"})


def without_last_answer(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks without the assistant's acknowledgement as the last message, because a model would continue it. This
    changes something only if a client sends neither a history nor a prompt."""
    if not blocks or not blocks[-1].sections[-1].ok:
        return tuple(blocks)
    *others, last = blocks
    sections = (*last.sections[:-1], replace(last.sections[-1], ok=""))
    return (*others, replace(last, sections=sections, messages=last.messages[:-1]))


_CACHED = (Tier.L0, Tier.L1, Tier.L2, Tier.L3)
MOST_MARKS = len(_CACHED)


def tiered_assembly(
    context: StructuredContext,
    conversation: Conversation,
    placement: TierPlacement,
    texts: AssemblyTexts,
    dialect: Dialect = Dialect.CACHE_CONTROL,
    *,
    slots: int = MOST_MARKS,
    inlay: Inlay = NO_INLAY,
) -> Assembly:
    """The request in tiers, with markers as the ``dialect`` writes them.

    ``slots`` is how many markers the messages may have: the number that the provider accepts, minus
    ``marks_beside_messages``. If that is less than four, the most stable tiers get no marker, because their ends are
    needed least. The blocks of the ``inlay`` stand in the part without markers: in front of its history, and into it.
    """
    skipped, own = not_shown(context), conversation.bare()
    files = {file.path: item for file, item in zip(context.selected(), file_items(context.selected()), strict=True)}
    shown = {
        tier: (
            symbol_items(items.symbols, context.symbols),
            [files[path] for path in items.files],
            turns_section(ItemKind.HISTORY, own.history, items.history),
        )
        for tier, items in placement.tiers.items()
    }
    cached = [_cached_tier(tier, *shown[tier], context.legend, own.system, texts) for tier in _CACHED]
    symbols, working, _ = shown[Tier.ACTIVE]
    first = len(own.history) - len(placement.tiers[Tier.ACTIVE].history)
    # Symbols that have just changed stand in front of the part without markers, because they belong to no tier.
    active = (
        *pair_block(
            "symbols", section(ItemKind.SYMBOLS, texts.repository_map_continued, symbols, SYMBOL_JOINT, texts.ok)
        ),
        *active_blocks(context, working, texts),
        *conversation_blocks(own, inlay, context.images, skipped, first),
    )
    blocks = [*(block for block in cached if block.messages), *active]
    is_marked = [block.tier for block in blocks if block.tier in _CACHED and block.tier not in placement.unmarked]
    ends = frozenset(is_marked[max(0, len(is_marked) - slots) :])
    return Assembly(
        blocks=without_last_answer(tuple(_with_marks(blocks, ends, dialect))),
        empty_tiers=sum(1 for block in cached if not block.messages),
        skipped=dict(skipped),
    )


def _cached_tier(
    tier: Tier,
    symbols: Sequence[ContextItem],
    files: Sequence[ContextItem],
    history: ContextSection | None,
    legend: str,
    system: Sequence[Turn],
    texts: AssemblyTexts,
) -> Block:
    """The symbols, files and history of a tier. In L0, the symbols and files stand in the system message; in L1 to L3,
    they are a message with its acknowledgement, if there are any."""
    if tier is Tier.L0:
        messages, sections = head(system, map_sections(legend, symbols, files, texts))
    else:
        header = (texts.reference_l1, texts.reference_l2, texts.reference_l3)[tier - Tier.L1]
        more = section(ItemKind.SYMBOLS, texts.repository_map_continued, symbols, SYMBOL_JOINT)
        sections = one_text((more, section(ItemKind.FILES, header, files, FILE_JOINT)))
        messages = pair("".join([one.text for one in sections]), texts.ok) if sections else ()
        sections = (*sections[:-1], *(replace(one, ok=texts.ok) for one in sections[-1:]))
    if history is not None:
        messages, sections = (*messages, *(item.raw for item in history.items)), (*sections, history)
    return Block(tier, tier.name, sections, messages)


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
            turns = sum(len(one.items) for one in blocks[at].sections if one.kind is ItemKind.HISTORY)
            is_head = blocks[at].tier is Tier.L0 and index < len(messages[at]) - turns
            written = marked(messages[at][index], dialect, is_head=is_head)
            if written is not None:
                messages[at][index] = written
                found[at].append(index)
                break
        behind.clear()
    for block, lines, marks in zip(blocks, messages, found, strict=True):
        yield replace(block, messages=tuple(lines), marks=tuple(marks)) if marks else block


Chunks = Sequence[Sequence[str]]
"""The paths of each chunk of the symbol map, in sending order."""


def front_of(
    context: StructuredContext, system: Sequence[Turn], texts: AssemblyTexts, chunks: Chunks | None = None
) -> Assembly:
    """Everything in front of a conversation: system prompt, legend and symbols; the list of files, pages, review and
    files. With ``chunks``, each chunk is a message behind the legend. Without them, the symbols stand in the system
    message."""
    symbols = symbol_items(context.mapped(), context.symbols) if chunks is None else ()
    messages, sections = head(system, map_sections(context.legend, symbols, (), texts))
    tier = Tier.ACTIVE if chunks is None else Tier.L0
    blocks = [Block(tier, "system", sections, messages)] if messages else []
    for number, paths in enumerate(chunks or ()):
        header = texts.repository_map_continued if number or context.legend else texts.repository_map
        symbols = symbol_items(paths, context.symbols)
        blocks += pair_block("symbols", section(ItemKind.SYMBOLS, header, symbols, SYMBOL_JOINT, texts.ok))
    blocks += active_blocks(context, file_items(context.selected()), texts)
    return Assembly(tuple(blocks), skipped=not_shown(context))


def untiered_assembly(front: Assembly, conversation: Conversation, inlay: Inlay, images: Sequence[str]) -> Assembly:
    """The front, and behind it history and prompt with the blocks that the ``inlay`` puts into them."""
    skipped = Skipped(front.skipped)
    blocks = [*front.blocks, *conversation_blocks(conversation, inlay, images, skipped)]
    return Assembly(without_last_answer(blocks), skipped=dict(skipped))


def in_tiers(assembly: Assembly, placement: TierPlacement) -> Assembly:
    """The same blocks, each in the tier of its least stable item by the ``placement``. This is only for people to see:
    here the tiers do not order the blocks."""
    tiers = placement.tier_of()
    blocks = []
    for block in assembly.blocks:
        keys = [item.key for one in block.sections for item in one.items]
        is_placed = any(key in tiers for key in keys)
        least = max(tiers.get(key, Tier.ACTIVE) for key in keys) if is_placed else block.tier
        blocks.append(replace(block, tier=least))
    return replace(assembly, blocks=tuple(blocks))

"""The sections of an assembly: each is a header and the items below it, and is left out if it has no items.

The head is the client's system messages, with the map of the repository and the stable files behind them. The active
part, which no breakpoint covers, is the list of files, pages, review, working files, the rest of the history, and the
prompt. The words are read from ``prompts`` at the rim.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from proxy.core.layout.tiers import Tier
from proxy.core.structured.blocks.blocks import Block, Item, Kind, Section, Skip, Skipped, file_block
from proxy.core.structured.context import ContextFile, Page, Review, StructuredContext
from proxy.core.structured.history.compaction import CompactionTexts
from proxy.core.structured.messages import Conversation, Turn, message, pair
from proxy.core.structured.panels.inlay import Inlay
from proxy.core.structured.panels.pairs import PanelTexts
from proxy.core.structured.placement.placement import FILE, SYMBOL
from proxy.core.value import dataclass, replace
from proxy.core.wire.json_body import Unreadable, elements, join_members, members_of
from proxy.core.wire.surrogates import text_json


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

    @property
    def files(self) -> Mapping[Tier, str]:
        """The header of the files of each tier."""
        reference = (self.reference_l0, self.reference_l1, self.reference_l2, self.reference_l3)
        return dict(zip(Tier, (*reference, self.working_files), strict=True))


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


def symbol_items(paths: Iterable[str], symbols: Mapping[str, str]) -> tuple[Item, ...]:
    """The symbol blocks of these paths."""
    return tuple([Item(Kind.SYMBOLS, SYMBOL + path, symbols[path]) for path in paths])


def file_items(files: Iterable[ContextFile]) -> tuple[Item, ...]:
    """The files as they are sent. Their texts must be known."""
    return tuple([Item(Kind.FILES, FILE + file.path, file_block(file.path, file.text or "")) for file in files])


def section(kind: Kind, header: str, items: Sequence[Item], joint: str = "", ok: str = "") -> Section | None:
    """A header and the items below it. None without items, because a header never stands alone."""
    return Section(kind, tuple(items), header, joint, ok) if items else None


def turns_section(kind: Kind, turns: Sequence[Turn], indices: Iterable[int]) -> Section | None:
    """The client's messages as they came, named by their kind and their indices."""
    return section(kind, "", [Item(kind, f"{kind}:{index}", raw=turns[index].raw) for index in indices])


def one_text(sections: Iterable[Section | None]) -> tuple[Section, ...]:
    """The sections that are not None, with separators so that their texts can be joined to one text."""
    shown = [one for one in sections if one is not None]
    return tuple(replace(one, lead=PART_JOINT) if index else one for index, one in enumerate(shown))


def tree_section(tree: Iterable[str] | None, texts: AssemblyTexts) -> Section | None:
    """The list of all files: flat, sorted, one path per line, below the number of files."""
    paths = sorted(set(tree or ()))
    if not paths:
        return None
    count = texts.file_count.replace("{count}", str(len(paths)))
    return section(Kind.TREE, texts.file_tree, [Item(Kind.TREE, "tree", count + "\n".join(paths))], ok=texts.ok)


def pages_section(pages: Iterable[Page], texts: AssemblyTexts, skipped: Skipped) -> Section | None:
    """The fetched pages, with a line of dashes between two of them."""
    items: list[Item] = []
    for page in pages:
        if page.content or page.symbols:
            items.append(Item(Kind.URLS, f"url:{page.url}", page_text(page)))
        else:
            skipped[Skip.EMPTY_PAGE] += 1
    return section(Kind.URLS, texts.urls, items, PAGE_JOINT, texts.urls_ok)


def page_text(page: Page) -> str:
    """A page: its title and its URL on a line each, its content, and its symbols if it has any."""
    lead = f"{page.title}\n{page.url}" if page.title else page.url
    return "\n\n".join(part for part in (lead, page.content, page.symbols) if part)


def review_section(context: StructuredContext, texts: AssemblyTexts) -> Section | None:
    """The review, with the diffs of the selected files only."""
    if context.review is None:
        return None
    selected = [file.path for file in context.files if file.is_selected]
    text = review_text(context.review, selected, texts)
    return section(Kind.REVIEW, texts.review, [Item(Kind.REVIEW, "review", text)] if text else [], ok=texts.review_ok)


def review_text(review: Review, selected: Iterable[str], texts: AssemblyTexts) -> str:
    """Summary, log, symbols and diffs under their headers. Parts that the review does not have are left out."""
    commits = "\n".join(("Commits:", *(f"- {commit}" for commit in review.commits))) if review.commits else ""
    branch = f"Branch: {review.branch}" if review.branch else ""
    diffs = [file_block(path, review.reverse_diffs[path]) for path in selected if review.reverse_diffs.get(path)]
    parts = (
        (texts.review_summary, "\n".join(part for part in (branch, commits, review.stats) if part)),
        (texts.review_log, review.log),
        (texts.review_symbols, review.pre_change_symbols),
        (texts.review_diffs, FILE_JOINT.join(diffs)),
    )
    return PART_JOINT.join(header + text for header, text in parts if text)


def map_sections(
    legend: str, symbols: Sequence[Item], files: Sequence[Item], texts: AssemblyTexts
) -> tuple[Section, ...]:
    """The sections behind the client's words in the system message: the legend, the symbols, and the stable files."""
    header = texts.repository_map
    legends = section(Kind.LEGEND, header, [Item(Kind.LEGEND, "legend", legend)] if legend else [])
    symbol_map = section(Kind.SYMBOLS, "" if legends else header, symbols, SYMBOL_JOINT)
    return one_text((legends, symbol_map, section(Kind.FILES, texts.reference_l0, files, FILE_JOINT)))


def not_shown(context: StructuredContext) -> Mapping[Skip, int]:
    """How many selected files cannot be read, and how many files have no symbols although their symbols would be
    shown."""
    selected = {file.path for file in context.files if file.is_selected}
    unreadable = sum(1 for file in context.files if file.is_selected and file.text is None)
    bare = sum(1 for path, block in context.symbols.items() if not block and path not in selected)
    return {skip: n for skip, n in ((Skip.UNREADABLE, unreadable), (Skip.NO_SYMBOLS, bare)) if n}


def system_messages(
    turns: Sequence[Turn], sections: Sequence[Section]
) -> tuple[tuple[bytes, ...], tuple[Section, ...]]:
    """The system messages with the added sections, and the sections as they are written. The addition stands at the end
    of the last message, after a blank line. It becomes a message of its own if there is no system message, or if the
    last one's content is neither a text nor a list."""
    raws, own = tuple(turn.raw for turn in turns), tuple(sections)
    if not own:
        return raws, own
    added = "".join([one.text for one in own])
    content = _content(raws[-1]) if raws else b""
    if not content.startswith((b'"', b"[")):
        return (*raws, message("system", added)), own
    if content == b'""':
        return (*raws[:-1], join_members(members_of(raws[-1]), {"content": text_json(added)})), own
    parted = (replace(own[0], lead=PART_JOINT), *own[1:])
    return (*raws[:-1], _extended(raws[-1], content, text_json(PART_JOINT + added))), parted


def _content(raw: bytes) -> bytes:
    """The content of a message as JSON; empty if it cannot be read."""
    try:
        content = bytes(members_of(raw).get("content", b""))
        if content.startswith(b"["):
            elements(content)
        return content
    except Unreadable:
        return b""


def _extended(raw: bytes, content: bytes, added: bytes) -> bytes:
    """The message with a text added behind its own content, whose bytes stay as they are."""
    if content.startswith(b'"'):
        return join_members(members_of(raw), {"content": content[:-1] + added[1:]})
    part = b'{"type":"text","text":' + added + b"}"
    return join_members(members_of(raw), {"content": b"[" + b",".join((*map(bytes, elements(content)), part)) + b"]"})


def active_blocks(
    context: StructuredContext, files: Sequence[Item], texts: AssemblyTexts, skipped: Skipped
) -> Iterator[Block]:
    """The list of files, the pages, the review and the working files. Each is one message with its acknowledgement."""
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
    """A section as a message of its own, with its acknowledgement."""
    return Block(tier, name, (one,), pair(one.text, one.ok))


def raw_block(name: str, one: Section | None) -> Iterator[Block]:
    """A block of consecutive active messages of the client; nothing if there are none."""
    if one is not None:
        yield Block(Tier.ACTIVE, name, (one,), tuple(item.raw for item in one.items))


def conversation_blocks(
    conversation: Conversation, inlay: Inlay, images: Sequence[str], skipped: Skipped
) -> Iterator[Block]:
    """History and prompt, with the blocks that the ``inlay`` puts in front of them and into them."""
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
    """The last user message with the images behind its own content, and everything that follows it."""
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
    last = blocks[-1]
    sections = (*last.sections[:-1], replace(last.sections[-1], ok=""))
    return (*blocks[:-1], replace(last, sections=sections, messages=last.messages[:-1]))

"""The text of each part of the context: a header and the items below it. A part without items is left out whole."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from proxy.core.structured.assembly.texts import AssemblyTexts
from proxy.core.structured.blocks.blocks import Item, Kind, Section, Skip, Skipped
from proxy.core.structured.blocks.file_block import file_block
from proxy.core.structured.context import ContextFile, Page, Review, StructuredContext
from proxy.core.structured.messages.turn import Turn
from proxy.core.structured.placement.placement import FILE, SYMBOL

SYMBOL_JOINT = "\n"
FILE_JOINT = "\n\n"
PAGE_JOINT = "\n---\n"
PART_JOINT = "\n\n"
"""Between the system prompt, the map and the files, where these share a message."""


def symbol_items(paths: Iterable[str], symbols: Mapping[str, str]) -> tuple[Item, ...]:
    """The symbol blocks of these paths."""
    return tuple([Item(Kind.SYMBOLS, SYMBOL + path, symbols[path]) for path in paths])


def file_items(files: Iterable[ContextFile]) -> tuple[Item, ...]:
    """The files as they are sent; their texts are at hand."""
    return tuple([Item(Kind.FILES, FILE + file.path, file_block(file.path, file.text or "")) for file in files])


def section(kind: Kind, header: str, items: Sequence[Item], joint: str = "", ok: str = "") -> Section | None:
    """A header and the items below it; None without items: a header never stands alone."""
    return Section(kind, tuple(items), header, joint, ok) if items else None


def turns_section(kind: Kind, turns: Sequence[Turn], indices: Iterable[int]) -> Section | None:
    """Messages of the client's, as they came, named by their kind and their indices."""
    return section(kind, "", [Item(kind, f"{kind}:{index}", raw=turns[index].raw) for index in indices])


def one_text(sections: Iterable[Section | None]) -> tuple[Section, ...]:
    """The sections that there are, parted from each other such that their texts make one."""
    shown = [one for one in sections if one is not None]
    return tuple(replace(one, lead=PART_JOINT) if index else one for index, one in enumerate(shown))


def tree_section(tree: Iterable[str] | None, texts: AssemblyTexts) -> Section | None:
    """The list of all files: flat, sorted, a path a line, under their number."""
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
    """A page: its title and its URL on a line each, its content, and its symbols where it has some."""
    lead = f"{page.title}\n{page.url}" if page.title else page.url
    return "\n\n".join(part for part in (lead, page.content, page.symbols) if part)


def review_section(context: StructuredContext, texts: AssemblyTexts) -> Section | None:
    """What is under review, with the diffs of the selected files only."""
    if context.review is None:
        return None
    selected = [file.path for file in context.files if file.is_selected]
    text = review_text(context.review, selected, texts)
    return section(Kind.REVIEW, texts.review, [Item(Kind.REVIEW, "review", text)] if text else [], ok=texts.review_ok)


def review_text(review: Review, selected: Iterable[str], texts: AssemblyTexts) -> str:
    """Summary, log, symbols and diffs under their headers; what the review does not have is left out."""
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

"""A client's context, read and resolved: every path is clean, and every text is present."""

from collections.abc import Mapping

from msgspec import Struct

from proxy.core.layout.tiers import Tier
from proxy.core.value import dataclass, field, replace


class ContextFile(Struct, frozen=True, gc=False):
    """One file of the client. ``path`` is a clean POSIX path. ``text`` is the whole content; it is None if the content
    cannot be read as text, and such a file is skipped and counted. ``digest`` is the SHA-256 of the text in UTF-8, as
    hexadecimal digits; it is empty if the file has neither text nor digest. A selected file is shown by its text, any
    other file by its symbols. (A struct, not a dataclass: a request has thousands of files.)"""

    path: str
    text: str | None
    digest: str
    is_selected: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A page that the client has fetched from a URL. ``symbols`` is an optional map of the page's own symbols."""

    url: str
    title: str
    content: str
    symbols: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    """A code review. ``stats`` is the client's own summary of the change; ``pre_change_symbols`` is the symbol map from
    before the change; ``reverse_diffs`` lead from the new text of a path back to the old one."""

    branch: str = ""
    commits: tuple[str, ...] = ()
    stats: str = ""
    log: str = ""
    pre_change_symbols: str = ""
    reverse_diffs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StructuredContext:
    """The context of one request.

    ``files`` stand in the client's order. ``symbols`` are the blocks by path that the client sent or the symbol index
    made; ``legend`` explains their notation and is empty without one. ``tree`` lists the paths of the repository; it is
    None if no tree is shown. ``images`` are URLs, data URLs included. ``session`` is the client's name for the
    conversation, or empty. ``removed`` are paths that no longer exist. ``modified`` are paths whose items count as
    changed whatever their digests say; ``broken`` are tiers that the client knows to be broken. ``references`` are the
    edges of the reference graph: for each path, the paths that it refers to.
    """

    files: tuple[ContextFile, ...] = ()
    symbols: Mapping[str, str] = field(default_factory=dict)
    legend: str = ""
    tree: tuple[str, ...] | None = None
    pages: tuple[Page, ...] = ()
    review: Review | None = None
    images: tuple[str, ...] = ()
    session: str = ""
    removed: frozenset[str] = frozenset()
    modified: frozenset[str] = frozenset()
    broken: frozenset[Tier] = frozenset()
    references: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def has_any(self) -> bool:
        """Whether anything is described."""
        return replace(self, session="") != StructuredContext()

    def selected(self) -> list[ContextFile]:
        """The files that are shown by their text."""
        return [file for file in self.files if file.is_selected and file.text is not None]

    @property
    def chars(self) -> int:
        """The length of all texts that are shown. A text counts as often as it is shown."""
        shown = [file.text or "" for file in self.selected()] + [self.symbols[path] for path in self.mapped()]
        shown += [text for page in self.pages for text in (page.content, page.symbols)]
        if self.review is not None:
            review = self.review
            shown += (*review.commits, review.stats, review.log, review.pre_change_symbols)
            shown += review.reverse_diffs.values()
        return sum(map(len, shown))

    def mapped(self) -> list[str]:
        """The paths that are shown by their symbols: a file that is selected never appears twice."""
        shown = {file.path for file in self.files if file.is_selected}
        return [path for path, block in self.symbols.items() if block and path not in shown]

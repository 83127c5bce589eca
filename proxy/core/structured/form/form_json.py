"""The section ``stratiform`` as typed JSON: which fields there are, of which types, and how many of each at most.

Contents of files stay raw here: they are the long texts, and are decoded piece by piece. All other fields are decoded
by one call.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

MOST_FILES = 5_000
MOST_PATHS = 20_000
MOST_URLS = 3
MOST_IMAGES = 100
MOST_COMMITS = 5_000
MOST_DIFFS = 5_000
MOST_URL_CHARS = 8_192
MOST_TITLE_CHARS = 4_096
MOST_SESSION_CHARS = 512
MOST_PANELS = 500
MOST_METAS = 20_000
MOST_KIND_CHARS = 64

NO_CONTENT = Raw(b"")
"""What ``content`` is where a file has no such field."""

_Paths = Annotated[list[str], Meta(max_length=MOST_PATHS)]
TierName = Literal["L0", "L1", "L2", "L3"]
AssemblyName = Literal["tiered", "flat"]
StatusName = Literal["active", "summarized", "deleted", "detached"]


class FileJson(Struct, forbid_unknown_fields=True):
    """An element of ``files``."""

    path: str
    content: Raw = NO_CONTENT
    digest: str | None | UnsetType = UNSET
    selected: bool | None | UnsetType = UNSET


class SymbolJson(Struct, forbid_unknown_fields=True):
    """An element of ``symbols``."""

    path: str
    block: str


class UrlJson(Struct, forbid_unknown_fields=True):
    """An element of ``urls``."""

    url: Annotated[str, Meta(min_length=1, max_length=MOST_URL_CHARS)]
    content: str
    title: Annotated[str, Meta(max_length=MOST_TITLE_CHARS)] | None | UnsetType = UNSET
    symbols: str | None | UnsetType = UNSET


class ReviewJson(Struct, forbid_unknown_fields=True):
    """The value of ``review``."""

    branch: str | None | UnsetType = UNSET
    commits: Annotated[list[str], Meta(max_length=MOST_COMMITS)] | None | UnsetType = UNSET
    stats: str | None | UnsetType = UNSET
    log: str | None | UnsetType = UNSET
    pre_change_symbols: str | None | UnsetType = UNSET
    reverse_diffs: Annotated[dict[str, str], Meta(max_length=MOST_DIFFS)] | None | UnsetType = UNSET
    digest: str | None | UnsetType = UNSET


class PanelJson(Struct, forbid_unknown_fields=True):
    """An element of ``panels``."""

    id: str
    content: str
    kind: Annotated[str, Meta(max_length=MOST_KIND_CHARS)] | None | UnsetType = UNSET
    header: Annotated[str, Meta(max_length=MOST_TITLE_CHARS)] | None | UnsetType = UNSET


class MessageMetaJson(Struct, forbid_unknown_fields=True):
    """An element of ``messages_meta``."""

    index: int
    status: StatusName
    tl_dr: str | None | UnsetType = UNSET


class DetachJson(Struct, forbid_unknown_fields=True):
    """The value of ``detach`` where it says more than yes or no."""

    chunk_messages: int | None | UnsetType = UNSET
    chunk_tokens: int | None | UnsetType = UNSET
    keep_messages: int | None | UnsetType = UNSET
    keep_tokens: int | None | UnsetType = UNSET


class FormJson(Struct, forbid_unknown_fields=True):
    """The whole section, but for what it says of prompts and of the context window (``Section``)."""

    files: Annotated[list[FileJson], Meta(max_length=MOST_FILES)] | None | UnsetType = UNSET
    symbols: Annotated[list[SymbolJson], Meta(max_length=MOST_FILES)] | None | UnsetType = UNSET
    legend: str | None | UnsetType = UNSET
    tree: _Paths | bool | None | UnsetType = UNSET
    use_repo_map: bool | None | UnsetType = UNSET
    urls: Annotated[list[UrlJson], Meta(max_length=MOST_URLS)] | None | UnsetType = UNSET
    review: ReviewJson | None | UnsetType = UNSET
    images: Annotated[list[str], Meta(max_length=MOST_IMAGES)] | None | UnsetType = UNSET
    session: Annotated[str, Meta(max_length=MOST_SESSION_CHARS)] | None | UnsetType = UNSET
    removed: _Paths | None | UnsetType = UNSET
    modified: _Paths | None | UnsetType = UNSET
    broken: Annotated[list[TierName], Meta(max_length=MOST_IMAGES)] | None | UnsetType = UNSET
    assembly: AssemblyName | None | UnsetType = UNSET
    panels: Annotated[list[PanelJson], Meta(max_length=MOST_PANELS)] | None | UnsetType = UNSET
    messages_meta: Annotated[list[MessageMetaJson], Meta(max_length=MOST_METAS)] | None | UnsetType = UNSET
    detach: DetachJson | bool | None | UnsetType = UNSET
    compaction: bool | None | UnsetType = UNSET


def members_in(form: FormJson) -> int:
    """How many members the objects of the section have together, where each name stands once in its object."""
    files, symbols, urls = form.files or (), form.symbols or (), form.urls or ()
    count = _members(form) + len(files) + 2 * len(symbols) + sum(map(_members, urls))
    count += sum(
        (file.content is not NO_CONTENT) + (file.digest is not UNSET) + (file.selected is not UNSET) for file in files
    )
    count += sum(map(_members, (*(form.panels or ()), *(form.messages_meta or ()))))
    if isinstance(form.detach, DetachJson):
        count += _members(form.detach)
    if isinstance(form.review, ReviewJson):
        count += _members(form.review) + len(form.review.reverse_diffs or ())
    return count


def _members(value: Struct) -> int:
    values = [getattr(value, name) for name in value.__struct_fields__]
    return sum(each is not UNSET and each is not NO_CONTENT for each in values)

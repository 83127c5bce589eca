"""The section ``stratiform`` as typed JSON: the fields, their types, and the largest number of each.

The contents of files stay raw here, because they are the long texts, which are decoded piece by piece. All other fields
are decoded by one call.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import asdict

from proxy.core.structured.history.rules import DetachTerms, MessageMeta, Status
from proxy.core.structured.panels.pairs import FOOTER
from proxy.core.structured.panels.panel import FROZEN_PREFIX, OWN_KIND, Panel
from proxy.core.value import replace
from proxy.core.wire.refusals import check_ids, invalid

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
"""The ``content`` of a file without such a field."""

_Paths = Annotated[list[str], Meta(max_length=MOST_PATHS)]
_Minimum = Annotated[int, Meta(ge=1, le=10_000_000)] | None | UnsetType
TierName = Literal["L0", "L1", "L2", "L3"]
AssemblyName = Literal["tiered", "flat"]


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
    status: Status
    tl_dr: str | None | UnsetType = UNSET


class DetachJson(Struct, forbid_unknown_fields=True):
    """The value of ``detach`` if it says more than yes or no."""

    chunk_messages: _Minimum = UNSET
    chunk_tokens: _Minimum = UNSET
    keep_messages: _Minimum = UNSET
    keep_tokens: _Minimum = UNSET


class FormJson(Struct, forbid_unknown_fields=True):
    """The whole section, except what it says about prompts and about the context window (``Section``)."""

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


DetachWish = DetachJson | bool | None
"""A client's wish for freezing old parts of its conversation: the minimums that it sets, yes, no, or nothing."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,56}")
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LINE = re.compile("[^\x00-\x1f\x7f-\x9f\u2028\u2029]*+")


def read_panels(found: Sequence[PanelJson], param: str) -> tuple[Panel, ...]:
    """The panels in the client's order. Raises InvalidRequest for an id that is malformed, reserved or not unique."""
    check_ids([each.id for each in found], param, "panel")
    panels = []
    for number, each in enumerate(found):
        at = f"{param}[{number}]"
        _check(each.id, _ID, f"{at}.id", "must have 1 to 56 characters of A-Z, a-z, 0-9, '_' and '-'")
        if each.id == FOOTER or each.id.startswith(FROZEN_PREFIX):
            raise invalid(f"{at}.id", "is an id that the proxy uses itself: choose another one", "reserved_id")
        kind, header = each.kind or OWN_KIND, each.header or ""
        _check(kind, _KIND, f"{at}.kind", "must begin with a letter and have only a-z, 0-9 and '_', at most 64")
        _check(header, _LINE, f"{at}.header", "holds a control character or a line break")
        panels.append(Panel(each.id, kind, header, each.content))
    return tuple(panels)


def read_metas(found: Sequence[MessageMetaJson], param: str) -> dict[int, MessageMeta]:
    """The metas of messages by index. It is not checked here whether there is a message of this index."""
    metas: dict[int, MessageMeta] = {}
    for number, each in enumerate(found):
        at = f"{param}[{number}]"
        if each.index < 0 or each.index in metas:
            why = "must not be negative" if each.index < 0 else "stands twice: describe each message once"
            raise invalid(f"{at}.index", why, "invalid_index")
        status, tl_dr = each.status, each.tl_dr or ""
        if (status is Status.SUMMARIZED) != bool(tl_dr.strip()):
            why = "is missing: a" if status is Status.SUMMARIZED else "stands with another one: only a"
            raise invalid(f"{at}.tl_dr", f"{why} summarized message has it")
        metas[each.index] = MessageMeta(status, tl_dr)
    return metas


def detach_terms(wish: DetachWish, default: DetachTerms | None) -> DetachTerms | None:
    """The minimums for freezing the conversation; None: it is not frozen. ``default`` has the operator's minimums; it
    is None if the operator freezes only conversations of clients that ask for it."""
    if wish is False or (wish is None and default is None):
        return None
    said = asdict(wish) if isinstance(wish, DetachJson) else {}
    return replace(default or DetachTerms(), **{name: least for name, least in said.items() if isinstance(least, int)})


def _check(text: str, rule: re.Pattern[str], param: str, why: str) -> None:
    if not rule.fullmatch(text):
        raise invalid(param, why)

"""The section ``stratiform`` of a request, read and validated. Content that it names by digest is not resolved here.

Every mistake is an InvalidRequest (400) that says which field to change. A field that is null counts as left out, with
two exceptions: null for ``review`` removes the review, and null for ``content`` says that the file cannot be read as
text.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import get_args

import msgspec
from msgspec import UNSET, Raw

from proxy.core.layout.tiers import Tier
from proxy.core.structured.context import ContextFile, Page, Review, StructuredContext
from proxy.core.structured.form.form_json import (
    MOST_FILES,
    MOST_URL_CHARS,
    NO_CONTENT,
    AssemblyName,
    DetachWish,
    FileJson,
    FormJson,
    ReviewJson,
    TierName,
    read_metas,
    read_panels,
)
from proxy.core.structured.form.paths import FormReview, clean_paths, distinct_paths, review_json
from proxy.core.structured.form.section import SECTION
from proxy.core.structured.history.rules import MessageMeta, Status
from proxy.core.structured.panels.panel import Panel
from proxy.core.value import dataclass, field, replace
from proxy.core.wire.json_body import Unreadable, text_value
from proxy.core.wire.refusals import check_fields, decoded, invalid, names_within
from proxy.core.wire.scan import has_more_commas
from proxy.core.wire.surrogates import PIECE_BYTES

_NULL = b"null"
_MOST_COMMAS = 250_000
"""More commas than all fields together may have. Each comma may become an object of a hundred bytes."""
_DIGEST_CHARS = 64
_HEX = b"0123456789abcdef"
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}:")
_DECODER = msgspec.json.Decoder(FormJson)


_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"broken": get_args(TierName), "assembly": get_args(AssemblyName), "status": tuple(Status)}
)


@dataclass(frozen=True, slots=True)
class StructuredForm:
    """The fields of one request. ``context`` is the shown context without the review. Its paths are clean, and each
    stands at most once in ``files``, ``symbols`` and ``tree``. If the client asks for the listed files as a tree,
    ``tree`` has their paths, in their order. ``symbols`` and ``legend`` are also empty if the client wants no map of
    the repository (``has_repo_map`` is then False). A file without a text has the digest of a text that was sent
    before, or no digest either. ``drops_review``: the session's review ends. ``is_flat``: the client wants the flat
    assembly.

    ``metas`` are by the index of the client's message. ``has_history``: the client sends panels or metas, so that the
    rules of the history apply (``proxy.core.structured.history``); ``detach`` and ``compaction`` say which of the
    optional rules apply."""

    context: StructuredContext = StructuredContext()
    has_repo_map: bool = True
    review: FormReview | None = None
    drops_review: bool = False
    is_flat: bool = False
    panels: tuple[Panel, ...] = ()
    metas: Mapping[int, MessageMeta] = field(default_factory=dict)
    has_history: bool = False
    detach: DetachWish = None
    compaction: bool = False

    def shown(self, session_review: Review | None) -> StructuredContext:
        """The context with its review. ``session_review`` is the review that the session has from earlier requests. The
        review of the returned context is the session's review from this request on."""
        own = self.review.review if self.review is not None else None
        return replace(self.context, review=None if self.drops_review else own or session_review)


def read_form(raw: Raw | bytes | None) -> StructuredForm | None:
    """The form, or None if the section is missing, null, or an object without fields. Raises InvalidRequest. Most of
    the time goes into decoding and hashing the contents; large sections are read beside the event loop."""
    text = b"" if raw is None else bytes(raw)
    if not text or text.strip() == _NULL:
        return None
    if has_more_commas(text, _MOST_COMMAS):
        raise invalid(SECTION, f"has too many values: it may list at most {MOST_FILES} files", "too_many_items")
    form = decoded(_DECODER, text, SECTION, _CHOICES)
    if form == FormJson():
        return None
    check_fields(text, names_within(form), SECTION)
    return _form(form)


def _form(form: FormJson) -> StructuredForm:
    files = _files(form.files or ())
    paths = [file.path for file in files]
    has_repo_map = form.use_repo_map is not False
    sent = form.symbols or ()
    mapped = distinct_paths([each.path for each in sent], f"{SECTION}.symbols", ".path")
    symbols = {path: each.block for path, each in zip(mapped, sent, strict=True)}
    listed = tuple(paths) if form.tree is True else None
    tree = distinct_paths(form.tree, f"{SECTION}.tree") if isinstance(form.tree, list) else listed
    removed = frozenset(clean_paths(form.removed or (), f"{SECTION}.removed"))
    _check_removed(removed, paths, "files")
    _check_removed(removed, tuple(symbols), "symbols")
    context = StructuredContext(
        files=files,
        symbols=symbols if has_repo_map else {},
        legend=(form.legend or "") if has_repo_map else "",
        tree=tree if has_repo_map else None,
        pages=tuple(
            Page(
                url=_line(each.url, f"{SECTION}.urls[{n}].url"),
                title=_line(each.title or "", f"{SECTION}.urls[{n}].title"),
                content=each.content,
                symbols=each.symbols or "",
            )
            for n, each in enumerate(form.urls or ())
        ),
        images=tuple(_url(each, f"{SECTION}.images[{n}]") for n, each in enumerate(form.images or ())),
        session=_line(form.session or "", f"{SECTION}.session"),
        removed=removed,
        modified=frozenset(clean_paths(form.modified or (), f"{SECTION}.modified")),
        broken=frozenset(Tier[name] for name in form.broken or ()),
    )
    return StructuredForm(
        context=context,
        has_repo_map=has_repo_map,
        review=_review(form),
        drops_review=form.review is None,
        is_flat=form.assembly == "flat",
        panels=read_panels(form.panels or (), f"{SECTION}.panels"),
        metas=read_metas(form.messages_meta or (), f"{SECTION}.messages_meta"),
        has_history=isinstance(form.panels, list) or isinstance(form.messages_meta, list),
        detach=None if form.detach is UNSET else form.detach,
        compaction=form.compaction is True,
    )


def _files(found: Sequence[FileJson]) -> tuple[ContextFile, ...]:
    param = f"{SECTION}.files"
    paths = distinct_paths([file.path for file in found], param, ".path")
    files: list[ContextFile] = []
    are_digests = _are_digests([file.digest for file in found if isinstance(file.digest, str)])
    for path, file in zip(paths, found, strict=True):
        if are_digests and file.content is NO_CONTENT and isinstance(file.digest, str):
            files.append(ContextFile(path, None, file.digest, file.selected is True))
        else:
            files.append(_file(path, file, f"{param}[{len(files)}]"))
    return tuple(files)


def _file(path: str, file: FileJson, param: str) -> ContextFile:
    """A file that is not named by a digest alone, or whose digest is checked on its own."""
    is_selected = file.selected is True
    text = _content(file.content, f"{param}.content")
    given = _digest(file.digest, f"{param}.digest") if isinstance(file.digest, str) else ""
    if text is not None and given:
        raise invalid(f"{param}.digest", "stands beside 'content': send one of them", "ambiguous_content")
    if is_selected and file.content is NO_CONTENT and not given:
        why = (
            "is missing for a selected file: send it, or 'digest' for a text that was sent before, or null for a file "
            "that is no text"
        )
        raise invalid(f"{param}.content", why, "missing_field")
    return ContextFile(path, text, given if text is None else _digest_of(text, f"{param}.content"), is_selected)


def text_digest(text: str) -> str:
    """The SHA-256 of the text in UTF-8, as lower-case hexadecimal digits. Raises UnicodeEncodeError for halves of
    surrogate pairs."""
    state = sha256()
    for at in range(0, len(text), PIECE_BYTES):  # other threads get their turn between two pieces
        state.update(text[at : at + PIECE_BYTES].encode())
    return state.hexdigest()


def _digest_of(text: str, param: str) -> str:
    try:
        return text_digest(text)
    except UnicodeEncodeError as error:
        raise invalid(param, "is not valid Unicode", "invalid_unicode") from error


def _content(raw: Raw, param: str) -> str | None:
    first = bytes(memoryview(raw)[:1])
    if raw is NO_CONTENT or first == b"n":
        return None
    if first != b'"':
        raise invalid(param, "must be a string or null", "invalid_type")
    try:
        text = text_value(raw)
    except Unreadable as error:
        raise invalid(param, "is not valid Unicode", "invalid_unicode") from error
    assert isinstance(text, str)
    return text


def _are_digests(digests: Sequence[str]) -> bool:
    """Whether all of them are well-formed digests. They are checked at once, because one by one they would take most of
    the reader's time."""
    return set(map(len, digests)) <= {_DIGEST_CHARS} and not "".join(digests).encode().translate(None, _HEX)


def _digest(digest: str, param: str) -> str:
    if not _are_digests((digest,)):
        raise invalid(param, "must be a SHA-256 digest of 64 lower-case hexadecimal digits", "invalid_digest")
    return digest


def _check_removed(removed: frozenset[str], paths: Sequence[str], name: str) -> None:
    for index, path in enumerate(paths if removed else ()):
        if path in removed:
            why = f"is also listed in '{SECTION}.removed': list it in one of them only"
            raise invalid(f"{SECTION}.{name}[{index}].path", why, "conflicting_path")


def _review(form: FormJson) -> FormReview | None:
    found = form.review
    if not isinstance(found, ReviewJson):
        return None
    param = f"{SECTION}.review"
    sent = {name: getattr(found, name) for name in found.__struct_fields__}
    sent = {name: value for name, value in sent.items() if value is not UNSET}
    if isinstance(found.digest, str):
        if len([value for value in sent.values() if value is not None]) > 1:
            why = "stands beside other fields: send the digest or the other fields"
            raise invalid(f"{param}.digest", why, "ambiguous_content")
        return FormReview(_digest(found.digest, f"{param}.digest"))
    diffs = found.reverse_diffs or {}
    paths = distinct_paths(tuple(diffs), f"{param}.reverse_diffs")
    review = Review(
        branch=found.branch or "",
        commits=tuple(found.commits or ()),
        stats=found.stats or "",
        log=found.log or "",
        pre_change_symbols=found.pre_change_symbols or "",
        reverse_diffs=dict(zip(paths, diffs.values(), strict=True)),
    )
    text = review_json(sent)
    return FormReview(text_digest(text), review, text)


def _url(url: str, param: str) -> str:
    """The URL of an image. Only the beginning of a data URL is checked, because it may have many megabytes."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        raise invalid(param, "must be a URL or a data URL")
    if scheme[0].lower() == "data:":
        return url
    if len(url) > MOST_URL_CHARS:
        raise invalid(param, f"may have at most {MOST_URL_CHARS} characters", "too_long")
    return _line(url, param)


def _line(text: str, param: str) -> str:
    if _CONTROLS.search(text):
        raise invalid(param, "holds a control character or a line break")
    return text

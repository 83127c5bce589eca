"""The reader of a request's section ``stratiform``: JSON in, typed and checked values out.

First come the fields of the section as typed JSON, with the largest number of each. The contents of files stay raw
there, because they are the long texts, which are decoded piece by piece; all other fields are decoded by one call. Then
comes the form that is made from them: its files, its review, its panels and what it says about messages.

Every mistake is an InvalidRequest (400) that says which field to change. A field that is null counts as left out, with
two exceptions: null for ``review`` removes the review, and null for ``content`` says that the file cannot be read as
text. Content that a request names by its digest is never looked up here.

At the end stand the paths of a client's files: in POSIX form, with nothing left to resolve. The rules are those that a
client's own system would apply to the text of a path.

- A backslash is a slash, for clients on Windows. Repeated slashes are one, and a slash at the end is left out.
- ``.`` and ``..`` are resolved by their text alone. A path that would leave the root is refused.
- A path is relative to the client's own root, or absolute: it begins with ``/``, or with a drive such as ``C:/``. An
  absolute path stays absolute, so that ``/src/a.py`` and ``src/a.py`` are two files.
- A path stands on a line of its own in the prompt. Control characters and line breaks are refused.
- Letters are kept as they are: their case, and the form in which an accent is written, tell files apart.
"""

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from proxy.context import (
    MOST_TITLE_CHARS,
    MOST_URL_CHARS,
    SECTION,
    ContextFile,
    FetchedPage,
    Review,
    StructuredContext,
)
from proxy.context.history import DetachTerms, MessageMeta, Status
from proxy.context.panels import FOOTER, FROZEN_PREFIX, OWN_KIND, Panel
from proxy.kit.errors import InvalidRequest
from proxy.kit.value import dataclass, field, replace
from proxy.planner.tiers import Tier
from proxy.protocol.wire import check_fields, check_ids, decoded, has_more_commas, invalid, names_within
from proxy.protocol.wire.json_body import PIECE_BYTES, Unreadable, text_value

MOST_FILES = 5_000
MOST_IMAGES = 100
NO_CONTENT = Raw(b"")
"""The ``content`` of a file without such a field."""

_Paths = Annotated[list[str], Meta(max_length=20_000)]
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


class PanelJson(Struct, forbid_unknown_fields=True):
    """An element of ``panels``."""

    id: str
    content: str
    kind: Annotated[str, Meta(max_length=64)] | None | UnsetType = UNSET
    header: Annotated[str, Meta(max_length=MOST_TITLE_CHARS)] | None | UnsetType = UNSET


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
    urls: Annotated[list[FetchedPage], Meta(max_length=3)] | None | UnsetType = UNSET
    review: Review | None | UnsetType = UNSET
    images: Annotated[list[str], Meta(max_length=MOST_IMAGES)] | None | UnsetType = UNSET
    session: Annotated[str, Meta(max_length=512)] | None | UnsetType = UNSET
    removed: _Paths | None | UnsetType = UNSET
    modified: _Paths | None | UnsetType = UNSET
    broken: Annotated[list[TierName], Meta(max_length=MOST_IMAGES)] | None | UnsetType = UNSET
    assembly: AssemblyName | None | UnsetType = UNSET
    panels: Annotated[list[PanelJson], Meta(max_length=500)] | None | UnsetType = UNSET
    messages_meta: Annotated[list[MessageMeta], Meta(max_length=20_000)] | None | UnsetType = UNSET
    detach: DetachJson | bool | None | UnsetType = UNSET
    compaction: bool | None | UnsetType = UNSET


DetachWish = DetachJson | bool | None
"""A client's wish for freezing old parts of its conversation: the minimums that it sets, yes, no, or nothing."""


@dataclass(frozen=True, slots=True)
class FormReview:
    """The field ``review`` of a request: a review, or the ``digest`` of one that an earlier request has sent, in which
    case ``review`` is None. ``text`` is the JSON of the review, of which ``digest`` is the digest."""

    digest: str
    review: Review | None = None
    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class StructuredForm:
    """The fields of one request. ``context`` is the shown context without the review. Its paths are clean, and each
    stands at most once in ``files``, ``symbols`` and ``tree``. If the client asks for the listed files as a tree,
    ``tree`` has their paths, in their order. ``symbols`` and ``legend`` are also empty if the client wants no map of
    the repository (``has_repo_map`` is then False). A file without a text has the digest of a text that was sent
    before, or no digest either. ``drops_review``: the session's review ends. ``is_flat``: the client wants the flat
    assembly.

    ``metas`` are by the index of the client's message. ``has_history``: the client sends panels or metas, so that the
    rules of the history apply (``proxy.context.history``); ``detach`` and ``compaction`` say which of the
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


_NULL = b"null"
# More commas than all fields together may have. Each comma may become an object of a hundred bytes.
_MOST_COMMAS = 250_000
_DECODER = msgspec.json.Decoder(FormJson)
_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"broken": get_args(TierName), "assembly": get_args(AssemblyName), "status": tuple(Status)}
)


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
    mapped = distinct_paths([each.path for each in form.symbols or ()], f"{SECTION}.symbols", ".path")
    symbols = {path: each.block for path, each in zip(mapped, form.symbols or (), strict=True)}
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
            structs.replace(
                each,
                url=_line(each.url, f"{SECTION}.urls[{n}].url"),
                title=_line(each.title or "", f"{SECTION}.urls[{n}].title"),
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
        panels=_panels(form.panels or (), f"{SECTION}.panels"),
        metas=_metas(form.messages_meta or (), f"{SECTION}.messages_meta"),
        has_history=isinstance(form.panels, list) or isinstance(form.messages_meta, list),
        detach=None if form.detach is UNSET else form.detach,
        compaction=form.compaction is True,
    )


def _files(found: Sequence[FileJson]) -> tuple[ContextFile, ...]:
    param = f"{SECTION}.files"
    paths = distinct_paths([file.path for file in found], param, ".path")
    are_digests = _are_digests([file.digest for file in found if isinstance(file.digest, str)])
    return tuple(
        [
            ContextFile(path, None, file.digest, file.selected is True)
            if are_digests and file.content is NO_CONTENT and isinstance(file.digest, str)
            else _file(path, file, f"{param}[{index}]")
            for index, (path, file) in enumerate(zip(paths, found, strict=True))
        ]
    )


def _file(path: str, file: FileJson, param: str) -> ContextFile:
    """A file that is not named by a digest alone, or whose digest is checked on its own."""
    is_selected = file.selected is True
    text, digest = _content(file.content, f"{param}.content")
    given = _digest(file.digest, f"{param}.digest") if isinstance(file.digest, str) else ""
    if text is not None and given:
        raise invalid(f"{param}.digest", "stands beside 'content': send one of them", "ambiguous_content")
    if is_selected and file.content is NO_CONTENT and not given:
        why = (
            "is missing for a selected file: send it, or 'digest' for a text that was sent before, or null for a file "
            "that is no text"
        )
        raise invalid(f"{param}.content", why, "missing_field")
    return ContextFile(path, text, digest or given, is_selected)


def _content(raw: Raw, param: str) -> tuple[str | None, str]:
    """The text and its digest; None and an empty digest if there is no text."""
    first = bytes(memoryview(raw)[:1])
    if raw is NO_CONTENT or first == b"n":
        return None, ""
    if first != b'"':
        raise invalid(param, "must be a string or null", "invalid_type")
    try:
        text = text_value(raw)
        assert isinstance(text, str)
        return text, text_digest(text)
    except (Unreadable, UnicodeEncodeError) as error:
        raise invalid(param, "is not valid Unicode", "invalid_unicode") from error


def text_digest(text: str) -> str:
    """The SHA-256 of the text in UTF-8, as lower-case hexadecimal digits. Raises UnicodeEncodeError for halves of
    surrogate pairs."""
    state = sha256()
    for at in range(0, len(text), PIECE_BYTES):  # other threads get their turn between two pieces
        state.update(text[at : at + PIECE_BYTES].encode())
    return state.hexdigest()


_DIGEST_CHARS = 64
_HEX = b"0123456789abcdef"


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
    if not isinstance(found, Review):
        return None
    param = f"{SECTION}.review"
    sent = {name: value for name, value in structs.asdict(found).items() if value is not UNSET}
    if isinstance(found.digest, str):
        if len([value for value in sent.values() if value is not None]) > 1:
            why = "stands beside other fields: send the digest or the other fields"
            raise invalid(f"{param}.digest", why, "ambiguous_content")
        return FormReview(_digest(found.digest, f"{param}.digest"))
    text = review_json(sent)
    if diffs := found.reverse_diffs:
        paths = distinct_paths(tuple(diffs), f"{param}.reverse_diffs")
        found = structs.replace(found, reverse_diffs=dict(zip(paths, diffs.values(), strict=True)))
    return FormReview(text_digest(text), found, text)


def review_json(fields: Mapping[str, object]) -> str:
    """The JSON object of a review in the canonical form of RFC 8785 (no white space; names in the order of their UTF-16
    code units; no needless escapes).

    The object is used exactly as it was sent: fields that were left out stay out, and paths are not resolved.
    ``fields`` hold strings, arrays of strings, objects of strings and None.
    """
    return json.dumps(_ordered(fields), ensure_ascii=False, separators=(",", ":"))


def _ordered(fields: Mapping[str, object]) -> dict[str, object]:
    return {
        name: _ordered(value) if isinstance(value, Mapping) else value
        for name, value in sorted(fields.items(), key=lambda field: field[0].encode("utf-16-be"))
    }


_ID = re.compile(r"[A-Za-z0-9_-]{1,56}")
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NO_LINE = "holds a control character or a line break"
_LINE = re.compile("[^\x00-\x1f\x7f-\x9f\u2028\u2029]*+")


def _panels(found: Sequence[PanelJson], param: str) -> tuple[Panel, ...]:
    """The panels in the client's order. Raises InvalidRequest for an id that is malformed, reserved or not unique."""
    check_ids([each.id for each in found], param, "panel")
    return tuple(_panel(each, f"{param}[{number}]") for number, each in enumerate(found))


def _panel(found: PanelJson, param: str) -> Panel:
    _checked(found.id, _ID, f"{param}.id", "must have 1 to 56 characters of A-Z, a-z, 0-9, '_' and '-'")
    if found.id == FOOTER or found.id.startswith(FROZEN_PREFIX):
        raise invalid(f"{param}.id", "is an id that the proxy uses itself: choose another one", "reserved_id")
    why = "must begin with a letter and have only a-z, 0-9 and '_', at most 64"
    kind = _checked(found.kind or OWN_KIND, _KIND, f"{param}.kind", why)
    header = _checked(found.header or "", _LINE, f"{param}.header", _NO_LINE)
    return Panel(found.id, kind, header, found.content)


def _checked(text: str, rule: re.Pattern[str], param: str, why: str) -> str:
    if not rule.fullmatch(text):
        raise invalid(param, why)
    return text


def _metas(found: Sequence[MessageMeta], param: str) -> dict[int, MessageMeta]:
    """The metas of messages by index. It is not checked here whether there is a message of this index."""
    metas: dict[int, MessageMeta] = {}
    for number, each in enumerate(found):
        at = f"{param}[{number}]"
        if each.index < 0 or each.index in metas:
            why = "must not be negative" if each.index < 0 else "stands twice: describe each message once"
            raise invalid(f"{at}.index", why, "invalid_index")
        if (each.status is Status.SUMMARIZED) != bool((each.tl_dr or "").strip()):
            why = "is missing: a" if each.status is Status.SUMMARIZED else "stands with another one: only a"
            raise invalid(f"{at}.tl_dr", f"{why} summarized message has it")
        metas[each.index] = each
    return metas


def detach_terms(wish: DetachWish, default: DetachTerms | None) -> DetachTerms | None:
    """The minimums for freezing the conversation; None: it is not frozen. ``default`` has the operator's minimums; it
    is None if the operator freezes only conversations of clients that ask for it."""
    if wish is False or (wish is None and default is None):
        return None
    said = structs.asdict(wish) if isinstance(wish, DetachJson) else {}
    return replace(default or DetachTerms(), **{name: least for name, least in said.items() if isinstance(least, int)})


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}:")
_PRINTABLE = re.compile("[^\x00-\x1f\x7f-\x9f]*+")


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
    return _checked(text, _PRINTABLE, param, _NO_LINE)


MOST_PATH_CHARS = 4_096

# Control characters, the two Unicode line breaks that are not control characters, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# For the quick check, which joins paths by colons: a clean path has no colon, and a colon counts as the end of a name.
_COLONS_AS_SLASHES = bytes.maketrans(b":", b"/")
_PLAIN = bytes(byte for byte in range(0x20, 0x7F) if byte != ord("\\"))
_DRIVE = re.compile(r"[A-Za-z]:(?=/|$)")


def distinct_paths(paths: Sequence[str], param: str, field: str = "") -> tuple[str, ...]:
    """The paths in POSIX form, made by ``clean_paths``. Also raises InvalidRequest if two of them are the same."""
    found = clean_paths(paths, param, field)
    if len(set(found)) == len(found):
        return found
    seen: dict[str, int] = {}
    for index, path in enumerate(found):
        if (first := seen.setdefault(path, index)) != index:
            why = f"is the same path as '{param}[{first}]{field}', once both are resolved"
            raise invalid(f"{param}[{index}]{field}", why, "duplicate_path")
    return found


def clean_paths(paths: Sequence[str], param: str, field: str = "") -> tuple[str, ...]:
    """The paths in POSIX form. Raises InvalidRequest with the place of the first bad path within ``param``; ``field``
    is the place of a path within its element."""
    if _are_clean(paths):
        return tuple(paths)
    return tuple(
        [
            path if _are_clean((path,)) else clean_path(path, f"{param}[{index}]{field}")
            for index, path in enumerate(paths)
        ]
    )


def _are_clean(paths: Sequence[str]) -> bool:
    """Whether all of them are surely clean. This quick check of all paths at once recognises most clean paths."""
    text = f":{':'.join(paths)}:"
    if not text.isascii() or text.count(":") != len(paths) + 1:
        return False
    ends = text.encode().translate(_COLONS_AS_SLASHES)
    return (
        not ends.translate(None, _PLAIN)
        and b"//" not in ends
        and b"/." not in ends
        and max(map(len, paths), default=0) <= MOST_PATH_CHARS
    )


def clean_path(path: str, param: str) -> str:
    """The path in POSIX form. Raises InvalidRequest for a path in ``param`` that is empty or too long, leaves the root,
    or holds a control character."""
    if len(path) > MOST_PATH_CHARS:
        raise _refused(param, f"is longer than {MOST_PATH_CHARS} characters")
    if _UNPRINTABLE.search(path):
        raise _refused(param, "holds a control character, a line break or half of a surrogate pair")
    path = path.replace("\\", "/")
    drive = _DRIVE.match(path)
    root = "/" if path.startswith("/") else f"{drive[0]}/" if drive else ""
    names: list[str] = []
    for name in path[len(root) :].split("/"):
        if name == "..":
            if not names:
                raise _refused(param, "leads out of the client's root folder", "path_outside_root")
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    if not names:
        raise _refused(param, "names no file")
    return root + "/".join(names)


def _refused(param: str, why: str, code: str = "invalid_path") -> InvalidRequest:
    """The error that a client sees. It does not quote the path."""
    return InvalidRequest(f"the path in '{param}' {why}", param=param, code=code)

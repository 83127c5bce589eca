"""Files and reviews that clients have sent, so that later requests may name them by digest.

The memory belongs to this process and is bounded by bytes; the least recently used content is dropped first. A digest
is known only within the scope (of a key, of a team) whose request has sent its content. So nobody can find out whether
somebody else has a text. The methods are called only by the thread of the event loop.
"""

import math
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import filterfalse

from proxy.core.lru import Bounded
from proxy.core.structured.context import ContextFile, Review
from proxy.core.structured.form.form import StructuredForm, read_form
from proxy.core.structured.form.paths import FormReview
from proxy.core.value import dataclass, field, replace
from proxy.errors import InvalidRequest, MissingContent

UPLOAD_BYTES = 256 << 20
"""The memory of one process, if the configuration does not set it."""
_ENTRY_BYTES = 600
"""An entry's key, its digest, and its places in the tables."""

_Name = tuple[str, type[str] | type[Review], str]
"""A scope, the kind of the content, and its digest. The kind is needed because a file may have the same text as a
review's JSON."""


class Uploads:
    """The contents by scope and digest. ``most_bytes`` bounds their size in memory."""

    def __init__(self, most_bytes: int = UPLOAD_BYTES) -> None:
        self._most = most_bytes
        self._held: Bounded[_Name, str | Review] = Bounded(most_bytes, content_bytes)

    @property
    def bytes(self) -> int:
        """The bytes that the contents take in memory."""
        return self._held.bytes

    def resolve(self, form: StructuredForm, scope: str) -> StructuredForm:
        """The form with all its contents. The contents that the form itself has are kept for later requests of the
        scope. Raises MissingContent with the digests whose contents are neither in the form nor in memory, and then
        keeps nothing.

        The form's own contents are used directly, so that a request works even if there is no room to keep its
        contents.
        """
        brought, named = dict(_brought(form, scope)), list(_named(form, scope))
        held = {name: content for name in named if (content := self._held.get(name)) is not None}
        known = brought | held
        missing = dict.fromkeys(digest for _, _, digest in filterfalse(known.__contains__, named))
        if missing:
            raise MissingContent(tuple(missing))
        self._keep(held, brought)
        texts = {digest: content for (_, _, digest), content in known.items() if isinstance(content, str)}
        review = form.review
        if review is not None and isinstance(content := known[scope, Review, review.digest], Review):
            review = replace(review, review=content)
        return replace(_with_texts(form, texts), review=review)

    def _keep(self, held: Iterable[_Name], brought: Mapping[_Name, str | Review]) -> None:
        """Keep the contents that the request has used, as far as they have room together. A content that has no room
        beside the rest of its own request is not kept, and none of the rest is dropped for it."""
        used = dict.fromkeys((*held, *(name for name in brought if name in self._held)))
        new = {name: content for name, content in brought.items() if name not in used}
        own = sum(map(self._held.weight_of, used)) if new else 0
        for name in used:
            self._held.move_to_end(name)
        for name, content in new.items():
            weight = content_bytes(content)
            if own + weight <= self._most:
                own += weight
                self._held.put(name, content)


def content_bytes(content: str | Review) -> int:
    """The bytes that a content takes in memory, with everything that is kept beside it. A string counts as it is
    stored: with one, two or four bytes a character."""
    return _ENTRY_BYTES + sum(map(sys.getsizeof, _parts(content)))


def _parts(content: str | Review) -> Iterator[object]:
    yield content
    if isinstance(content, Review):
        yield from (content.branch, content.stats, content.log, content.pre_change_symbols)
        yield from (content.commits, *content.commits)
        yield content.reverse_diffs
        for path_and_diff in content.reverse_diffs.items():
            yield from path_and_diff


def _brought(form: StructuredForm, scope: str) -> Iterator[tuple[_Name, str | Review]]:
    """The contents that stand in the form."""
    for file in form.context.files:
        if file.text is not None:
            yield (scope, str, file.digest), file.text
    if form.review is not None and form.review.review is not None:
        yield (scope, Review, form.review.digest), form.review.review


def _named(form: StructuredForm, scope: str) -> Iterator[_Name]:
    """The contents that the form names only by their digests."""
    for file in form.context.files:
        if file.text is None and file.digest:
            yield scope, str, file.digest
    if form.review is not None and form.review.review is None:
        yield scope, Review, form.review.digest


def _with_texts(form: StructuredForm, texts: Mapping[str, str]) -> StructuredForm:
    files = tuple(
        ContextFile(file.path, texts[file.digest], file.digest, file.is_selected)
        if file.text is None and file.digest in texts
        else file
        for file in form.context.files
    )
    return replace(form, context=replace(form.context, files=files))


MOST_TEXT_BYTES = 1 << 20
"""The largest text that is kept, in bytes of memory: about 250,000 tokens, which few prompts have room for."""
MOST_UTF8_BYTES = 2 * MOST_TEXT_BYTES
"""The most bytes that such a text takes in UTF-8: a character that takes one byte in memory may take two in UTF-8."""
_LEVEL = 1
_HEAD = struct.Struct(">d")


@dataclass(frozen=True, slots=True)
class KeptText:
    """A text from a store. ``saved_at`` is when it was written there, in unix seconds."""

    text: str = field(repr=False)
    saved_at: float


def blob_name(digest: str) -> str:
    """The name of a text's blob."""
    return f"text:{digest}"


def is_kept(text: str) -> bool:
    """Whether a text is small enough to be kept."""
    return sys.getsizeof(text) <= MOST_TEXT_BYTES


def packed(text: str, saved_at: float) -> bytes:
    """The blob of a text."""
    return _HEAD.pack(saved_at) + zlib.compress(text.encode(), _LEVEL)


def unpacked(blob: bytes, digest: str) -> KeptText | None:
    """The text of a blob; None if it is not the text of this digest, or is larger than any text that is kept."""
    if len(blob) < _HEAD.size:
        return None
    (saved_at,) = _HEAD.unpack_from(blob)
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(memoryview(blob)[_HEAD.size :], MOST_UTF8_BYTES)
        if not reader.eof or sha256(data).hexdigest() != digest:
            return None
        return KeptText(data.decode(), saved_at if math.isfinite(saved_at) else 0.0)
    except (zlib.error, UnicodeDecodeError):
        return None


def texts_of(form: StructuredForm) -> Iterator[tuple[str, str]]:
    """The digests and texts of all contents that a request shows; those of a review only if the review itself is in the
    request."""
    for file in form.context.files:
        if file.text is not None and file.digest:
            yield file.digest, file.text
    if form.review is not None and form.review.text:
        yield form.review.digest, form.review.text


def filled(form: StructuredForm, texts: Mapping[str, str]) -> StructuredForm:
    """The form as if the client had sent these texts in the place of their digests. ``texts`` are by digest. A text
    that is not a review is not used as one."""
    review = form.review
    if review is not None and review.review is None and review.digest in texts:
        review = _stored_review(texts[review.digest], review.digest) or review
    return replace(_with_texts(form, texts), review=review)


def _stored_review(text: str, digest: str) -> FormReview | None:
    try:
        form = read_form(b'{"review":%s}' % text.encode())
    except InvalidRequest:
        return None
    review = form.review if form is not None else None
    return review if review is not None and review.review is not None and review.digest == digest else None

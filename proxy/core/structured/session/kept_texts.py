"""How a client's text looks in a store: named by its digest, compressed, and checked when it comes back.

What comes in are the texts of a request, or blobs of a store; what goes out are blobs, or a request's form that has the
texts. A blob counts as the text of a digest only where the text has that digest, so a store can put no other text into
a prompt. The text of a review is its canonical JSON (``review_json``).
"""

import math
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from proxy.core.structured.context import ContextFile
from proxy.core.structured.form.form import StructuredForm, read_form
from proxy.core.structured.form.review import FormReview
from proxy.core.structured.session.uploads import ResolvedForm
from proxy.errors import InvalidRequest

MOST_TEXT_BYTES = 1 << 20
"""The largest text that is kept, in bytes of memory: about 250,000 tokens, which few prompts have room for."""
MOST_UTF8_BYTES = 2 * MOST_TEXT_BYTES
"""The most that such a text takes in UTF-8: a character that takes one byte of memory may take two there."""
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
    """The text of a blob; None where it is not the text of this digest, or is larger than any that is kept."""
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


def texts_of(found: ResolvedForm) -> Iterator[tuple[str, str]]:
    """The digests and texts of all that a request shows; of a review only where the request brings it."""
    for file in found.files:
        if file.text is not None and file.digest:
            yield file.digest, file.text
    review = found.form.review
    if review is not None and review.review is not None:
        yield review.digest, review.text


def filled(form: StructuredForm, texts: Mapping[str, str]) -> StructuredForm:
    """The form as if the client had sent these texts, by their digests, in the place of the digests. A text that is no
    review stands for none."""
    files = tuple(
        ContextFile(file.path, texts[file.digest], file.digest, file.is_selected)
        if file.text is None and file.digest in texts
        else file
        for file in form.context.files
    )
    review = form.review
    if review is not None and review.review is None and review.digest in texts:
        review = _review(texts[review.digest], review.digest) or review
    return replace(form, context=replace(form.context, files=files), review=review)


def _review(text: str, digest: str) -> FormReview | None:
    try:
        form = read_form(b'{"review":%s}' % text.encode())
    except InvalidRequest:
        return None
    review = form.review if form is not None else None
    return review if review is not None and review.review is not None and review.digest == digest else None

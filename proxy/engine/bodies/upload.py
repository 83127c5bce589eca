"""Uploads that name a model: forms on the paths of audio, images and videos.

The official Python client sends a form's fields before its file, and other clients send them after it. So a form is
held back until its model is known, and streamed from there on.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from io import BytesIO

from tinytag import TinyTag, TinyTagException

from proxy.core.account.paths import Path
from proxy.core.request.routing_fields import RequestFields
from proxy.engine.bodies.form import FormScan, boundary_of
from proxy.engine.headers import content_length, content_type, get
from proxy.engine.ports import Client
from proxy.errors import InvalidRequest

_SOUND_PATHS = ("/audio/transcriptions", "/audio/translations")
_PATHS = (*_SOUND_PATHS, "/images/edits", "/images/variations", "/videos")


def is_form(client: Client, path: Path) -> bool:
    """Whether the request is a form that names a model."""
    return client.method == "POST" and is_any_form(client) and path.text.endswith(_PATHS)


def is_sound(path: Path) -> bool:
    """Whether the request is about an audio file, whose length decides the cost of the request."""
    return path.text.endswith(_SOUND_PATHS)


def is_any_form(client: Client) -> bool:
    """Whether the request is a form."""
    return content_type(client.headers).strip().startswith("multipart/")


class Upload:
    """A form that has arrived as far as its model. ``model`` is empty if the form has none, and None if no model was
    found within the limit."""

    def __init__(self, client: Client, held: bytes, rest: AsyncIterator[bytes], scan: FormScan, model: str | None):
        self._client = client
        self._held = held
        self._rest = rest
        self._scan = scan
        self.model = model

    @property
    def held(self) -> int:
        """How many bytes have arrived."""
        return len(self._held)

    def sound_s(self) -> float | None:
        """How long the audio in the form's files lasts at the most. None if that is not known, or if the files have not
        arrived completely."""
        return longest_s([self._held[start:end] for start, end in self._scan.files])

    @property
    def head(self) -> RequestFields | None:
        """The routing fields of the request, as far as the form's model is known."""
        return RequestFields(self.model, False, False, None) if self.model else None

    def length(self, model: str) -> str | None:
        """The length of the form with that name for the model. None if the client did not declare the length of its own
        form."""
        given = content_length(self._client.headers)
        return None if given is None else str(given + len(self._front(model)) - len(self._held))

    async def body(self, model: str) -> AsyncIterator[bytes]:
        """The form with that name for the model, as it arrives."""
        yield self._front(model)
        async for chunk in self._rest:
            if self.model is not None or self._scan.is_strict:
                try:
                    self._scan.feed(chunk)
                except InvalidRequest as error:
                    self._client.failure = error
                    raise
            yield chunk

    def _front(self, model: str) -> bytes:
        span = self._scan.span
        if span is None or model == self.model:
            return self._held
        return self._held[: span[0]] + model.encode() + self._held[span[1] :]


async def read_form(
    client: Client,
    limit: int,
    upload_limit: int,
    refuses: Callable[[str], bool] | None = None,
    *,
    is_whole: bool = False,
) -> Upload:
    """The form up to its model, or to its end if ``is_whole``, or up to the limit. ``refuses`` says which fields it
    must not have. Raises InvalidRequest, PayloadTooLarge, RequestTimeout, ClientDisconnected."""
    scan = FormScan(boundary_of(get(client.headers, "content-type") or ""), refuses)
    rest = client.stream(upload_limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in rest:
        chunks.append(chunk)
        size += len(chunk)
        scan.feed(chunk)
        if size > limit or (scan.model is not None and not is_whole):
            return Upload(client, b"".join(chunks), rest, scan, scan.model)
    return Upload(client, b"".join(chunks), rest, scan, scan.model or "")


async def checked_form(
    client: Client, upload_limit: int, refuses: Callable[[str], bool], heard: Callable[[bytes], None]
) -> AsyncIterator[bytes]:
    """Any other form as it arrives. It must not have fields that ``refuses`` names. ``heard`` is called with each
    chunk. Raises InvalidRequest, PayloadTooLarge, RequestTimeout, ClientDisconnected."""
    try:
        scan = FormScan(boundary_of(get(client.headers, "content-type") or ""), refuses)
        async for chunk in client.stream(upload_limit):
            scan.feed(chunk)
            heard(chunk)
            yield chunk
    except InvalidRequest as error:
        client.failure = error
        raise


_LEAST_MP3_BYTES_PER_S = 1000
"""8 kbit/s, the lowest rate of MPEG-2 layer III: ISO/IEC 13818-3, table of bit rates."""


def longest_s(files: Sequence[bytes]) -> float | None:
    """The most seconds that the longest of these files can last. None if one of them is not understood, or if there are
    no files.

    A second of audio has no minimum number of bytes. Hours of silence are a few kilobytes of FLAC, Opus or AAC, and
    their header may claim one second, which no decoder believes. Plain WAV and MP3 last no longer than their bytes
    allow, whatever their headers say. Any other file counts as the longest that any provider accepts
    (``proxy.core.request.demand``), until the answer says how long it was."""
    found = [_seconds(file) for file in files]
    known = [seconds for seconds in found if seconds is not None]
    return max(known) if known and len(known) == len(found) else None


def _seconds(file: bytes) -> float | None:
    if file.startswith((b"ID3", b"\xff")):
        return len(file) / _LEAST_MP3_BYTES_PER_S if _is_mp3(file) else None
    try:
        tag = TinyTag.get(file_obj=BytesIO(file), tags=False)
    except (TinyTagException, ArithmeticError, ValueError, LookupError):
        return None
    bytes_per_s = (tag.samplerate or 0) * (tag.channels or 0) * ((tag.bitdepth or 0) // 8)
    is_plain = (tag.mime_type or "").startswith("audio/wav") and tag.is_lossless
    return len(file) / bytes_per_s if is_plain and bytes_per_s > 0 else None


def _is_mp3(file: bytes) -> bool:
    """Whether the file begins with a frame of MPEG audio, or has one after its ID3 tag
    (https://id3.org/id3v2.3.0#ID3v2_header). A layer of 0 is AAC, which needs fewer bytes."""
    at = 0
    if file.startswith(b"ID3"):
        at = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(file[6:10], (21, 14, 7, 0), strict=False))
    head = file[at : at + 2]
    return len(head) == 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x06 != 0

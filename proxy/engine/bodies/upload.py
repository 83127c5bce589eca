"""Uploads that name a model: forms on the paths of audio, images and videos.

The official Python client sends a form's fields in front of its file, others behind: so a form is held back until its
model is known, and streamed from there on.
"""

from collections.abc import AsyncIterator, Callable

from proxy.core.account.paths import Path
from proxy.core.request.routing_fields import RequestFields
from proxy.engine.bodies.form import FormScan, boundary_of
from proxy.engine.bodies.sound import longest_s
from proxy.engine.client import Client
from proxy.engine.headers import content_length, content_type, get
from proxy.errors import InvalidRequest

_SOUND_PATHS = ("/audio/transcriptions", "/audio/translations")
_PATHS = (*_SOUND_PATHS, "/images/edits", "/images/variations", "/videos")


def is_form(client: Client, path: Path) -> bool:
    """Whether the request is a form that names a model."""
    return client.method == "POST" and is_any_form(client) and path.text.endswith(_PATHS)


def is_sound(path: Path) -> bool:
    """Whether the request is about a file of sound, whose length decides what the request costs."""
    return path.text.endswith(_SOUND_PATHS)


def is_any_form(client: Client) -> bool:
    """Whether the request is a form."""
    return content_type(client.headers).strip().startswith("multipart/")


class Upload:
    """A form that has arrived as far as its model; ``model`` is empty where it has none, None where that was not found
    within the limit."""

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
        """How long the sound in the form's files lasts at the most; None where nobody knows, or they have not arrived
        whole."""
        return longest_s([self._held[start:end] for start, end in self._scan.files])

    @property
    def head(self) -> RequestFields | None:
        """What the form says of the request, as far as that is known."""
        return RequestFields(self.model, False, False, None) if self.model else None

    def length(self, model: str) -> str | None:
        """The length of the form with that name for the model, where the client said how long its own is."""
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
    """The form up to its model, or to its end where the ``is_whole`` of it is needed, or up to the limit; ``refuses``
    says which fields it must not have. Raises InvalidRequest, PayloadTooLarge, HungUp."""
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
    """Any other form as it arrives, which must not have fields that are refused; ``heard`` is told of each chunk.
    Raises InvalidRequest, PayloadTooLarge, HungUp."""
    try:
        scan = FormScan(boundary_of(get(client.headers, "content-type") or ""), refuses)
        async for chunk in client.stream(upload_limit):
            scan.feed(chunk)
            heard(chunk)
            yield chunk
    except InvalidRequest as error:
        client.failure = error
        raise

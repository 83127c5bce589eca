"""Work on an upstream's answer before and after it is passed on: errors are read before, and the end of a stream is
awaited after.

A load balancer or a CDN in front of a provider answers in HTML or plain text. Chat clients expect OpenAI's error
object, so they get one, with the status and headers of the answer.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http.client import responses

from proxy.core.response.refusal import NO_WORDS, Refusal, refusal_in
from proxy.core.wire.json_body import Unreadable, text_value
from proxy.engine.headers import content_type, is_coded
from proxy.errors import ProxyError, UpstreamRejected, UpstreamUnavailable, error_body
from proxy.ports import Answer, Headers

_MOST_BYTES = 1 << 16
_MOST_S = 2.0
# For errors with these statuses, the text decides how the request goes on: an account without money, or a member that
# the upstream does not know.
_TELLING = frozenset({400, 402, 403, 422, 429})
# Further statuses by which an upstream may say that a request is too large.
_ON_SIZE = frozenset({413, 500})
_SHOWN_CHARS = 200
# How long the proxy waits for the end of a body after its last event. Then the connection is dropped.
_LINGER_S = 0.5
_REPLACED = frozenset({"content-type", "content-length", "content-encoding"})


def check_status(answer: Answer) -> None:
    """Raises UpstreamUnavailable if the answer's status is not one that a server may pass on (RFC 9110, section 15)."""
    if not 200 <= answer.status <= 599:
        raise UpstreamUnavailable(f"the upstream answered with status {answer.status}, which is none")


@dataclass(slots=True, repr=False)
class WholeAnswer:
    """A complete answer that replaces one that an upstream sends piece by piece."""

    status: int
    headers: Headers
    body: bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        """The whole body as one chunk."""
        if self.body:
            yield self.body

    async def aclose(self) -> None:
        """Does nothing: no connection is open."""


class ReadAhead:
    """An answer whose beginning has been read. All of it is still passed on, including the error with which it breaks
    off. The iterator of the answer's chunks must be able to continue after a wait for it was cancelled."""

    def __init__(self, answer: Answer, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.status = answer.status
        self.headers = answer.headers
        self.aclose = answer.aclose
        self._chunks: list[bytes] = []
        self._failure: ProxyError | None = None
        self._rest = answer.chunks()

    async def read(self) -> bytes:
        """The body, as far as it arrives soon and is short enough to be an error object."""
        size = sum(map(len, self._chunks))
        try:
            async with asyncio.timeout(_MOST_S):
                while self._failure is None and size <= self._most_bytes:
                    self._chunks.append(await anext(self._rest))
                    size += len(self._chunks[-1])
        except ProxyError as error:
            self._failure = error
        except (TimeoutError, StopAsyncIteration):
            pass
        return b"".join(self._chunks)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body from its beginning. Raises the error that interrupted it."""
        for chunk in self._chunks:
            yield chunk
        if self._failure is not None:
            raise self._failure
        async for chunk in self._rest:
            yield chunk


async def with_refusal_read(answer: Answer, *, reads_size: bool = False) -> tuple[Answer, Refusal]:
    """The answer, and its refusal if that decides how the request goes on. Compressed bytes are not read.
    ``reads_size``: it matters whether the request is too large."""
    is_telling = answer.status in _TELLING or (reads_size and answer.status in _ON_SIZE)
    if not is_telling or is_coded(answer.headers):
        return answer, NO_WORDS
    ahead = ReadAhead(answer)
    return ahead, refusal_in(await ahead.read())


def is_bare(answer: Answer) -> bool:
    """Whether the answer is an error whose content type is neither JSON nor a stream of events."""
    kind = content_type(answer.headers)
    return answer.status >= 400 and "json" not in kind and not kind.startswith("text/event-stream")


async def shaped(answer: Answer) -> Answer:
    """A bare error as OpenAI's error object. If the body is a JSON object after all, only its content type is changed.
    For a body that is long or slow, or that breaks off, the beginning is enough."""
    ahead = answer if isinstance(answer, ReadAhead) else ReadAhead(answer)
    found = await ahead.read()
    await ahead.aclose()
    if _is_object(found):
        return _whole(answer, found)
    kind = content_type(answer.headers)
    is_text = kind.startswith("text/plain") and not is_coded(answer.headers)
    text = " ".join(found.decode("utf-8", "replace").split())[:_SHOWN_CHARS] if is_text else ""
    phrase = f" ({responses[answer.status]})" if answer.status in responses else ""
    message = f"the upstream answered {answer.status}{phrase}, without an error object"
    error = UpstreamRejected(
        f"{message}: {text}" if text else message,
        status=answer.status,
        error_type="server_error" if answer.status >= 500 else "invalid_request_error",
        code="upstream_error",
    )
    return _whole(answer, error_body(error))


def _whole(answer: Answer, body: bytes) -> WholeAnswer:
    kept = [(name, value) for name, value in answer.headers if name not in _REPLACED]
    headers = [*kept, ("content-type", "application/json"), ("content-length", str(len(body)))]
    return WholeAnswer(answer.status, headers, body)


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(text_value(body), dict)
    except Unreadable:
        return False


async def ended(chunks: AsyncIterator[bytes]) -> None:
    """Wait a moment for the end of a body whose last event has arrived, so that its connection can serve another
    call."""
    try:
        async with asyncio.timeout(_LINGER_S):
            async for _ in chunks:
                pass
    except (TimeoutError, ProxyError):
        pass

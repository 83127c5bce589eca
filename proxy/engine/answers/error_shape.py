"""Errors of an upstream in a form that chat clients can read.

What stands in front of a provider (a load balancer, a CDN) answers in HTML or plain text. Chat clients expect OpenAI's
error object: they get one, with the status and headers of the answer.
"""

from collections.abc import AsyncIterator
from http import HTTPStatus

from proxy.core.wire.json_body import Unreadable, text_value
from proxy.engine.headers import content_type, get
from proxy.errors import ProxyError, UpstreamRejected, error_body
from proxy.ports import Answer, Headers

_READ_BYTES = 1 << 16
_SHOWN_CHARS = 200
_REPLACED = frozenset({"content-type", "content-length", "content-encoding"})


class ShapedAnswer:
    """A complete answer in the place of one that was read."""

    __slots__ = ("_body", "headers", "status")

    def __init__(self, answer: Answer, body: bytes) -> None:
        self.status = answer.status
        kept = [(name, value) for name, value in answer.headers if name not in _REPLACED]
        self.headers: Headers = [*kept, ("content-type", "application/json"), ("content-length", str(len(body)))]
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, whole."""
        yield self._body

    async def aclose(self) -> None:
        """There is nothing to close."""


def is_bare(answer: Answer) -> bool:
    """Whether it is an error that does not say of itself that it is JSON, or a stream of events."""
    kind = content_type(answer.headers)
    return answer.status >= 400 and "json" not in kind and not kind.startswith("text/event-stream")


async def shaped(answer: Answer) -> Answer:
    """A bare error as OpenAI's error object. One that is an object all the same is only called that."""
    found = await _read(answer)
    if _is_object(found):
        return ShapedAnswer(answer, found)
    kind = content_type(answer.headers)
    is_text = kind.startswith("text/plain") and get(answer.headers, "content-encoding") in (None, "identity")
    text = " ".join(found.decode("utf-8", "replace").split())[:_SHOWN_CHARS] if is_text else ""
    message = f"the upstream answered {answer.status}{_phrase(answer.status)}, without an error object"
    error = UpstreamRejected(
        f"{message}: {text}" if text else message,
        status=answer.status,
        error_type="server_error" if answer.status >= 500 else "invalid_request_error",
        code="upstream_error",
    )
    return ShapedAnswer(answer, error_body(error))


async def _read(answer: Answer) -> bytes:
    found = b""
    try:
        async for chunk in answer.chunks():
            found += chunk
            if len(found) > _READ_BYTES:
                break
    except ProxyError:
        # An error that breaks off is one all the same.
        pass
    return found


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(text_value(body), dict)
    except Unreadable:
        return False


def _phrase(status: int) -> str:
    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""

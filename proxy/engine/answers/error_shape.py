"""Errors of an upstream in a form that chat clients can read.

What stands in front of a provider (a load balancer, a CDN) answers in HTML or plain text. Chat clients expect OpenAI's
error object: they get one, with the status and headers of the answer.
"""

from http import HTTPStatus

from proxy.core.wire.json_body import Unreadable, text_value
from proxy.engine.answers.whole_answer import WholeAnswer
from proxy.engine.headers import content_type, get
from proxy.errors import ProxyError, UpstreamRejected, error_body
from proxy.ports import Answer

_READ_BYTES = 1 << 16
_SHOWN_CHARS = 200
_REPLACED = frozenset({"content-type", "content-length", "content-encoding"})


def is_bare(answer: Answer) -> bool:
    """Whether it is an error that does not say of itself that it is JSON, or a stream of events."""
    kind = content_type(answer.headers)
    return answer.status >= 400 and "json" not in kind and not kind.startswith("text/event-stream")


async def shaped(answer: Answer) -> Answer:
    """A bare error as OpenAI's error object. One that is an object all the same is only called that."""
    found = await _read(answer)
    if _is_object(found):
        return _whole(answer, found)
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
    return _whole(answer, error_body(error))


def _whole(answer: Answer, body: bytes) -> WholeAnswer:
    kept = [(name, value) for name, value in answer.headers if name not in _REPLACED]
    headers = [*kept, ("content-type", "application/json"), ("content-length", str(len(body)))]
    return WholeAnswer(answer.status, headers, body)


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

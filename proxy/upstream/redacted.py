"""What an upstream says when it refuses or fails, without the operator's keys: both transports ask here.

Providers quote the key that they do not like, whole or in part. Answers that went well pass as they are; of an error,
headers and body are read, and so are error events in a stream; long ones are cut. The key that a client brought along
may be quoted to it.
"""

import re
import zlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from proxy.core.response.error_events import ErrorEvents
from proxy.core.secrets.credentials import ACCOUNT_HEADERS, CREDENTIAL_HEADERS
from proxy.core.secrets.redaction import Redaction, excerpt
from proxy.engine.answers.upstream_answer import ReadAhead, WholeAnswer
from proxy.engine.headers import content_type, get
from proxy.errors import UpstreamRejected, error_body
from proxy.ports import Answer, Deployment, Headers

_SECRET_NAME = re.compile(r"(?i)key|secret|token|password|credential|authorization|cookie")
_SECRET_CHARS = 8
_MOST_BYTES = 1 << 20
_LEFT_OUT = frozenset({"content-length", "content-encoding"})
_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def secrets_of(deployment: Deployment, *further: str | None) -> tuple[str, ...]:
    """Every secret that a message about this deployment could contain."""
    named = [value for name, value in deployment.params.items() if _SECRET_NAME.search(name)]
    known = CREDENTIAL_HEADERS | ACCOUNT_HEADERS
    named += [value for name, value in deployment.headers if _SECRET_NAME.search(name) or name.lower() in known]
    password = urlsplit(deployment.base_url).password if "@" in deployment.base_url else None
    values = (deployment.api_key, *further, *named, password)
    return tuple(value for value in values if isinstance(value, str) and len(value) >= _SECRET_CHARS)


async def redacted(answer: Answer, deployment: Deployment) -> Answer:
    """The answer, without the deployment's secrets. An error is read whole."""
    is_error = answer.status >= 300
    if not (is_error or _is_stream(answer)) or not (redaction := Redaction(secrets_of(deployment))):
        return answer
    return await _error(answer, redaction) if is_error else _RedactedStream(answer, redaction)


async def _error(answer: Answer, redaction: Redaction) -> WholeAnswer:
    """A refusal, a failure, a redirection. One that does not end, or that breaks off, is one all the same: what has
    come is shown."""
    try:
        found = await ReadAhead(answer, _MOST_BYTES).read()
    finally:
        await answer.aclose()
    headers = [(name, redaction.text(value)) for name, value in answer.headers if name not in _LEFT_OUT]
    return WholeAnswer(answer.status, headers, _shown(answer, found, redaction))


def _shown(answer: Answer, body: bytes, redaction: Redaction) -> bytes:
    coding = (get(answer.headers, "content-encoding") or "identity").strip().lower()
    plain = _unpacked(body, coding if body else "") if len(body) <= _MOST_BYTES else None
    short = excerpt(plain) if plain is not None else None
    if short is not None:
        return redaction.body(short)
    return error_body(
        UpstreamRejected(
            f"the upstream answered {answer.status}, with an error that cannot be read here",
            status=answer.status,
            error_type="server_error" if answer.status >= 500 else "invalid_request_error",
            code="upstream_error",
        )
    )


class _RedactedStream:
    """Events, of which those that are errors are looked into. Closing it closes the answer behind."""

    def __init__(self, answer: Answer, redaction: Redaction) -> None:
        self.status = answer.status
        self.headers: Headers = [(name, value) for name, value in answer.headers if name != "content-length"]
        self.aclose = answer.aclose
        self._answer = answer
        self._events = ErrorEvents(redaction)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The events, as they become whole. Raises UpstreamUnavailable, UpstreamTimeout where they break off."""
        async for chunk in self._answer.chunks():
            if whole := self._events.feed(chunk):
                yield whole
        if rest := self._events.close():
            yield rest


def _is_stream(answer: Answer) -> bool:
    """Whether the answer is a stream of events that can be read."""
    kind = content_type(answer.headers)
    return kind.startswith("text/event-stream") and get(answer.headers, "content-encoding") in (None, "", "identity")


def _unpacked(body: bytes, coding: str) -> bytes | None:
    """The body unpacked. None where it is packed in a way that is not undone here, or where it is too large."""
    if coding in ("identity", ""):
        return body
    if (window := _WINDOWS.get(coding)) is None:
        return None
    unpacking = zlib.decompressobj(window)
    try:
        plain = unpacking.decompress(body, _MOST_BYTES)
    except zlib.error:
        return None
    return None if unpacking.unconsumed_tail else plain

"""Removes the operator's keys from an upstream's refusals and failures. Both transports use it.

Providers quote a key that they refuse, whole or in part. Successful answers pass unchanged. The headers and the body of
an error are searched for keys, and so are error events in a stream; long errors are cut. A key that the client itself
has sent may be quoted to this client.
"""

import re
import zlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from proxy.core.response.error_events import ErrorEvents
from proxy.core.secrets.credentials import ACCOUNT_HEADERS, CREDENTIAL_HEADERS
from proxy.core.secrets.redaction import Redaction, excerpt
from proxy.engine.answers.upstream_answer import ReadAhead, WholeAnswer
from proxy.engine.headers import content_type, get, is_coded
from proxy.errors import UpstreamRejected, error_body
from proxy.ports import Answer, Deployment, Headers

_SECRET_NAME = re.compile(r"(?i)key|secret|token|password|credential|authorization|cookie")
_SECRET_CHARS = 8
_MOST_BYTES = 1 << 20
_LEFT_OUT = frozenset({"content-length", "content-encoding"})
_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def secrets_of(deployment: Deployment, *further: str | None) -> tuple[str, ...]:
    """All secrets that a message about this deployment could contain."""
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
    """The answer for a refusal, a failure or a redirection, with its secrets removed. If its body does not end, or
    breaks off, the part that has arrived is shown."""
    try:
        found = await ReadAhead(answer, _MOST_BYTES).read()
    finally:
        await answer.aclose()
    headers = [(name, redaction.text(value)) for name, value in answer.headers if name not in _LEFT_OUT]
    return WholeAnswer(answer.status, headers, _shown(answer, found, redaction))


def _shown(answer: Answer, body: bytes, redaction: Redaction) -> bytes:
    coding = (get(answer.headers, "content-encoding") or "").strip().lower() if is_coded(answer.headers) else ""
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
    """A stream of events in which error events are searched for secrets. Closing it closes the upstream's answer."""

    def __init__(self, answer: Answer, redaction: Redaction) -> None:
        self.status = answer.status
        self.headers: Headers = [(name, value) for name, value in answer.headers if name != "content-length"]
        self.aclose = answer.aclose
        self._answer = answer
        self._events = ErrorEvents(redaction)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The events, as soon as they are complete. Raises UpstreamUnavailable, UpstreamTimeout if they break off."""
        async for chunk in self._answer.chunks():
            if whole := self._events.feed(chunk):
                yield whole
        if rest := self._events.close():
            yield rest


def _is_stream(answer: Answer) -> bool:
    """Whether the answer is a stream of events that can be read."""
    return content_type(answer.headers).startswith("text/event-stream") and not is_coded(answer.headers)


def _unpacked(body: bytes, coding: str) -> bytes | None:
    """The decompressed body. None if its compression is not supported here, if it is damaged, or if it is too large."""
    if not coding:
        return body
    if (window := _WINDOWS.get(coding)) is None:
        return None
    unpacking = zlib.decompressobj(window)
    try:
        plain = unpacking.decompress(body, _MOST_BYTES)
    except zlib.error:
        return None
    return None if unpacking.unconsumed_tail else plain

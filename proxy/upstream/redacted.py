"""Removes the operator's keys from an upstream's refusals and failures. Both transports use it.

Providers quote a key that they refuse, whole or in part. The headers and the body of an error are searched for keys,
and so are errors within successful answers: events of a stream, and bodies in which something is called ``error``. Long
errors are cut. Everything else passes unchanged. A key that the client itself has sent may be quoted to this client.
"""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from proxy.core.response.event_format import ErrorBody, ErrorEvents, error_in
from proxy.core.secrets import ACCOUNT_HEADERS, CREDENTIAL_HEADERS, MOST_BYTES, Redaction, excerpt
from proxy.engine.headers import content_length, content_type, get, is_coded
from proxy.engine.upstream_answer import ReadAhead, WholeAnswer
from proxy.errors import UpstreamRejected, error_body
from proxy.ports import Answer, Call, Deployment, Headers

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


async def redacted(answer: Answer, call: Call) -> Answer:
    """The answer to a call, without the deployment's secrets. An error, and a short body of a known length, are read
    before anything passes. A longer body of a known length is no error, and passes unread."""
    if not (redaction := Redaction(secrets_of(call.deployment))):
        return answer
    if answer.status >= 300:
        return await _error(answer, redaction)
    kind, length = content_type(answer.headers), content_length(answer.headers)
    is_json = "json" in kind
    if is_coded(answer.headers) or (kind and not is_json and not kind.startswith("text/")):
        return answer
    if kind.startswith("text/event-stream") or (call.stream and not is_json):
        return _RedactedStream(answer, ErrorEvents(redaction))
    if length is None:
        return _RedactedStream(answer, ErrorBody(redaction))
    return await _short(answer, redaction) if length <= MOST_BYTES else answer


async def _short(answer: Answer, redaction: Redaction) -> Answer:
    """A successful answer with a short body. Its length changes only if an error in it quotes a secret."""
    ahead = ReadAhead(answer, MOST_BYTES)
    try:
        found = await ahead.read()
    except asyncio.CancelledError:
        await answer.aclose()
        raise
    if error_in(found) is None or (shown := redaction.body(found)) == found:
        return ahead
    await answer.aclose()
    return WholeAnswer(answer.status, [pair for pair in answer.headers if pair[0] != "content-length"], shown)


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
    """An answer that passes as it comes, in which errors are searched for secrets. Closing it closes the upstream's
    answer."""

    def __init__(self, answer: Answer, errors: ErrorEvents | ErrorBody) -> None:
        self.status = answer.status
        self.headers: Headers = [(name, value) for name, value in answer.headers if name != "content-length"]
        self.aclose = answer.aclose
        self._answer = answer
        self._errors = errors

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes, as soon as they may pass. Raises UpstreamUnavailable, UpstreamTimeout if they break off."""
        async for chunk in self._answer.chunks():
            if passed := self._errors.feed(chunk):
                yield passed
        if rest := self._errors.close():
            yield rest


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

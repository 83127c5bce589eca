"""The http transport: any OpenAI-compatible server, bytes in and bytes out.

There is one aiohttp session for the life of the process. Nothing is decoded or decompressed, no redirection is
followed, and no cookie is kept. There is no limit on the whole duration of an answer. Only the time to reach the server
and the time without data are limited.

The operator's keys are removed from an upstream's refusals and failures (``redacted``).
Providers quote a key that they refuse, whole or in part. The headers and the body of an error are searched for keys,
and so are errors within successful answers: events of a stream, and bodies in which something is called ``error``. Long
errors are cut. Everything else passes unchanged. A key that the client itself has sent may be quoted to this client.
"""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Self
from urllib.parse import quote, unquote

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from proxy.engine.exchange import Call
from proxy.engine.headers import form_of, get
from proxy.engine.ports import Answer
from proxy.engine.upstream_answer import ReadAhead, WholeAnswer
from proxy.kit.errors import UpstreamError, UpstreamRejected, UpstreamTimeout, UpstreamUnavailable, error_body
from proxy.kit.secrets import MOST_BYTES, Redaction, excerpt
from proxy.models import Headers
from proxy.protocol.response.event_format import ErrorBody, ErrorEvents, error_in

_MOST_BYTES = 1 << 20
_LEFT_OUT = frozenset({"content-length", "content-encoding"})
_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


async def redacted(answer: "HttpAnswer", call: Call) -> Answer:
    """The answer to a call, without the deployment's secrets. An error, and a short body of a known length, are read
    before anything passes. A longer text of a known length is no error, and passes unread unless it is JSON."""
    if not (secrets := call.deployment.secrets):
        return answer
    if answer.status >= 300:
        return await _error(answer, Redaction(secrets))
    form = answer.form
    is_other = form.kind and not form.is_json and not form.kind.startswith("text/")
    if call.method == "HEAD" or form.is_coded or is_other:
        return answer
    if form.is_events or (call.stream and not form.is_json):
        return _RedactedStream(answer, ErrorEvents(Redaction(secrets)))
    if form.length is None or (form.is_json and form.length > MOST_BYTES):
        return _RedactedStream(answer, ErrorBody(Redaction(secrets)))
    if form.length > MOST_BYTES:
        return answer
    if (found := answer.arrived()) is not None:
        passed: Answer = WholeAnswer(answer.status, answer.headers, found)
    else:
        passed = ahead = ReadAhead(answer, MOST_BYTES)
        try:
            found = await ahead.read()
        except asyncio.CancelledError:
            await answer.aclose()
            raise
    if b"error" not in found or error_in(found) is None or (shown := Redaction(secrets).body(found)) == found:
        return passed
    # The length changes only if an error quotes a secret.
    await answer.aclose()
    return WholeAnswer(answer.status, [pair for pair in answer.headers if pair[0] != "content-length"], shown)


async def _error(answer: Answer, redaction: Redaction) -> WholeAnswer:
    """The answer for a refusal, a failure or a redirection, with its secrets removed. If its body does not end, or
    breaks off, the part that has arrived is shown."""
    try:
        found = await ReadAhead(answer, _MOST_BYTES).read()
    finally:
        await answer.aclose()
    coding = (get(answer.headers, "content-encoding") or "").strip().lower() if form_of(answer.headers).is_coded else ""
    plain = _unpacked(found, coding if found else "") if len(found) <= _MOST_BYTES else None
    if plain is not None and (short := excerpt(plain)) is not None:
        shown = redaction.body(short)
    else:
        shown = error_body(
            UpstreamRejected(
                f"the upstream answered {answer.status}, with an error that cannot be read here",
                status=answer.status,
                error_type="server_error" if answer.status >= 500 else "invalid_request_error",
                code="upstream_error",
            )
        )
    headers = [(name, redaction.text(value)) for name, value in answer.headers if name not in _LEFT_OUT]
    return WholeAnswer(answer.status, headers, shown)


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


CONNECT_S = 10.0
KEEPALIVE_S = 30.0
READ_BUFFER_BYTES = 1 << 18
EVENT_PIECE_BYTES = 8 << 10
"""A stream of events is read in pieces of this size. Looking into a piece that has an event in every third byte takes
about 10 ms, and other requests have their turn between two pieces."""
_FRONT = "/openai"
# Paths that belong to a deployment of Azure's; all other paths belong to the resource.
_OF_DEPLOYMENTS = (
    "/chat/completions", "/completions", "/embeddings", "/images/generations", "/images/edits", "/audio/speech",
    "/audio/transcriptions", "/audio/translations",
)  # fmt: skip
_VERSION = "api-version"
# Headers that aiohttp would add by itself if the client sent none.
_NO_AUTO_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class HttpUpstream:
    """Sends calls to ``deployment.base_url`` over pooled connections (``engine.ports.Upstream``)."""

    def __init__(self, *, connect_s: float = CONNECT_S) -> None:
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None

    async def open(self, call: Call) -> Answer:
        session = self._session or self._start()
        deployment = call.deployment
        if not call.path.startswith("/"):
            # Without a slash, the path could become a part of the host's name.
            raise UpstreamError("a path begins with a slash")
        plain = f"{deployment.base_url}{call.path}{'?' if call.query else ''}{call.query}"
        address = _azure_address(call) if deployment.speaks_azure else plain
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s, sock_read=deployment.timeout_s)
        limit_s = self._connect_s + deployment.timeout_s
        try:
            # Behind an interim answer (1xx), and while it sends, aiohttp waits without a limit.
            async with asyncio.timeout(limit_s) as limit:
                response = await session.request(
                    call.method,
                    # The path is already percent-encoded and must not be changed.
                    URL(address, encoded=True),
                    headers=call.headers,
                    data=(call.body if isinstance(call.body, bytes) else _timed(call.body, limit, limit_s)) or None,
                    allow_redirects=False,
                    timeout=timeout,
                )
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error) from error
        return await redacted(HttpAnswer(response), call)

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _start(self) -> aiohttp.ClientSession:
        # The session is made at the first call, because it belongs to the running event loop.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)
        connector._factory = partial(_Line, asyncio.get_running_loop())  # type: ignore[assignment]
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_NO_AUTO_HEADERS,
            read_bufsize=READ_BUFFER_BYTES,
            # An answer with a longer header is lost, and the provider bills it.
            max_line_size=READ_BUFFER_BYTES,
            max_field_size=READ_BUFFER_BYTES,
        )
        # aiohttp would repeat a PUT or a DELETE by itself. It has no public name for this; its own test client does it.
        self._session._retry_connection = False
        # Newer versions also lose an answer with more than 128 headers. Older ones do not know this as an argument.
        self._session._max_headers = READ_BUFFER_BYTES
        return self._session


class _Line(ResponseHandler):
    """A connection whose faults are noticed. Once something has come that no request asked for, it is not used again:
    aiohttp would take that for the answer to the next request, and every later answer for that to the request behind.
    Whoever reads a body learns that its connection is lost. aiohttp would let him wait for ever behind a chunk that
    cannot be read, and would take a body without a length for whole whose connection was reset. Such a body is whole
    where the upstream has ended its side, whatever becomes of an upload that it no longer needs."""

    _has_ended = False

    def is_connected(self) -> bool:
        return super().is_connected() and not self.should_close

    def eof_received(self) -> None:
        self._has_ended = True
        super().eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        is_broken = not self._has_ended and (exc is not None or self._exception is not None)
        if is_broken and self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(aiohttp.ClientPayloadError())
        super().connection_lost(exc)


async def _timed(parts: AsyncIterator[bytes], limit: asyncio.Timeout, limit_s: float) -> AsyncIterator[bytes]:
    """The parts of an upload. The limit holds for the time in which the upstream takes a part, and for its answer. It
    does not hold while the client sends."""

    def hold(seconds: float | None) -> None:
        with suppress(RuntimeError):  # the answer has come already
            limit.reschedule(seconds and asyncio.get_running_loop().time() + seconds)

    hold(None)
    async for part in parts:
        hold(limit_s)
        yield part
        hold(None)
    hold(limit_s)


def _azure_address(call: Call) -> str:
    """The address of a call of Azure's own API, which a deployment has that sets ``api_version``, as in LiteLLM's
    configuration. Its addresses contain the deployment and the version of the API
    (https://learn.microsoft.com/en-us/azure/ai-services/openai/reference)."""
    deployment, path, query = call.deployment, call.path, call.query
    host = deployment.base_url.partition(_FRONT)[0]
    if path.startswith(f"{_FRONT}/"):
        front = ""
    elif path in _OF_DEPLOYMENTS:
        front = f"{_FRONT}/deployments/{quote(deployment.model, safe='')}"
    else:
        front = _FRONT
    names = {unquote(part.partition("=")[0]).lower() for part in query.split("&")}
    version = f"{_VERSION}={quote(str(deployment.params['api_version']), safe='')}"
    parts = [part for part in (query, "" if _VERSION in names else version) if part]
    return f"{host}{front}{path}?{'&'.join(parts)}"


class HttpAnswer:
    """An open response. Closing it before its end closes the connection, which tells the server to stop."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        # Latin-1 maps every byte to one character and back: the values pass unchanged.
        self.headers: Headers = [
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.raw_headers
        ]
        self.form = form_of(self.headers)
        self._has_more = False

    def chunks(self) -> Self:
        """The body in the pieces in which the network delivers it, and events in small pieces. Raises
        UpstreamUnavailable, UpstreamTimeout if it breaks off. The answer itself is the iterator, because a generator
        could not continue after a wait for it was cancelled."""
        return self

    __aiter__ = chunks

    async def __anext__(self) -> bytes:
        if self._has_more:
            await asyncio.sleep(0)
        content = self._response.content
        try:
            chunk = await (content.read(EVENT_PIECE_BYTES) if self.form.is_events else content.readany())
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error) from error
        self._has_more = self.form.is_events and len(chunk) == EVENT_PIECE_BYTES
        if not chunk:
            raise StopAsyncIteration
        return chunk

    def arrived(self) -> bytes | None:
        """The rest of the body, if all of it has arrived: most short answers come at once."""
        content = self._response.content
        return content.read_nowait() if content.is_eof() and content.exception() is None else None

    async def aclose(self) -> None:
        """Release the connection, or drop it if the body was not read to its end."""
        self._response.close()


def _translated(error: aiohttp.ClientError | OSError) -> UpstreamError:
    """Translates aiohttp's errors to ours: the most specific class wins. Messages name no host and no path."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return UpstreamTimeout("the upstream could not be reached in time").unreached()
        case TimeoutError():
            return UpstreamTimeout("the upstream did not answer in time")
        case aiohttp.ClientConnectorDNSError():
            return UpstreamUnavailable("the name of the upstream's host was not found").unreached()
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLCertVerificationError() as refused):
            # OpenSSL's codes for a certificate of another host or address. Python's messages for them quote the host.
            why = "it is for another host" if refused.verify_code in (62, 64) else refused.verify_message
            return UpstreamUnavailable(f"the upstream's certificate is not accepted: {why}").unreached()
        case aiohttp.ClientConnectorSSLError():
            return UpstreamUnavailable("the upstream does not answer with TLS").unreached()
        case aiohttp.ClientConnectorError():
            return UpstreamUnavailable("the upstream could not be reached").unreached()
        case _:
            return UpstreamUnavailable("the connection to the upstream broke")

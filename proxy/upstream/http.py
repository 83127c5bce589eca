"""The http transport: any OpenAI-compatible server, bytes in and bytes out.

There is one aiohttp session for the life of the process. Nothing is decoded or decompressed, no redirection is
followed, and no cookie is kept. There is no limit on the whole duration of an answer. Only the time to reach the server
and the time without data are limited.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Self
from urllib.parse import quote, unquote

import aiohttp
from yarl import URL

from proxy.engine.headers import content_type, speaks_azure
from proxy.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable
from proxy.ports import Answer, Call, Headers
from proxy.upstream.redacted import redacted

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
    """Sends calls to ``deployment.base_url`` over pooled connections."""

    def __init__(self, *, connect_s: float = CONNECT_S) -> None:
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None

    async def open(self, call: Call) -> Answer:
        """Send the request and wait for status and headers. Raises UpstreamUnavailable, UpstreamTimeout."""
        session = self._session or self._start()
        deployment = call.deployment
        if not call.path.startswith("/"):
            # Without a slash, the path could become a part of the host's name.
            raise UpstreamError("a path begins with a slash")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s, sock_read=deployment.timeout_s)
        try:
            response = await session.request(
                call.method,
                # The path is already percent-encoded and must not be changed.
                URL(_address(call), encoded=True),
                headers=call.headers,
                data=call.body or None,
                allow_redirects=False,
                timeout=timeout,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error) from error
        return await redacted(HttpAnswer(response), call)

    async def aclose(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _start(self) -> aiohttp.ClientSession:
        # The session is made at the first call, because it belongs to the running event loop.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_NO_AUTO_HEADERS,
            read_bufsize=READ_BUFFER_BYTES,
        )
        # aiohttp would repeat a PUT or a DELETE by itself. It has no public name for this; its own test client does it.
        self._session._retry_connection = False
        return self._session


def _address(call: Call) -> str:
    """The address of a call. A deployment that sets ``api_version``, as in LiteLLM's configuration, has Azure's own
    API, whose addresses contain the deployment and the version of the API
    (https://learn.microsoft.com/en-us/azure/ai-services/openai/reference)."""
    deployment, path, query = call.deployment, call.path, call.query
    if not speaks_azure(deployment):
        return f"{deployment.base_url}{path}{'?' if query else ''}{query}"
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
        self._is_events = content_type(self.headers).startswith("text/event-stream")
        self._has_more = False

    def chunks(self) -> AsyncIterator[bytes]:
        """The body in the pieces in which the network delivers it, and events in small pieces. Raises
        UpstreamUnavailable, UpstreamTimeout if it breaks off. The answer itself is the iterator, because a generator
        could not continue after a wait for it was cancelled."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._has_more:
            await asyncio.sleep(0)
        content = self._response.content
        try:
            chunk = await (content.read(EVENT_PIECE_BYTES) if self._is_events else content.readany())
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error) from error
        self._has_more = self._is_events and len(chunk) == EVENT_PIECE_BYTES
        if not chunk:
            raise StopAsyncIteration
        return chunk

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
        case aiohttp.ClientConnectorError():
            return UpstreamUnavailable("the upstream could not be reached").unreached()
        case _:
            return UpstreamUnavailable("the connection to the upstream broke")

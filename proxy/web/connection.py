"""The client's side of an exchange, as ASGI.

This is pure ASGI instead of Starlette's responses. StreamingResponse never closes the generator that it reads, so
garbage collection would decide when the upstream call ends after a disconnect. Here, one coroutine reads, forwards and
answers. Once the request is complete, one small task waits for ``http.disconnect`` and cancels that coroutine.

A client that has closed its side of a connection: it has left, or it has only finished sending.

Both cases look alike until the server sends something. The operating system of a client that has left replies with a
reset. The system of a client that waits for its answer accepts the bytes. So the server sends bytes that every client
must be able to ignore, and checks whether a reset has arrived. Before an answer has begun, it sends ``100 Continue``
(RFC 9110 section 15.2: any number of them, expected or not; never to HTTP/1.0). Between two events of a stream, it
sends a comment. If no such bytes can be sent, the next bytes of the answer show whether the client has left. Otherwise
the system's own keep-alive probes show it, once the system of a client that has left forgets the connection (after a
minute on Linux).
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter

from starlette.types import Receive, Scope, Send

from proxy.core.response.event_format import END_OF_EVENT
from proxy.engine import ClientDisconnected, suppress_and_log
from proxy.engine.headers import content_length, content_type, is_coded, is_safe
from proxy.errors import (
    InternalError,
    PayloadTooLarge,
    ProxyError,
    RequestTimeout,
    ShuttingDown,
    error_body,
    error_form,
    sse_error,
)
from proxy.ports import Headers
from proxy.tasks import Tasks, spawn

EXTENSION = "stratiform.answer"
"""The name of the ``Answer`` in the extensions of an ASGI scope."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
COMMENT = b"3\r\n:\n\n\r\n"
"""An empty comment of a stream of events, as a chunk of the body."""

_FIRST_LOOK_S = 0.02
_LONGEST_LOOK_S = 1.0
_PROBE_S = 15.0
# Some of these names are missing on some systems.
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3))


@dataclass(slots=True)
class Answer:
    """The app's information for the server about its answer. ``takes_comment`` returns whether a comment may be sent
    now."""

    takes_comment: Callable[[], bool] | None = None


class HalfClosed:
    """Watches a connection on which nothing more will be received, and closes it when the client turns out to have
    left. ``probe`` returns the bytes that may be sent now, or no bytes."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, probe: Callable[[], bytes]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._probe = probe
        self._look_s = _FIRST_LOOK_S
        self._probe_in_s = 0.0
        self._next: asyncio.TimerHandle | None = None
        line = transport.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._look()

    def stop(self) -> None:
        """Stop watching."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _look(self) -> None:
        self._next = None
        if self._transport.is_closing():
            return
        if self._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
            return
        if self._probe_in_s <= 0 and (sent := self._probe()):
            self._transport.write(sent)
            self._look_s, self._probe_in_s = _FIRST_LOOK_S, _PROBE_S
        self._next = self._loop.call_later(self._look_s, self._look)
        self._probe_in_s -= self._look_s
        self._look_s = min(_LONGEST_LOOK_S, 2 * self._look_s)


RECEIVE_S = 60.0
# A body may take one more second for each of these units, because an upload over a slow line is not an attack.
_BYTES_PER_SECOND = 16 << 10


class Connection:
    """One request and its answer. ``path`` overrides the path after ``/v1``. ``receive_s`` is the time that a body may
    take in addition to the time that its size explains."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, path: str, *, receive_s: float = RECEIVE_S) -> None:
        self._receive_s = receive_s
        self._answer: Answer | None = scope.get("extensions", {}).get(EXTENSION)
        self._is_between = True
        self._receive = receive
        self._send = send
        self._buffered: list[bytes] = []
        self._is_complete = False
        self.has_left = False
        self._has_ended = False
        self._is_stream = False
        self._served_by: asyncio.Task[object] | None = None
        self._watchers: Tasks = set()
        self.method: str = scope["method"]
        self.path = path
        self.query: str = scope["query_string"].decode("latin-1")
        self.headers: Headers = [(name.decode("latin-1"), _text(value)) for name, value in scope["headers"]]
        self.is_started = False
        self.is_awaited = False
        self.failure: Exception | None = None

    async def serve(self, work: Awaitable[None]) -> None:
        """Run the work. Returns without an error if it was cancelled because the client left. An unexpected exception
        is answered here, because the server would log its traceback, and the message could quote the prompt."""
        self._served_by = task = asyncio.current_task()
        assert task is not None
        contained = suppress_and_log("serving")
        if self._answer is not None:
            self._answer.takes_comment = self._takes_comment
        try:
            with contained:
                await work
            if contained.has_failed and not self.is_started:
                await self.refuse(InternalError("an internal error of the proxy; its log has the details"))
        except asyncio.CancelledError:
            task.uncancel()
            if not self.has_left:
                await self._stopped()
                raise
        finally:
            self._has_ended = True
            if self._answer is not None:
                self._answer.takes_comment = None
            for watcher in self._watchers:
                watcher.cancel()

    def _takes_comment(self) -> bool:
        """Whether the answer is a stream of events and is now between two of them."""
        return self._is_stream and self._is_between and not self._has_ended

    async def _stopped(self) -> None:
        """The server stops, and the work has been cancelled. Tell the client, if that is still possible. An answer that
        is no stream of readable events is left incomplete, so that the client can notice it."""
        error = ShuttingDown("the proxy is shutting down; try again", headers={"retry-after": "1"})
        if not self.is_started:
            await self.refuse(error)
        elif self._is_stream and not self._has_ended:
            event = sse_error(error, error_form(self.path))
            await self.end(event if self._is_between else END_OF_EVENT + event)

    async def read(self, limit: int) -> bytes:
        """The whole request body. Raises PayloadTooLarge, RequestTimeout, ClientDisconnected."""
        return b"".join([chunk async for chunk in self.stream(limit)])

    async def peek(self, limit: int) -> bytes | None:
        """The whole request body, or None if it is longer than ``limit``. ``stream`` has all of it in either case."""
        if (content_length(self.headers) or 0) > limit:
            return None
        size = 0
        async for chunk in self._chunks():
            size += len(chunk)
            self._buffered.append(chunk)
            if size > limit:
                return None
        return b"".join(self._buffered)

    async def stream(self, limit: int) -> AsyncIterator[bytes]:
        """The request body as it arrives. Raises PayloadTooLarge, RequestTimeout, ClientDisconnected."""
        try:
            size = 0
            if (content_length(self.headers) or 0) > limit:
                raise _too_large(limit)
            while self._buffered:
                chunk = self._buffered.pop(0)
                size += len(chunk)
                yield chunk
            async for chunk in self._chunks():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                yield chunk
        except (PayloadTooLarge, RequestTimeout, ClientDisconnected) as error:
            self.failure = error
            raise

    async def start(self, status: int, headers: Headers) -> None:
        """Send status and headers."""
        self.is_started = True
        self._is_stream = content_type(headers).startswith("text/event-stream") and not is_coded(headers)
        raw = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]
        if not self.has_left:
            await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def send(self, chunk: bytes) -> None:
        """Send a part of the answer's body. Waits while the client does not read."""
        self._is_between = chunk.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
        if not self.has_left:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, last: bytes = b"") -> None:
        """Complete the answer's body with its ``last`` part."""
        self._has_ended = True
        if not self.has_left:
            await self._send({"type": "http.response.body", "body": last, "more_body": False})

    async def answer(self, status: int, body: bytes, headers: Headers) -> None:
        """Send a complete answer."""
        await self.start(status, [*headers, ("content-length", str(len(body)))])
        await self.end(body)

    async def refuse(self, error: ProxyError, headers: Headers = ()) -> None:
        """Send a complete error answer."""
        theirs = [(name, value) for name, value in error.headers.items() if is_safe(value)]
        body = error_body(error, error_form(self.path))
        await self.answer(error.status, body, [("content-type", "application/json"), *theirs, *headers])

    async def _chunks(self) -> AsyncIterator[bytes]:
        """The rest of the request body. After its end, a task watches whether the client leaves."""
        began, size = perf_counter(), 0
        while not self._is_complete:
            left_s = self._receive_s + size / _BYTES_PER_SECOND - (perf_counter() - began)
            try:
                async with asyncio.timeout(left_s):
                    message = await self._receive()
            except TimeoutError as error:
                raise RequestTimeout("the request's body did not arrive in time") from error
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            if not message.get("more_body", False):
                self._is_complete = True
                spawn(self._watch(), self._watchers)
            chunk = message.get("body", b"")
            if chunk:
                size += len(chunk)
                yield chunk

    async def _watch(self) -> None:
        """Cancel the work when the client leaves. After a complete answer, the server sends the same message, which is
        then ignored."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._has_ended and self._served_by is not None:
            self.has_left = True
            if not self.is_awaited:
                self._served_by.cancel()


def _text(value: bytes) -> str:
    """Header values are forwarded as UTF-8. A value that is not UTF-8 is read as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the request body is larger than {limit} bytes")

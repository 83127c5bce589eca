"""A connection with a client within its bounds, and one request on it with its answer.

uvicorn does not bound the size, number and time of a request's headers, and does not bound how long a client may leave
its answer unread. httptools collects a header until it ends. Nothing closes a connection on which no request is ever
complete. A client that requests an answer and does not read it holds its buffer, the upstream's connection and its
reservation for any length of time. (h11, which is used if httptools is not installed, bounds the headers' size itself.)

Requests that the parser accepts, but that two servers could read differently, are refused: a request with two hosts,
or one whose body has a transfer coding other than ``chunked``. Trailers after a chunked body are counted and dropped.
uvicorn would add them to the headers, from which the key and the time of a request are read. A request that asks for
another protocol (``Upgrade``) is answered in HTTP/1.1, and its body is its body.

A client that has closed its side of a connection has left, or has only finished sending. Both cases look alike until
the server sends something. The operating system of a client that has left replies with a reset. The system of a client
that waits for its answer accepts the bytes. So the server sends bytes that every client must be able to ignore, and
checks whether a reset has arrived. Before an answer has begun, it sends ``100 Continue`` (RFC 9110 section 15.2: any
number of them, expected or not; never to HTTP/1.0). Between two events of a stream, it sends a comment. If no such
bytes can be sent, the next bytes of the answer show whether the client has left. Otherwise the system's own keep-alive
probes show it, once the system of a client that has left forgets the connection (after a minute on Linux).

A request is pure ASGI instead of Starlette's responses. StreamingResponse never closes the generator that it reads, so
garbage collection would decide when the upstream call ends after a disconnect. Here, one coroutine reads, forwards and
answers. Once the request is complete, that coroutine is cancelled when the client leaves. The protocol here says so at
once; with any other, one small task waits for ``http.disconnect``. The time that a body may take, and its size, are
bounded there.
"""

import asyncio
import math
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any

from starlette.types import Receive, Scope, Send

from proxy.engine import ClientDisconnected, suppress_and_log
from proxy.engine.headers import control_in, form_of
from proxy.kit.errors import (
    HeadersTooLarge,
    InternalError,
    InvalidRequest,
    PayloadTooLarge,
    ProxyError,
    RequestTimeout,
    ShuttingDown,
    error_body,
    error_form,
    sse_error,
)
from proxy.kit.tasks import Tasks, spawn
from proxy.kit.value import dataclass
from proxy.models import Headers
from proxy.protocol.response.event_format import END_OF_EVENT

try:
    from httptools import HttpParserUpgrade, HttpRequestParser
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
except ImportError:  # Windows
    HttpToolsProtocol = None  # type: ignore[assignment,misc]

EXTENSION = "stratiform.answer"
"""The name of the ``AnswerState`` in the extensions of an ASGI scope."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
COMMENT = b"3\r\n:\n\n\r\n"
"""An empty comment of a stream of events, as a chunk of the body."""

_FIRST_LOOK_S = 0.02
_LONGEST_LOOK_S = 1.0
_PROBE_S = 15.0
# Some of these names are missing on some systems.
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3))


@dataclass(slots=True)
class AnswerState:
    """What the app and the server tell each other about an answer. ``watch``: from now on, the server watches whether
    the client leaves, for which it has to read on. ``is_complete``: the request has arrived, so nobody waits for it.
    ``takes_comment`` returns whether a comment may be sent now. ``on_left`` is called when the client leaves."""

    watch: Callable[[], None]
    is_complete: bool = False
    takes_comment: Callable[[], bool] | None = None
    on_left: Callable[[], None] | None = None


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
        line = transport.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._look()

    def _look(self) -> None:
        if self._transport.is_closing():
            return
        if self._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
            return
        if self._probe_in_s <= 0 and (sent := self._probe()):
            self._transport.write(sent)
            self._look_s, self._probe_in_s = _FIRST_LOOK_S, _PROBE_S
        self._loop.call_later(self._look_s, self._look)
        self._probe_in_s -= self._look_s
        self._look_s = min(_LONGEST_LOOK_S, 2 * self._look_s)


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds on a connection. ``head_bytes``, ``headers`` and ``head_s`` bound the head of a request (request line and
    headers): its bytes, the number of headers, and the seconds until it is complete. Not more requests than ``headers``
    wait on one connection.

    ``send_s`` is how long a client may leave sent bytes unread. ``linger_s`` is how long the rest of a request is read
    and dropped behind an answer that did not need it.
    """

    head_bytes: int = 64 << 10
    headers: int = 256
    head_s: float = 30.0
    send_s: float = 300.0
    linger_s: float = 30.0


class _Stop(Exception):
    """Stops the parser."""


def guarded_http(limits: WireLimits) -> Any:
    """The value for uvicorn's option ``http``."""
    if HttpToolsProtocol is None:
        return "auto"
    return type("GuardedProtocol", (_GuardedProtocol,), {"limits": limits})


if HttpToolsProtocol is not None:

    def _end_with_connection(cycle: Any) -> None:
        """Make the end of the connection the end of the answer, because HTTP/1.0 has no chunks (RFC 9112 section 6.1).
        An answer that breaks off ends in a reset instead, so that no client takes it for a whole one.

        uvicorn would send chunks where the app states no length. It compares what is sent to the length that it
        expects, so it is told for each part to expect that part."""
        send, line = cycle.send, cycle.transport.get_extra_info("socket")
        cycle.chunked_encoding = False

        async def send_unframed(message: Any) -> None:
            if cycle.disconnected:
                return
            is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", not is_last, 0))
            cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        cycle.send = send_unframed

    class _Parser(HttpRequestParser):
        """Reads a request that asks for another protocol like any other request (RFC 9110 section 7.8). Java's client
        writes a body behind such a head. httptools would end the request at its head, and would take the body for
        further requests."""

        def __init__(self, protocol: "_GuardedProtocol") -> None:
            super().__init__(protocol)
            # As in uvicorn's own parser: what comes behind a request with ``connection: close`` is no error.
            self.set_dangerous_leniencies(lenient_data_after_close=True)
            self._protocol = protocol

        def feed_data(self, data: Any) -> None:
            protocol, rest = self._protocol, memoryview(data)
            while True:
                try:
                    return HttpRequestParser.feed_data(protocol.parser, rest)
                except HttpParserUpgrade as found:
                    head, protocol.plain_head = protocol.plain_head, b""
                    if not head:
                        return None  # nothing behind the head of a CONNECT is read
                    # A parser that has read ``connection: close`` reads nothing more.
                    protocol.parser = _Parser(protocol)
                    protocol.parser.feed_data(head)
                    rest = rest[found.args[0] :]

    class _GuardedProtocol(HttpToolsProtocol):
        """One connection within the bounds. It is the transport of its own answers."""

        limits = WireLimits()
        # The head of a request that asks for another protocol, without the question.
        plain_head = b""
        _in_head = True
        _head_bytes = 0
        _refusal: ProxyError | None = None
        _deadline: asyncio.TimerHandle | None = None
        _stall: asyncio.TimerHandle | None = None
        _half_closed: HalfClosed | None = None
        _has_ended = False
        # The requests that are not answered completely: the one that is served, and those that wait behind it.
        _cycles: Sequence[Any] = ()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.parser = _Parser(self)
            self.headers = []
            self.write = transport.write
            self._limit(self.limits.head_s, self._on_deadline)

        def connection_lost(self, exc: Exception | None) -> None:
            self._drop_deadline()
            self.resume_writing()
            self._disconnect()
            super().connection_lost(exc)

        def eof_received(self) -> bool:  # type: ignore[override]
            """The client has closed its side. Returns whether the connection stays open: it does if a complete request
            is being served whose answer the client may still await."""
            if self._has_ended or self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
                self.drop()
                return False
            self.cycle.keep_alive = False
            # uvicorn before 0.54 closes the connection without announcing it.
            self.cycle.default_headers = [*self.cycle.default_headers, (b"connection", b"close")]
            if self._half_closed is None:
                self._half_closed = HalfClosed(self.transport, self.loop, self._probe)
            return True

        def _probe(self) -> bytes:
            """Bytes that a client which still reads ignores."""
            cycle = self.cycle
            if self.pipeline or self.transport.get_write_buffer_size():
                return b""
            if not cycle.response_started:
                return CONTINUE if cycle.scope["http_version"] == "1.1" else b""
            answer: Any = cycle.scope["extensions"][EXTENSION]
            takes_comment = answer.takes_comment
            return COMMENT if cycle.chunked_encoding and takes_comment is not None and takes_comment() else b""

        def pause_writing(self) -> None:
            """The client has left a full buffer unread."""
            if self._stall is None:
                self._stall = self.loop.call_later(self.limits.send_s, self.transport.abort)
            super().pause_writing()

        def resume_writing(self) -> None:
            """The client has read most of the buffer."""
            if self._stall is not None:
                self._stall.cancel()
                self._stall = None
            super().resume_writing()

        def on_response_complete(self) -> None:
            if self._has_ended:
                return
            super().on_response_complete()
            if not self._in_head and self._deadline is None:
                self._limit(self.limits.linger_s, self.drop)

        def shutdown(self) -> None:
            """The server stops. An answer whose request is still arriving must not be lost."""
            if self._has_ended:
                return
            if not self._in_head and self.cycle.response_complete:
                self.close()
            else:
                super().shutdown()

        def close(self) -> None:
            """End the connection behind an answer whose client may still be sending. A system that closes a connection
            with unread bytes resets it, and the client loses the answer (RFC 9112 section 9.6). So this side ends, and
            what still arrives is dropped until the client ends its side. An answer that breaks off is not ended,
            because its client has to notice."""
            if self._half_closed is not None or self._is_amid_answer() or not self.transport.can_write_eof():
                self.drop()
                return
            self._has_ended = True
            self._limit(self.limits.linger_s, self.drop)
            self.flow.resume_reading()
            self.transport.write_eof()

        def drop(self) -> None:
            """Close the connection once the client has read what was sent. It gets a last time for that."""
            self._has_ended = True
            self._limit(self.limits.send_s, self.transport.abort)
            self.transport.close()

        timeout_keep_alive_handler = drop

        def is_closing(self) -> bool:
            return self._has_ended or self.transport.is_closing()

        def _is_amid_answer(self) -> bool:
            return any(one.response_started and not one.response_complete for one in self._cycles)

        def data_received(self, data: bytes) -> None:
            # What comes behind the last request of a connection is dropped.
            if self._has_ended or (self._in_head and self.cycle is not None and not self.cycle.keep_alive):
                return
            self._head_bytes += len(data)
            super().data_received(data)
            if not (self._head_bytes or self.headers) or self._has_ended:
                return
            # A head has not ended, or a chunk, or the trailers. No callback is called for a header that does not end.
            if (error := self._head_error(self._head_bytes)) is not None:
                self._refuse(error)
            elif self._in_head and self._head_bytes and self._deadline is None:
                self._limit(self.limits.head_s, self._on_deadline)

        def on_headers_complete(self) -> None:
            size = len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])
            self._refusal = self._head_error(size)
            if self._refusal is not None:
                raise _Stop
            if self.parser.should_upgrade() and any(name == b"upgrade" for name, _ in self.headers):
                plain = [pair for pair in self.headers if pair[0] != b"upgrade"]
                method, version = self.parser.get_method(), self.parser.get_http_version().encode()
                lines = (b"%b %b HTTP/%b" % (method, self.url, version), *(b"%b: %b" % pair for pair in plain))
                self.plain_head = b"\r\n".join((*lines, b"", b""))
                return
            # httptools itself refuses a length together with a transfer coding, two lengths, and invalid lengths.
            codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
            is_strange = codings and (codings != [b"chunked"] or self.parser.get_http_version() != "1.1")
            if is_strange or sum(name == b"host" for name, _ in self.headers) > 1:
                problem = "more than one Host header, or a transfer coding other than `chunked` (once, not in HTTP/1.0)"
                self._refusal = InvalidRequest(f"the request has {problem}", code="ambiguous_request")
                raise _Stop
            self._in_head = False
            self._head_bytes = 0
            self._drop_deadline()
            self.scope["extensions"] = {EXTENSION: AnswerState(self.flow.resume_reading)}  # type: ignore[dict-item]
            super().on_headers_complete()
            self.headers = []  # the trailers, which are dropped
            if self.cycle.scope["http_version"] == "1.0":
                _end_with_connection(self.cycle)
            self.cycle.transport = self  # type: ignore[assignment]
            self._cycles = [*(one for one in self._cycles if not one.response_complete), self.cycle]

        def on_body(self, body: bytes) -> None:
            self._head_bytes = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            if self.plain_head:
                return  # the same request is read again, with its body
            self._in_head = True
            self._head_bytes = 0
            self._drop_deadline()
            self.scope["extensions"][EXTENSION].is_complete = True  # type: ignore[attr-defined]
            super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            """Refuse a request that the parser could not read, or whose reading was stopped."""
            self._refuse(
                self._refusal or InvalidRequest("this is no HTTP request that can be read", code="invalid_http")
            )

        def _head_error(self, size: int) -> HeadersTooLarge | None:
            """The refusal of a head, or of trailers, if so many bytes, headers or waiting requests are too many."""
            if size <= self.limits.head_bytes and max(len(self.headers), len(self.pipeline)) <= self.limits.headers:
                return None
            most = f"{self.limits.headers} headers, or {self.limits.head_bytes} bytes of them"
            return HeadersTooLarge(f"the request has more than {most}, or as many requests wait in front of it")

        def _limit(self, seconds: float, on_deadline: Callable[[], None]) -> None:
            self._drop_deadline()
            self._deadline = self.loop.call_later(seconds, on_deadline)

        def _drop_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _on_deadline(self) -> None:
            self._deadline = None
            if self.cycle is not None and not self.cycle.response_complete:
                # The head of a further request is arriving while the one before is still being answered.
                self._limit(self.limits.head_s, self._on_deadline)
            elif self._head_bytes:
                self._refuse(RequestTimeout("the request's headers did not arrive in time"))
            else:
                self.drop()

        def _disconnect(self) -> None:
            """Tell all requests of the connection that nobody waits for an answer. uvicorn tells only the last one."""
            for cycle in self._cycles:
                cycle.disconnected = not cycle.response_complete
                cycle.message_event.set()
                answer: Any = cycle.scope["extensions"][EXTENSION]
                if answer.on_left is not None:
                    answer.on_left()

        def _refuse(self, error: ProxyError) -> None:
            if not self._is_amid_answer():
                body = error_body(error)
                head = STATUS_LINE[error.status] + b"content-type: application/json\r\nconnection: close\r\n"
                self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            self._disconnect()
            self.close()


# A body may take one more second for each of these units, because an upload over a slow line is not an attack.
_BYTES_PER_SECOND = 16 << 10


class Connection:
    """One request and its answer (``engine.ports.Client``). ``path`` overrides the path after ``/v1``. ``receive_s`` is
    the time that a body may take in addition to the time that its size explains."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, path: str, *, receive_s: float = 60.0) -> None:
        self._receive_s = receive_s
        # Another server than ours knows no such state, and is asked by a task.
        self._answer: AnswerState = scope.get("extensions", {}).get(EXTENSION) or AnswerState(self._watch)
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
        self.headers: Headers = [
            (name.decode("latin-1"), value.decode("ascii") if value.isascii() else _text(value))
            for name, value in scope["headers"]
        ]
        self.is_started = False
        self.is_awaited = False
        self.failure: Exception | None = None

    async def serve(self, work: Awaitable[None]) -> None:
        """Run the work. Returns without an error if it was cancelled because the client left. An unexpected exception
        is answered here, because the server would log its traceback, and the message could quote the prompt."""
        self._served_by = task = asyncio.current_task()
        assert task is not None
        contained = suppress_and_log("serving")
        # A comment may stand between two events of a stream.
        self._answer.takes_comment = lambda: self._is_stream and self._is_between and not self._has_ended
        try:
            with contained:
                await work
            if contained.has_failed and not self.is_started:
                await self.refuse(InternalError("an internal error of the proxy; its log has the details"))
        except asyncio.CancelledError:
            task.uncancel()
            if self.has_left:
                return
            # The server stops. The client is told, if that is still possible. An answer that is no stream of readable
            # events is left incomplete, so that the client can notice it.
            error = ShuttingDown("the proxy is shutting down; try again", headers={"retry-after": "1"})
            if not self.is_started:
                await self.refuse(error)
            elif self._is_stream and not self._has_ended:
                event = sse_error(error, error_form(self.path))
                await self.end(event if self._is_between else END_OF_EVENT + event)
            raise
        finally:
            self._has_ended = True
            self._answer.takes_comment = self._answer.on_left = None
            for watcher in self._watchers:
                watcher.cancel()

    async def read(self, limit: int) -> bytes:
        return b"".join([chunk async for chunk in self.stream(limit)])

    async def peek(self, limit: int) -> bytes | None:
        if (form_of(self.headers).length or 0) > limit:
            return None
        size = 0
        async for chunk in self.stream(math.inf):
            size += len(chunk)
            self._buffered.append(chunk)
            if size > limit:
                return None
        return b"".join(self._buffered)

    async def stream(self, limit: float) -> AsyncIterator[bytes]:
        size, began = 0, perf_counter()
        try:
            if (form_of(self.headers).length or 0) > limit:
                raise _too_large(limit)
            while self._buffered:
                chunk = self._buffered.pop(0)
                size += len(chunk)
                yield chunk
            while not self._is_complete:
                if self._answer.is_complete:
                    message = await self._receive()  # it is there
                else:
                    left_s = self._receive_s + size / _BYTES_PER_SECOND - (perf_counter() - began)
                    async with asyncio.timeout(left_s):
                        message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                self._is_complete = not message.get("more_body", False)
                if self._is_complete:
                    self._answer.on_left = self._leave
                    self._answer.watch()
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                if chunk:
                    yield chunk
        except TimeoutError as error:
            self.failure = RequestTimeout("the request's body did not arrive in time")
            raise self.failure from error
        except (PayloadTooLarge, ClientDisconnected) as error:
            self.failure = error
            raise

    async def start(self, status: int, headers: Headers) -> None:
        self.is_started = True
        form = form_of(headers)
        self._is_stream = form.is_events and not form.is_coded
        raw = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]
        if not self.has_left:
            await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def send(self, chunk: bytes) -> None:
        self._is_between = chunk.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
        if not self.has_left:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, last: bytes = b"") -> None:
        self._has_ended = True
        if not self.has_left:
            await self._send({"type": "http.response.body", "body": last, "more_body": False})

    async def answer(self, status: int, body: bytes, headers: Headers) -> None:
        """Send a complete answer."""
        await self.start(status, [*headers, ("content-length", str(len(body)))])
        await self.end(body)

    async def refuse(self, error: ProxyError, headers: Headers = ()) -> None:
        theirs = [(name, value) for name, value in error.headers.items() if not control_in(value)]
        body = error_body(error, error_form(self.path))
        await self.answer(error.status, body, [("content-type", "application/json"), *theirs, *headers])

    def _watch(self) -> None:
        spawn(self._wait_for_disconnect(), self._watchers)

    async def _wait_for_disconnect(self) -> None:
        """After a complete answer, the server sends the same message, which is then ignored."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        """The client has left: cancel the work."""
        if self._has_ended or self.has_left or self._served_by is None:
            return
        self.has_left = True
        if not self.is_awaited:
            self._served_by.cancel()


def _text(value: bytes) -> str:
    """Header values are forwarded as UTF-8. A value that is not UTF-8 is read as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _too_large(limit: float) -> PayloadTooLarge:
    return PayloadTooLarge(f"the request body is larger than {limit} bytes")

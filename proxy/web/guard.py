"""Bounds on a connection: the size, number and time of a request's headers, and how long a client may leave its answer
unread.

uvicorn has none of these bounds. httptools collects a header until it ends. Nothing closes a connection on which no
request is ever complete. A client that requests an answer and does not read it holds its buffer, the upstream's
connection and its reservation for any length of time. (h11, which is used if httptools is not installed, bounds the
headers' size itself.) The bounds of a body are in ``proxy.web.connection``.

Requests that the parser accepts, but that two servers could read differently, are refused here: a request with two
hosts, or one whose body has a transfer coding other than ``chunked``. Trailers after a chunked body are counted and
dropped. uvicorn would add them to the headers, from which the key and the time of a request are read.
"""

import asyncio
import socket
import struct
from collections.abc import Sequence
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from proxy.core.value import dataclass
from proxy.errors import HeadersTooLarge, InvalidRequest, ProxyError, RequestTimeout, error_body
from proxy.web.connection import COMMENT, CONTINUE, EXTENSION, Answer, HalfClosed

try:
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
except ImportError:  # Windows
    HttpToolsProtocol = None  # type: ignore[assignment,misc]


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds on a connection. ``head_bytes``, ``headers`` and ``head_s`` bound the head of a request (request line and
    headers): its bytes, the number of headers, and the seconds until it is complete.

    ``send_s`` is how long a client may leave sent bytes unread. ``linger_s`` is how long the rest of a refused request
    is read, so that the answer is not lost.
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


def ambiguity(headers: Sequence[tuple[bytes, bytes]], http_version: str) -> str:
    """The part of a request's head that two servers could read differently; empty if there is none. Names are in lower
    case. httptools itself refuses a length together with a transfer coding, two lengths, and invalid lengths."""
    hosts = codings = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings += 1
            if codings > 1 or value.strip().lower() != b"chunked" or http_version != "1.1":
                return "the only transfer coding that is taken is `chunked`, once, in HTTP/1.1"
    return "the request has more than one Host header" if hosts > 1 else ""


if HttpToolsProtocol is not None:

    def _end_with_connection(cycle: Any) -> None:
        """Make the end of the connection the end of the answer, because HTTP/1.0 has no chunks (RFC 9112 section 6.1).
        An answer that breaks off ends in a reset instead, so that no client takes it for a whole one.

        uvicorn would send chunks where the app states no length. It compares what is sent to the length that it
        expects, so it is told for each part to expect that part."""
        send, line = cycle.send, cycle.transport.get_extra_info("socket")
        cycle.chunked_encoding = False

        async def send_unframed(message: Any) -> None:
            is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", not is_last, 0))
            cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        cycle.send = send_unframed

    class _GuardedProtocol(HttpToolsProtocol):
        """One connection within the bounds."""

        limits = WireLimits()

        def __init__(
            self,
            config: Config,
            server_state: ServerState,
            app_state: dict[str, Any],
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> None:
            super().__init__(config, server_state, app_state, _loop)
            self._in_head = True
            self._head_bytes = 0
            self._count = 0
            self._refusal: ProxyError | None = None
            self._deadline: asyncio.TimerHandle | None = None
            self._stall: asyncio.TimerHandle | None = None
            self._half_closed: HalfClosed | None = None
            self._cycles: list[Any] = []
            """The requests that are not answered completely: the one that is served, and those that wait behind it."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._set_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            self._drop_deadline()
            if self._half_closed is not None:
                self._half_closed.stop()
            self.resume_writing()
            self._disconnect()
            super().connection_lost(exc)

        def eof_received(self) -> bool:  # type: ignore[override]
            """The client has closed its side. Returns whether the connection stays open: it does if a complete request
            is being served whose answer the client may still await."""
            if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
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
            answer: Any = (cycle.scope.get("extensions") or {}).get(EXTENSION)
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
            super().on_response_complete()
            if not self._in_head and self._deadline is None:
                self._deadline = self.loop.call_later(self.limits.linger_s, self.transport.abort)

        def timeout_keep_alive_handler(self) -> None:
            """The connection was idle for too long. Closing waits until the client has read everything: a client that
            has not read the answer by now will not read it."""
            if self.transport.get_write_buffer_size():
                self.transport.abort()
            super().timeout_keep_alive_handler()

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                if self._deadline is None:
                    self._set_deadline()
                self._head_bytes += len(data)
            super().data_received(data)
            # No callback is called for a header that does not end.
            if self._in_head and self._head_bytes > self.limits.head_bytes and not self.transport.is_closing():
                self._refuse(HeadersTooLarge(f"the request's headers are larger than {self.limits.head_bytes} bytes"))

        def on_message_begin(self) -> None:
            self._count = self._size = 0
            super().on_message_begin()
            self.scope["extensions"] = {EXTENSION: Answer()}  # type: ignore[dict-item]

        def on_url(self, url: bytes) -> None:
            self._grow(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._count += 1
            self._grow(len(name) + len(value) + 4)
            if self._in_head:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            problem = ambiguity(self.headers, self.parser.get_http_version())
            if problem:
                self._refusal = InvalidRequest(problem, code="ambiguous_request")
                raise _Stop
            self._in_head = False
            self._drop_deadline()
            super().on_headers_complete()
            if self.cycle.scope["http_version"] == "1.0":
                _end_with_connection(self.cycle)
            self._cycles = [one for one in self._cycles if not one.response_complete]
            self._cycles.append(self.cycle)

        def on_message_complete(self) -> None:
            self._in_head = True
            self._head_bytes = 0
            self._drop_deadline()
            super().on_message_complete()

        def _unsupported_upgrade_warning(self) -> None:
            """Log nothing. A request to upgrade to another protocol is answered in HTTP/1.1 (RFC 9110 section 7.8). The
            server's warning would suggest installing a package, but none would help."""

        def send_400_response(self, msg: str) -> None:
            """Refuse a request that the parser could not read, or whose reading was stopped."""
            self._refuse(
                self._refusal or InvalidRequest("this is no HTTP request that can be read", code="invalid_http")
            )

        def _grow(self, size: int) -> None:
            """Count bytes of the head. Trailers count as well."""
            self._size += size
            if self._size > self.limits.head_bytes or self._count > self.limits.headers:
                most = f"{self.limits.headers} headers, or {self.limits.head_bytes} bytes of them"
                self._refusal = HeadersTooLarge(f"the request has more than {most}")
                raise _Stop

        def _set_deadline(self) -> None:
            self._deadline = self.loop.call_later(self.limits.head_s, self._on_deadline)

        def _drop_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _on_deadline(self) -> None:
            self._deadline = None
            if self.cycle is not None and not self.cycle.response_complete:
                # The head of a further request is arriving while the one before is still being answered.
                self._set_deadline()
            elif self._head_bytes:
                self._refuse(RequestTimeout("the request's headers did not arrive in time"))
            else:
                self.transport.close()

        def _disconnect(self) -> None:
            """Tell all requests of the connection that nobody waits for an answer. uvicorn tells only the last one."""
            for cycle in self._cycles:
                cycle.disconnected = not cycle.response_complete
                cycle.message_event.set()

        def _refuse(self, error: ProxyError) -> None:
            self._drop_deadline()
            if not any(one.response_started and not one.response_complete for one in self._cycles):
                body = error_body(error)
                head = STATUS_LINE[error.status] + b"content-type: application/json\r\nconnection: close\r\n"
                self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            self._disconnect()
            self.transport.close()

"""A client that has closed its side of a connection: it has left, or it has only finished sending.

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
from collections.abc import Callable
from dataclasses import dataclass

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

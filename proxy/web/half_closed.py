"""A client that has ended its side of a connection: it has left, or it is only done with sending.

Both look alike until something is sent to it: the system of one that has left answers that with a reset, that of one
that waits for its answer takes it. So the server sends what every client must be able to pass over, and looks whether a
reset has come: ``100 Continue`` before an answer has begun (RFC 9110 section 15.2: any number of them, expected or not;
never to HTTP/1.0), a comment between two events of a stream. Where there is nothing of the kind to send, the answer's
next bytes show it, or the system's own probes, when the system of a client that has left forgets the connection (after
a minute on Linux).
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

EXTENSION = "stratiform.answer"
"""The ``Answer`` among the extensions of an ASGI scope."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
COMMENT = b"3\r\n:\n\n\r\n"
"""An empty comment of a stream of events, as a chunk of the body."""

_FIRST_LOOK_S = 0.02
_LONGEST_LOOK_S = 1.0
_PROBE_S = 15.0
# Names that are missing on some systems.
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3))


@dataclass(slots=True)
class Answer:
    """What the app tells the server of its answer: ``takes_comment`` says whether a comment may stand here."""

    takes_comment: Callable[[], bool] | None = None


class HalfClosed:
    """Watches a connection on which nothing more will be received, and ends it when its client turns out to have left.
    ``probe`` gives the bytes that may be sent now, or nothing."""

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
        """Watch no longer."""
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

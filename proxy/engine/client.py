"""What the engine asks of the client's side of an exchange."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from proxy.errors import ProxyError
from proxy.ports import Headers


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of a request body: the most that one may have that asks a model, the most that is read on other paths to
    find the model's name (a larger one goes to the fallback deployment, unread), and the most that is streamed through.

    ``receive_s``: the time that a body may take beyond what its size explains.
    """

    body_bytes: int = 64 << 20
    peek_bytes: int = 8 << 20
    upload_bytes: int = 1 << 30
    receive_s: float = 60.0


class ClientDisconnected(Exception):
    """The client left before its request was complete."""


class Client(Protocol):
    """The client's side of one exchange. Header names are lower case; ``path`` starts behind ``/v1``.

    Sending waits while the client does not read. From the end of the request on, the client's leaving cancels the
    task that serves it.
    """

    method: str
    path: str
    query: str
    headers: Headers
    is_started: bool
    failure: Exception | None
    """What broke the request's body off."""
    is_awaited: bool
    """Set while the answer must be heard to its end, also when the client has left: then nothing is cancelled."""
    has_left: bool
    """The client left while its answer was awaited."""

    async def read(self, limit: int) -> bytes:
        """The whole request body. Raises PayloadTooLarge, HungUp."""

    async def peek(self, limit: int) -> bytes | None:
        """The whole request body, or None where it is longer than that; ``stream`` has all of it in either case."""

    def stream(self, limit: int) -> AsyncIterator[bytes]:
        """The request body as it arrives. Raises PayloadTooLarge, HungUp."""

    async def start(self, status: int, headers: Headers) -> None:
        """Send status and headers."""

    async def send(self, chunk: bytes) -> None:
        """Send a part of the answer's body."""

    async def end(self) -> None:
        """The answer's body is complete. An answer that is not ended is cut off, so that the client can tell."""

    async def refuse(self, error: ProxyError, headers: Headers) -> None:
        """Send a complete error answer."""

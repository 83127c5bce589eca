"""Small HTTP servers for tests: requests are read whole, then answered. ``tests.doubles.serving`` runs them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Message, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes


class Receiver(ABC):
    """An ASGI app without a lifespan. Subclasses give the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            await self.answer(Received(scope["path"], headers, await whole_body(receive)), send, receive)

    @abstractmethod
    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        """Answer the request. ``receive`` reports a client that hangs up."""


async def whole_body(receive: Receive) -> bytes:
    """The whole body of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def send_whole(send: Send, status: int, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()) -> None:
    """A complete answer."""
    await send(head(status, [*headers, ("content-length", str(len(body)))]))
    await send(part(body, more=False))


def head(status: int, headers: Sequence[tuple[str, str]]) -> Message:
    """The start of an answer."""
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": raw}


def part(body: bytes = b"", *, more: bool = True) -> Message:
    """A part of an answer's body."""
    return {"type": "http.response.body", "body": body, "more_body": more}

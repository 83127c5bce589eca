"""Providers on real sockets: one that really caches and bills, and one that answers as a test scripts it."""

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.app.web import Parts, create_app
from proxy.engine import Engine, Ports
from proxy.kit.clock import SystemClock
from proxy.models import Transport
from proxy.protocol.providers import ANTHROPIC, CacheProfile
from proxy.protocol.request.tokens import bytes_over_four
from proxy.upstream.embedded import EmbeddedUpstream
from tests.doubles import Ledger, ModelList, NoMetrics, OpenDoor, PassthroughPlanner, make_deployment
from tests.receiver import head, part, send_whole

WAIT_S = 60.0
Reply = Callable[["Seen", Send, Receive], Awaitable[None]]


def embedded_app(upstream: EmbeddedUpstream, profile: CacheProfile = ANTHROPIC, **params: object) -> ASGIApp:
    """The embedded provider as a server of its own: a bare engine puts it on HTTP."""
    deployment = make_deployment(transport=Transport.EMBEDDED, profile=profile, params=params)
    models = ModelList({"*": deployment})
    engine = Engine(
        Ports(
            models=models,
            upstreams={Transport.EMBEDDED: upstream},
            planner=PassthroughPlanner(),
            admission=OpenDoor(),
            meter=Ledger(),
            clock=SystemClock(),
        )
    )
    return create_app(Parts(engine, models, NoMetrics()))


def new_embedded() -> EmbeddedUpstream:
    """An embedded provider that counts a token for four bytes."""
    return EmbeddedUpstream(bytes_over_four)


@dataclass
class Seen:
    """A request as the scripted provider got it."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    started: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)


class Scripted:
    """An ASGI app that gives prepared answers, the last one again and again, and keeps what it was sent."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = deque(replies)
        self.seen: list[Seen] = []
        self._arrived = threading.Condition()

    def wait(self, count: int = 1) -> Seen:
        """The last of that many requests, as soon as it has arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.seen) >= count, WAIT_S)
            return self.seen[count - 1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        seen = Seen(
            method=scope["method"],
            path=scope["raw_path"].decode(),
            query=scope["query_string"].decode(),
            headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
        )
        with self._arrived:
            self.seen.append(seen)
            self._arrived.notify_all()
        reply = self.replies.popleft() if len(self.replies) > 1 else self.replies[0]
        await reply(seen, send, receive)


async def read_body(seen: Seen, receive: Receive) -> None:
    """The whole request body."""
    more = True
    while more:
        message = await receive()
        seen.body += message.get("body", b"")
        seen.started.set()
        more = message.get("more_body", False)


def replies(body: object, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Reply:
    """A complete answer; what is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    kind = () if any(name == "content-type" for name, _ in headers) else (("content-type", "application/json"),)

    async def reply(seen: Seen, send: Send, receive: Receive) -> None:
        await read_body(seen, receive)
        await send_whole(send, status, data, [*kind, *headers])

    return reply


def streams(*chunks: bytes, ends: bool = True, cut: bool = False) -> Reply:
    """A stream of events. Where it does not end, it waits for the client to leave; ``cut`` breaks the line."""

    async def reply(seen: Seen, send: Send, receive: Receive) -> None:
        await read_body(seen, receive)
        await send(head(200, [("content-type", "text/event-stream; charset=utf-8")]))
        for chunk in chunks:
            await send(part(chunk))
        if cut:
            return
        if not ends:
            while (await receive())["type"] != "http.disconnect":
                pass
            seen.gone.set()
            return
        await send(part(more=False))

    return reply


def event(payload: object) -> bytes:
    """A server-sent event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def chunk(content: str | None = None, *, finish: str | None = None, **delta: object) -> bytes:
    """A chunk of a streamed chat completion."""
    if content is not None:
        delta["content"] = content
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({**_BASE, "object": "chat.completion.chunk", "choices": [choice]})


def usage_chunk() -> bytes:
    """The chunk that carries usage alone."""
    return event({**_BASE, "object": "chat.completion.chunk", "choices": [], "usage": USAGE})


def completion(message: dict[str, object] | None = None, finish: str = "stop") -> dict[str, object]:
    """A chat completion."""
    said = {"role": "assistant", "content": "fine", **(message or {})}
    choice = {"index": 0, "finish_reason": finish, "message": said}
    return {**_BASE, "object": "chat.completion", "choices": [choice], "usage": USAGE}


_BASE: dict[str, object] = {"id": "chatcmpl-1", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
DONE = b"data: [DONE]\n\n"

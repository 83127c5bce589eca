"""A provider that remembers what reached it, answers every path plausibly, and bills what it really served.

It listens on a socket of its own, so that what counts is what the wire carried. Its bill (``tokens``, ``usd``) is kept
apart from what the proxy believes, so that a test can compare the two.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from tests.receiver import head, part, whole_body

Pairs = Sequence[tuple[str, str]]
INPUT_USD, OUTPUT_USD = 0.000002, 0.00001
"""What a token costs at every provider of the tests, in and out; the configurations say the same."""
BYTES_PER_TOKEN = 4
_LIMITS = {
    "/completions": ("max_tokens",),
    "/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/responses": ("max_output_tokens",),
    "/messages": ("max_tokens",),
}
_USUAL_OUTPUT_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it reached the provider. ``path`` is as it stood on the wire, without the query."""

    provider: str
    method: str
    path: str
    query: str
    headers: Pairs
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed; an empty object where it is no JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key == name]

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.values(name)), None)

    @property
    def text(self) -> str:
        """Everything that was sent, to search in."""
        lines = [f"{self.method} {self.path}?{self.query}", *(f"{name}: {value}" for name, value in self.headers)]
        return "\n".join([*lines, "", self.body.decode("utf-8", "replace")])


@dataclass(frozen=True, slots=True)
class Answer:
    """What a script answers. A body that is no bytes and no stream is sent as JSON; a stream may be an iterable of
    chunks, or an asynchronous one, which may wait; where it raises ConnectionError, the line breaks."""

    status: int = 200
    body: object = b""
    headers: Pairs = ()

    @property
    def is_stream(self) -> bool:
        """Whether the body comes in chunks."""
        return isinstance(self.body, AsyncIterator) or (
            isinstance(self.body, Iterable) and not isinstance(self.body, bytes | str | dict | list)
        )


Script = Callable[[Seen], Answer | None]


@dataclass
class RecordingProvider:
    """An ASGI app. ``script`` answers what it wants to and leaves the rest to the usual answers by returning None."""

    name: str
    script: Script | None = None
    seen: list[Seen] = field(default_factory=list)
    usd: float = 0.0
    tokens: tuple[int, int] = (0, 0)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def forget(self) -> None:
        """As if nothing had happened."""
        with self._lock:
            self.seen.clear()
            self.script, self.usd, self.tokens = None, 0.0, (0, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        seen = Seen(
            provider=self.name,
            method=scope["method"],
            path=scope["raw_path"].decode("latin-1"),
            query=scope["query_string"].decode("latin-1"),
            headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
            body=await whole_body(receive),
        )
        with self._lock:
            self.seen.append(seen)
        answer = self.script(seen) if self.script is not None else None
        await _send_answer(send, answer or self._usual(seen))

    def _usual(self, seen: Seen) -> Answer:
        body = seen.json if isinstance(seen.json, dict) else {}
        asked = next((path for path in sorted(_LIMITS, key=len, reverse=True) if seen.path.endswith(path)), "")
        if seen.method != "POST":
            return Answer(body={"object": "list", "data": []})
        prompt, output = len(seen.body) // BYTES_PER_TOKEN, _output_tokens(body, _LIMITS[asked]) if asked else 0
        with self._lock:
            self.tokens = (self.tokens[0] + prompt, self.tokens[1] + output)
            self.usd += prompt * INPUT_USD + output * OUTPUT_USD
        if not asked:
            usage = {"prompt_tokens": prompt, "total_tokens": prompt}
            return Answer(body={"id": "obj-1", "object": "object", "data": [], "usage": usage})
        if asked in ("/responses", "/messages"):
            usage = {"input_tokens": prompt, "output_tokens": output}
        else:
            usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        if body.get("stream") is True:
            return Answer(body=events(asked, usage), headers=[("content-type", "text/event-stream")])
        return Answer(body=complete(asked, usage))


def _output_tokens(body: dict[str, Any], limits: Sequence[str]) -> int:
    """The longest answer that the request allows: this provider always gives it."""
    longest = max((int(body[name]) for name in limits if _is_number(body.get(name))), default=_USUAL_OUTPUT_TOKENS)
    answers = max((int(float(body[name])) for name in ("n", "best_of") if body.get(name)), default=1)
    prompts = body.get("prompt")
    return longest * answers * (len(prompts) if isinstance(prompts, list) and prompts else 1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def complete(path: str, usage: object) -> dict[str, object]:
    """A whole answer of this path."""
    said = {"role": "assistant", "content": "Yes."}
    match path:
        case "/responses":
            item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
            return {"id": "resp_1", "object": "response", "status": "completed", "output": [item], "usage": usage}
        case "/messages":
            content = [{"type": "text", "text": "Yes."}]
            return {"id": "msg_1", "type": "message", "role": "assistant", "content": content, "usage": usage}
        case "/completions":
            choice: dict[str, object] = {"index": 0, "text": "Yes.", "finish_reason": "stop"}
            return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], "usage": usage}
    choice = {"index": 0, "message": said, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "choices": [choice], "usage": usage}


def events(path: str, usage: object) -> Iterable[bytes]:
    """The same as a stream of events."""
    if path == "/responses":
        yield event({"type": "response.output_text.delta", "delta": "Yes."}, "response.output_text.delta")
        yield event({"type": "response.completed", "response": complete(path, usage)}, "response.completed")
        return
    if path == "/messages":
        yield event({"type": "message_start", "message": {"id": "msg_1", "usage": usage}}, "message_start")
        yield event({"type": "message_delta", "delta": {}, "usage": usage}, "message_delta")
        yield event({"type": "message_stop"}, "message_stop")
        return
    delta = {"text": "Yes."} if path == "/completions" else {"delta": {"role": "assistant", "content": "Yes."}}
    yield event({"id": "chatcmpl-1", "choices": [{"index": 0, **delta}]})
    yield event({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield event({"id": "chatcmpl-1", "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def event(payload: object, name: str = "") -> bytes:
    """A server-sent event."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + orjson.dumps(payload) + b"\n\n"


async def _send_answer(send: Send, answer: Answer) -> None:
    names = {name.lower() for name, _ in answer.headers}
    kind = [] if "content-type" in names else [("content-type", "application/json")]
    if answer.is_stream:
        await send(head(answer.status, [*kind, *answer.headers]))
        try:
            async for chunk in _chunks(answer.body):
                await send(part(chunk))
        except ConnectionError:
            return  # the server cuts the line
        await send(part(more=False))
        return
    body = answer.body if isinstance(answer.body, bytes) else orjson.dumps(answer.body)
    await send(head(answer.status, [*kind, *answer.headers, ("content-length", str(len(body)))]))
    await send(part(body, more=False))


async def _chunks(body: Any) -> AsyncIterator[bytes]:
    if isinstance(body, AsyncIterator):
        async for chunk in body:
            yield chunk
        return
    for chunk in body:
        yield chunk

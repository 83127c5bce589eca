"""A provider that fails in every way that a socket allows. What it does to a request stands in the path.

``/KEY/FAULT/v1/...``: the calls are counted by key. Errors have the form of the path: Anthropic's under ``/messages``.
"""

import json
import socket
import socketserver
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.unread import is_taken
from tests.waiting import until

SILENCE_S = 600.0
BREAK_S = 1.0
WAIT_S = 30.0
_CLOSE = {"connection": "close"}

OPENAI_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
OPENAI_WORD = {**OPENAI_CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "one"}}]}
ANTHROPIC_EVENTS = (
    {
        "type": "message_start",
        "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
            "usage": {"input_tokens": 5, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "one"}},
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """An error answer: a status, the code and the message in its body, and headers."""

    status: int
    kind: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


ERRORS = {
    "rate-limit": Fault(429, "rate_limit_exceeded", "slow down"),
    "rate-limit-after": Fault(429, "rate_limit_exceeded", "slow down for a second", {"retry-after": "1"}),
    "quota": Fault(429, "insufficient_quota", "you exceeded your current quota"),
    "server-error": Fault(500, "server_error", "the server had an error"),
    "unavailable": Fault(503, "server_error", "no capacity"),
    "overloaded": Fault(529, "overloaded_error", "overloaded"),
    "bad-request": Fault(400, "invalid_request_error", "no such parameter"),
    "unauthorized": Fault(401, "authentication_error", "wrong key"),
}
BREAKS = ("reset", "cut-in-body", "timeout", "no-content", "broken-json", "error-event")
FAULTS = (*ERRORS, *BREAKS)


def error_of(fault: Fault, *, is_anthropic: bool) -> bytes:
    """The body of an error."""
    error = {"type": fault.kind, "message": fault.message}
    if is_anthropic:
        return json.dumps({"type": "error", "error": error}).encode()
    return json.dumps({"error": {**error, "param": None, "code": fault.kind}}).encode()


def answer_of(name: str, *, is_stream: bool, is_anthropic: bool) -> bytes:
    """The bytes of an answer, behind which the connection is closed."""
    if name in ERRORS:
        fault = ERRORS[name]
        return _whole(fault.status, error_of(fault, is_anthropic=is_anthropic), fault.headers)
    if not is_stream:
        half = b'{"id": "half", "choices": [{"mess'
        # What a stream's faults are to JSON: a body that says nothing, and one that is an error all the same.
        bodies = {"no-content": b"{}", "error-event": b'{"error": {"message": "overloaded", "type": "server_error"}}'}
        # Who says that the connection will be closed does not surprise by it.
        if name == "cut-in-body":
            return _head(200, {"content-type": "application/json", "content-length": "100"}) + half
        return _whole(200, bodies.get(name, half))
    begun = b"".join(_events(is_anthropic=is_anthropic))
    overloaded = b"data: " + error_of(ERRORS["overloaded"], is_anthropic=is_anthropic) + b"\n\n"
    ends = {
        "cut-in-body": begun + b'data: {"id": "half',
        "no-content": b"",
        "broken-json": begun + b'event: content_block_delta\ndata: {"id": \n\n',
        "error-event": begun + (b"event: error\n" if is_anthropic else b"") + overloaded,
    }
    return _chunked(ends[name], ends=name != "cut-in-body")


def _events(*, is_anthropic: bool) -> Iterator[bytes]:
    for event in ANTHROPIC_EVENTS if is_anthropic else (OPENAI_WORD,):
        name = f"event: {event['type']}\n" if is_anthropic else ""
        yield f"{name}data: {json.dumps(event)}\n\n".encode()


def _whole(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    named = {"content-type": "application/json", "content-length": str(len(body)), **_CLOSE, **(headers or {})}
    return _head(status, named) + body


def _chunked(body: bytes, *, ends: bool) -> bytes:
    part = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    head = _head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **(_CLOSE if ends else {})})
    return head + part + (b"0\r\n\r\n" if ends else b"")


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    said = "OK" if status == 200 else "Failed"
    lines = [f"HTTP/1.1 {status} {said}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


class FaultyProvider(socketserver.ThreadingTCPServer):
    """The provider. ``calls`` counts the requests of each key. ``begun`` has an event for each key whose client tells
    when it has seen the beginning of its stream."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls: Counter[str] = Counter()
        self.begun: dict[str, threading.Event] = {}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        path, body = self._request()
        if not path:
            return
        _, key, name, *_ = path.split("/")
        assert isinstance(self.server, FaultyProvider)
        with self.server.lock:
            self.server.calls[key] += 1
        is_stream, is_anthropic = b'"stream":true' in body.replace(b" ", b""), path.endswith("/messages")
        if name not in ("reset", "timeout"):
            self.wfile.write(answer_of(name, is_stream=is_stream, is_anthropic=is_anthropic))
        if name == "cut-in-body":
            # Who learns of the break before having read the bytes in front of it has never seen the answer begin.
            until(lambda: is_taken(self.connection))
            if is_stream and key in self.server.begun:
                self.server.begun[key].wait(WAIT_S)
            threading.Event().wait(BREAK_S)
        if name == "timeout":
            self.connection.settimeout(SILENCE_S)
            self.connection.recv(1)
        if name == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _request(self) -> tuple[str, bytes]:
        line = self.rfile.readline().decode("latin-1").split(" ")
        length = 0
        while (header := self.rfile.readline().strip().lower()) != b"":
            if header.startswith(b"content-length:"):
                length = int(header.partition(b":")[2])
        return (line[1] if len(line) > 1 else ""), self.rfile.read(length)


@contextmanager
def faulty_provider() -> Iterator[FaultyProvider]:
    """A provider that runs until the block ends."""
    with FaultyProvider() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(5)

"""Connections that take too much or too long, on a real socket."""

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest
from starlette.types import Receive, Scope, Send

from proxy.app.web.connection import WireLimits, guarded_http
from tests.doubles import serving

WAIT_S = 60.0
SMALL = WireLimits(head_bytes=4096, headers=20)
SHORT = WireLimits(head_bytes=4096, headers=20, head_s=0.2, send_s=0.2, linger_s=0.2)
# A busy machine may take longer than a short time, and then the test is made again with a longer one.
TIMES_S = (0.2, 2.0, 20.0)


class App:
    """Says hello to every request whose body it has read; ``/huge`` is answered with more than any buffer holds, and
    ``/parts`` without a length. The answer to ``/broken`` has no end."""

    def __init__(self) -> None:
        self.served = 0
        self.gone = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.served += 1
        while scope["path"] != "/refuse" and (await receive()).get("more_body"):
            pass
        body = b"x" * (1 << 20) if scope["path"] == "/huge" else b"hello"
        times = 200 if scope["path"] == "/huge" else 1
        has_length, is_broken = scope["path"] not in ("/parts", "/broken"), scope["path"] == "/broken"
        length = [(b"content-length", str(len(body) * times).encode())] if has_length else []
        await send({"type": "http.response.start", "status": 200, "headers": length})
        for left in range(times, 0, -1):
            await send({"type": "http.response.body", "body": body, "more_body": left > 1 or is_broken})
        self.gone.set()


@contextmanager
def line(limits: WireLimits = SMALL) -> Iterator[tuple[App, socket.socket]]:
    """A connection to the app."""
    app = App()
    with serving(app, guarded_http(limits)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
            yield app, connection


def received(connection: socket.socket) -> bytes:
    """All that comes before the end."""
    parts = []
    with suppress(ConnectionResetError):
        while chunk := connection.recv(1 << 20):
            parts.append(chunk)
    return b"".join(parts)


def code(answer: bytes) -> tuple[bytes, str]:
    """The status and the error's code."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b" ", 2)[1], json.loads(body)["error"]["code"]


@pytest.mark.parametrize(
    "begin",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\na: ",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\na: ",
    ],
)
def test_a_header_or_trailer_that_never_ends_is_cut_off_while_it_is_sent(begin: bytes) -> None:
    with line(WireLimits(head_bytes=1 << 16, linger_s=0.2)) as (_, connection):
        connection.sendall(begin)
        with suppress(ConnectionResetError, BrokenPipeError):
            until = time.monotonic() + WAIT_S
            while time.monotonic() < until:
                connection.sendall(b"y" * 65536)
            pytest.fail("the connection stayed open")


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 30,
        b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /?" + b"a" * 5000,
    ],
)
def test_trailers_and_targets_count_too(sent: bytes) -> None:
    with line() as (_, connection):
        connection.sendall(sent)
        assert code(received(connection)) == (b"431", "headers_too_large")


def test_heads_that_do_not_arrive_in_time() -> None:
    with line(SHORT) as (app, connection):
        connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n")
        assert code(received(connection)) == (b"408", "request_timeout")
    with line(SHORT) as (app, connection):
        assert received(connection) == b"", "a connection on which nothing ever comes"
    assert app.served == 0


def is_greeted(connection: socket.socket, request: bytes) -> bool:
    """Whether the request was answered by the app."""
    connection.sendall(request)
    data = b""
    while not data.endswith(b"hello"):
        found = connection.recv(65536)
        if not found:
            return False
        data += found
    return True


def test_blank_lines_before_the_first_head_are_no_head() -> None:
    with line() as (_, connection):
        connection.sendall(b"\r\n")
        assert is_greeted(connection, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")


def test_a_second_head_has_its_own_time_and_size() -> None:
    request = b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"y" * 3000 + b"\r\n\r\n"
    for head_s in TIMES_S:
        with line(replace(SHORT, head_s=head_s)) as (app, connection):
            if all(is_greeted(connection, request) for _ in range(3)):
                connection.sendall(b"GET / HTT")
                assert code(received(connection)) == (b"408", "request_timeout")
                assert app.served == 3
                return
    pytest.fail("no second head was in time")


@pytest.mark.slow
def test_a_body_may_take_longer_than_a_head() -> None:
    for head_s in TIMES_S:
        with line(replace(SHORT, head_s=head_s)) as (_, connection):
            connection.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n")
            # Longer than the head's time; the app waits for the rest.
            assert not threading.Event().wait(2 * head_s)
            if is_greeted(connection, b"ab"):
                return
    pytest.fail("no body was in time")


def test_a_client_that_does_not_read_is_let_go() -> None:
    with line(SHORT) as (app, connection):
        connection.sendall(b"GET /huge HTTP/1.1\r\nhost: x\r\n\r\n")
        assert app.gone.wait(WAIT_S), "sending ends when the connection does"
        assert len(received(connection)) < 200 << 20


def test_a_client_that_reads_slowly_is_not() -> None:
    for send_s in (1.0, 10.0, 60.0):
        with line(WireLimits(send_s=send_s)) as (app, connection):
            connection.sendall(b"GET /huge HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            if len(received(connection)) > 200 << 20:
                assert app.gone.wait(WAIT_S)
                return
    pytest.fail("every client was let go")


def test_the_rest_of_a_refused_body_is_read_for_a_while_only() -> None:
    with line(replace(SMALL, linger_s=0.2)) as (_, connection):
        connection.sendall(b"POST /refuse HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n")
        data = b""
        while not data.endswith(b"hello"):
            data += connection.recv(65536)
        connection.sendall(b"a" * 1000)
        assert received(connection) == b""


EARLY = {
    "an app": b"PUT /refuse HTTP/1.1\r\nhost: x\r\nconnection: {}\r\ncontent-length: 16777216\r\n\r\n",
    "an app in HTTP/1.0": b"POST /refuse HTTP/1.0\r\nconnection: {}\r\ncontent-length: 16777216\r\n\r\n",
    "a coding": b"POST / HTTP/1.1\r\nhost: x\r\nconnection: {}\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
    "two hosts": b"POST / HTTP/1.1\r\nhost: x\r\nhost: y\r\nconnection: {}\r\ncontent-length: 16777216\r\n\r\n",
    "a head": b"POST / HTTP/1.1\r\nhost: x\r\nconnection: {}\r\na: " + b"a" * 5000,
    "no HTTP": b"\x16\x03\x01\x02\x00\r\n\r\n",
    "no HTTP, and long": b"\x16\x03\x01\x02\x00" + b"a" * 5000,
    "no leave": b"PUT /refuse HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 16777216\r\n\r\n",
    "a chunk": b"POST /refuse HTTP/1.1\r\nhost: x\r\nconnection: {}\r\ntransfer-encoding: chunked\r\n\r\nz\r\n",
}


@pytest.mark.parametrize("connection", [b"close", b"keep-alive"])
@pytest.mark.parametrize("head", EARLY.values(), ids=EARLY)
def test_a_client_that_is_answered_while_it_sends_gets_its_answer(head: bytes, connection: bytes) -> None:
    with line() as (_, wire):
        wire.sendall(head.replace(b"{}", connection))
        answer = wire.recv(65536)
        # Longer than all buffers between the two: the client could not send this if nobody read.
        wire.sendall(b"a" * (16 << 20))
        wire.shutdown(socket.SHUT_WR)
        answer += b"".join(iter(lambda: wire.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.endswith((b"hello", b"}}"))


@pytest.mark.parametrize("path", ["/", "/parts"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("more", [b"\r\n", b"\x16\x03\r\n\r\n", b"a" * (16 << 20)], ids=["a line", "no HTTP", "much"])
def test_what_a_client_sends_behind_its_last_request_costs_it_no_answer(path: str, version: str, more: bytes) -> None:
    with line() as (app, wire):
        wire.sendall(f"GET {path} HTTP/{version}\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        assert app.gone.wait(WAIT_S)
        wire.sendall(more)
        wire.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 ") == answer.count(b"hello") == 1


def test_a_server_that_stops_reads_on_what_it_has_answered() -> None:
    with ExitStack() as stack:
        host, port = stack.enter_context(serving(App(), guarded_http(SMALL))).removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as wire:
            wire.sendall(b"PUT /refuse HTTP/1.1\r\nhost: x\r\ncontent-length: 16777216\r\n\r\n")
            assert wire.recv(65536).startswith(b"HTTP/1.1 ")
            stopping = threading.Thread(target=stack.close)
            stopping.start()
            wire.settimeout(WAIT_S)
            while wire.recv(65536):
                pass
            wire.sendall(b"a" * (16 << 20))
        stopping.join(WAIT_S)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("connection", ["close", "keep-alive"])
def test_no_connection_stays_open_because_its_answer_is_not_read(version: str, connection: str) -> None:
    closed = threading.Event()

    class Protocol(guarded_http(SHORT)):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            transport.set_write_buffer_limits(1 << 30)  # nothing ever waits, as at the end of a shorter answer

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            closed.set()

    app = App()
    with serving(app, Protocol) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as wire:
            wire.sendall(f"GET /huge HTTP/{version}\r\nhost: x\r\nconnection: {connection}\r\n\r\n".encode())
            assert app.gone.wait(WAIT_S)
            if connection == "keep-alive":
                wire.shutdown(socket.SHUT_WR)
            assert closed.wait(WAIT_S)


def test_a_client_that_asks_before_it_sends_a_body_is_told_to_go_on() -> None:
    with line() as (_, wire):
        wire.sendall(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert wire.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert is_greeted(wire, b"ab")


@pytest.mark.parametrize("path", ["/", "/parts"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_of_http_1_0_gets_no_chunks(path: str, method: str) -> None:
    with line() as (_, connection):
        connection.sendall(f"{method} {path} HTTP/1.0\r\nconnection: keep-alive\r\n\r\n".encode())
        head, _, body = received(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in head
    assert b"transfer-encoding" not in head
    assert (b"content-length: 5" in head) == (path == "/")
    assert body == (b"hello" if method == "GET" else b"")


def test_a_client_of_http_1_0_may_leave() -> None:
    app = Waiting()
    with serving(app, guarded_http(SMALL)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(b"GET /silent HTTP/1.0\r\n\r\n")
            assert app.begun.wait(WAIT_S)
        assert app.gone.wait(WAIT_S), "what is sent to nobody is no error"


def test_a_client_of_http_1_0_notices_that_an_answer_breaks_off() -> None:
    with line() as (_, connection):
        connection.sendall(b"GET /broken HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            list(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize("count", [21, 23, 10_000])
def test_requests_that_wait_on_one_connection_are_not_too_many(count: int) -> None:
    """Each of them takes memory, and a client could send thousands in one packet."""
    with line() as (app, connection):
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * count)
        connection.shutdown(socket.SHUT_WR)
        answer = received(connection)
        served = app.served
    if count == 21:
        assert answer.count(b"HTTP/1.1 200") == served == count
    else:
        assert code(answer[answer.rindex(b"HTTP/1.1 ") :]) == (b"431", "headers_too_large")
        assert served < 23


def test_what_is_no_http_is_a_plain_400() -> None:
    with line() as (_, connection):
        connection.sendall(b"\x16\x03\x01\x02\x00\r\n\r\n")
        assert code(received(connection)) == (b"400", "invalid_http")


class Waiting:
    """Begins its answer, unless the path is ``/silent``, and then waits until the client has left."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self.begun, self.gone = threading.Event(), threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        if scope["path"] != "/silent":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        self.begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"late", "more_body": False})
        self.left.append(scope["path"])
        self.gone.set()


@pytest.mark.parametrize("path", ["/silent", "/begun"])
@pytest.mark.parametrize(
    "behind", [b"\x16\x03 no request\r\n\r\n", b"GET /next HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n"]
)
def test_a_request_learns_that_its_connection_ends_with_what_follows_it(path: str, behind: bytes) -> None:
    """Nothing is written into an answer that has begun."""
    app = Waiting()
    with serving(app, guarded_http(SMALL)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
            connection.sendall(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path.encode())
            assert app.begun.wait(WAIT_S)
            connection.sendall(behind)
            answer = received(connection)
            assert app.gone.wait(WAIT_S)
    assert app.left == [path]
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.startswith(b"HTTP/1.1 200" if path == "/begun" else b"HTTP/1.1 400")
    assert b"late" not in answer


def test_a_websocket_upgrade_is_answered_in_http_and_advises_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with line(WireLimits()) as (app, connection):
        connection.sendall(
            b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert app.served == 1
    assert "install" not in caplog.text

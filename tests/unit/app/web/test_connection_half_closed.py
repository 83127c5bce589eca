"""Clients that end their side and wait, and clients that leave, on real sockets."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.types import Receive, Scope, Send

from proxy.app.web.connection import Connection, WireLimits, guarded_http
from tests.doubles import serving

WAIT_S = 60.0
EVENTS = [("content-type", "text/event-stream")]


class App:
    """Answers once it is told to; ``/begun`` has sent headers and an event before, ``/half`` half of one."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.at_work = threading.Event()
        self.left = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            connection = Connection(scope, receive, send, scope["path"])
            await connection.serve(self._work(connection))

    async def _work(self, connection: Connection) -> None:
        try:
            await connection.read(1 << 20)
            if connection.path in ("/begun", "/half"):
                await connection.start(200, EVENTS)
                await connection.send(b"data: one\n\n" if connection.path == "/begun" else b"data: on")
            self.at_work.set()
            while not self.go.is_set():
                await asyncio.sleep(0.01)
            if connection.is_started:
                await connection.send(b"data: two\n\n")
                await connection.end()
            else:
                await connection.answer(200, b"fine", [])
        except asyncio.CancelledError:
            self.left.set()
            raise


@contextmanager
def line(path: str, version: str = "1.1", body: bytes = b"hello") -> Iterator[tuple[App, socket.socket]]:
    """A connection on which a request was sent that is worked on."""
    app = App()
    with serving(app, guarded_http(WireLimits())) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
            head = f"POST {path} HTTP/{version}\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            assert app.at_work.wait(WAIT_S)
            try:
                yield app, connection
            finally:
                app.go.set()


def received(connection: socket.socket) -> bytes:
    """All that comes before the end."""
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    return data


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_who_ends_his_side_gets_his_answer(version: str) -> None:
    with line("/", version) as (app, connection):
        connection.shutdown(socket.SHUT_WR)
        assert not app.left.wait(0.3)
        app.go.set()
        data = received(connection)
        assert data.endswith(b"\r\n\r\nfine")
        assert data.count(b"\r\nconnection: close\r\n") == 1
        assert data.count(b"HTTP/1.1 100 Continue\r\n\r\n") == (version == "1.1")
        assert not app.left.is_set()


@pytest.mark.slow
@pytest.mark.parametrize(("path", "comments"), [("/begun", 1), ("/half", 0)])
def test_who_ends_his_side_gets_the_rest_of_his_stream(path: str, comments: int) -> None:
    """With a comment between its events, never within one."""
    with line(path) as (app, connection):
        connection.shutdown(socket.SHUT_WR)
        assert not app.left.wait(0.3)
        app.go.set()
        data = received(connection)
        assert data.endswith(b"0\r\n\r\n")
        assert b"data: two\n\n" in data
        assert data.count(b"3\r\n:\n\n\r\n") == comments
        assert not app.left.is_set()


@pytest.mark.parametrize("path", ["/", "/begun"])
def test_who_leaves_is_missed_though_nothing_is_sent(path: str) -> None:
    with line(path) as (app, connection):
        if path == "/begun":
            assert b"data: one" in received_until(connection, b"one")
        connection.close()
        assert app.left.wait(WAIT_S)
        assert not app.go.is_set()


def test_who_leaves_with_bytes_unread_is_missed_within_an_event_too() -> None:
    with line("/half") as (app, connection):
        connection.close()
        assert app.left.wait(WAIT_S)


def test_who_leaves_after_having_ended_his_side_is_missed_too() -> None:
    with line("/") as (app, connection):
        connection.shutdown(socket.SHUT_WR)
        assert not app.left.wait(0.3)
        # What was sent to it lies unread: its system says so when it closes.
        connection.close()
        assert app.left.wait(WAIT_S)


def test_a_request_that_ends_before_its_body_is_none() -> None:
    app = App()
    with serving(app, guarded_http(WireLimits())) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf")
            connection.shutdown(socket.SHUT_WR)
            assert received(connection) == b""
    assert not app.at_work.is_set()


def received_until(connection: socket.socket, mark: bytes) -> bytes:
    """What comes, up to that mark."""
    data = b""
    while mark not in data:
        data += connection.recv(65536)
    return data

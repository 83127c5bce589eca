"""Stopping while a stream runs: nobody new is let in, and whoever is served is served to the end."""

import asyncio
import json
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.types import Receive, Send

from tests.doubles import serving
from tests.e2e.fleet import KEY, MODEL, Fleet, configuration, fleet
from tests.e2e.provider import DONE, chunk, usage_chunk
from tests.e2e.test_ledger import read
from tests.receiver import Received, Receiver, head, part
from tests.redis_server import redis_server
from tests.waiting import until

WAIT_S = 60.0


class Slow(Receiver):
    """Streams a word, and the rest when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        await send(head(200, [("content-type", "text/event-stream")]))
        await send(part(chunk("one")))
        self.begun.set()
        await asyncio.to_thread(self.go.wait, WAIT_S)
        await send(part(chunk("two") + usage_chunk() + DONE, more=False))


def connect(proxy: Fleet) -> socket.socket:
    """A connection to the proxy. Raises ConnectionRefusedError."""
    host, port = proxy.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def ask(line: socket.socket, **fields: object) -> None:
    """Send a request."""
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}).encode()
    key = f"authorization: Bearer {KEY}\r\n".encode()
    line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + key)
    line.sendall(b"content-length: %d\r\n\r\n" % len(body) + body)


def is_refused(proxy: Fleet) -> bool:
    """Whether a new connection is refused, and not left to wait."""
    try:
        connect(proxy).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_new_connections_are_refused_at_once_while_a_stream_ends(tmp_path: Path, workers: int) -> None:
    slow = Slow()
    with (
        redis_server(tmp_path / "redis") as redis,
        serving(slow) as provider,
        fleet(tmp_path / "fleet", configuration(provider, redis.url), workers) as proxy,
    ):
        with connect(proxy) as line, connect(proxy) as idle:
            ask(line, stream=True)
            assert slow.begun.wait(WAIT_S)
            received = line.recv(65536)
            proxy.process.send_signal(signal.SIGTERM)
            until(lambda: is_refused(proxy))
            assert proxy.process.poll() is None, "connections are refused before all has ended"
            slow.go.set()
            while more := line.recv(65536):
                received += more
            assert idle.recv(1) == b"", "idle connections are closed"
        assert received.count(b"two") == 1
        assert received.endswith(b"0\r\n\r\n")
        assert proxy.process.wait(WAIT_S) in (0, -signal.SIGTERM)
        log = proxy.log.read_text()
    for noise in ("Traceback", "ASGI", "ERROR", "WARNING"):
        assert noise not in log, log


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "first"), [(1, signal.SIGTERM), (2, signal.SIGINT)])
def test_a_stream_that_a_second_interrupt_ends_is_told_so_logged_and_booked(
    tmp_path: Path, workers: int, first: signal.Signals
) -> None:
    slow = Slow()
    with (
        redis_server(tmp_path / "redis") as redis,
        serving(slow) as provider,
        fleet(tmp_path / "fleet", configuration(provider, redis.url), workers) as proxy,
    ):
        # A terminal sends Ctrl-C to all processes of a command.
        processes = [*(proxy.workers() if workers > 1 else ()), proxy.process.pid]
        with connect(proxy) as line:
            ask(line, stream=True, max_tokens=20)
            assert slow.begun.wait(WAIT_S)
            received = line.recv(65536)
            for process in processes:
                os.kill(process, first)
            until(lambda: "Waiting for connections to close" in proxy.log.read_text())
            for process in processes:
                with suppress(ProcessLookupError):  # a worker that serves nobody has ended
                    os.kill(process, signal.SIGINT)
            while more := line.recv(65536):
                received += more
        slow.go.set()
        assert b'"code":"shutting_down"' in received
        proxy.process.wait(WAIT_S)
        (entry,), _, reserved = read(redis.url, at=time.time())
        assert (entry.estimated, reserved) == (True, 0)
        log = proxy.log.read_text()
    assert log.count(" exchange ") == 1
    assert "Traceback" not in log

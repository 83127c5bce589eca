"""Probes, slow clients, many clients, and stopping."""

import http.client
import json
import socket
import threading
import time
from functools import partial
from typing import Any

import pytest

from proxy.app.web import Parts, create_app
from proxy.engine import Engine, Ports
from proxy.engine.exchange import ExchangeOutcome
from proxy.engine.telemetry import MetricsMeter
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.clock import SystemClock
from proxy.models import Transport
from proxy.models.deployments import load_price_map, price_for
from proxy.upstream.http import HttpUpstream
from tests.doubles import Ledger, ModelList, OpenDoor, PassthroughPlanner, make_deployment, serving
from tests.e2e.conftest import Start
from tests.e2e.provider import (
    DONE,
    WAIT_S,
    Scripted,
    Seen,
    chunk,
    completion,
    head,
    part,
    read_body,
    replies,
    streams,
    usage_chunk,
)

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def get(url: str, path: str) -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=WAIT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers["content-type"]
    finally:
        connection.close()


def bare_engine(models: ModelList, meter: Ledger | MetricsMeter) -> Engine:
    """An engine that passes everything through."""
    return Engine(
        Ports(
            models=models,
            upstreams={Transport.HTTP: HttpUpstream()},
            planner=PassthroughPlanner(),
            admission=OpenDoor(),
            meter=meter,
            clock=SystemClock(),
        )
    )


def all_at(upstream: str) -> ModelList:
    """Every model at that provider."""
    return ModelList({"*": make_deployment(base_url=f"{upstream}/v1")})


def test_probes_and_metrics() -> None:
    models, metrics = ModelList({"*": make_deployment()}), Metrics()
    obstacles = ["litellm is not loaded yet", ""]
    engine = bare_engine(models, MetricsMeter(metrics, partial(price_for, load_price_map())))
    with serving(create_app(Parts(engine, models, metrics, obstacle=lambda: obstacles.pop(0)))) as url:
        assert get(url, "/healthz")[:2] == (200, b'{"status":"ok"}')
        status, body, _ = get(url, "/readyz")
        assert (status, json.loads(body)["error"]["code"]) == (503, "not_ready")
        assert get(url, "/readyz")[:2] == (200, b'{"status":"ready"}')
        status, body, kind = get(url, "/metrics")
        assert (status, kind.split(";")[0]) == (200, "text/plain")
        assert b"stratiform_in_flight 0.0" in body


@pytest.mark.slow
def test_a_client_that_does_not_read_stops_the_provider_and_costs_no_memory(start: Start) -> None:
    piece = chunk("x" * 60_000)
    sent: list[float] = []

    async def endless(seen: Seen, send: Any, receive: Any) -> None:
        await read_body(seen, receive)
        await send(head(200, [("content-type", "text/event-stream")]))
        while len(sent) < 5000:
            await send(part(piece))
            sent.append(time.monotonic())

    proxy = start(Scripted(endless))
    host, port = proxy.url.removeprefix("http://").split(":")
    body = json.dumps({"model": "m", "messages": HELLO, "stream": True}).encode()
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as line:
        line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        assert line.recv(1000).startswith(b"HTTP/1.1 200")
        deadline = time.monotonic() + WAIT_S
        while not sent or time.monotonic() - sent[-1] < 0.3:
            assert time.monotonic() < deadline
            assert len(sent) < 5000, "the provider was never held back"
            time.sleep(0.05)
        # Socket buffers of both connections, and the proxy's own: megabytes, not the provider's 300 MB.
        assert len(sent) * len(piece) < 60_000_000
    assert proxy.ledger.wait()[0].ending is ExchangeOutcome.HUNG_UP


def test_stopping_lets_streams_end() -> None:
    go = threading.Event()
    provider_seen = threading.Event()

    async def patient(seen: Seen, send: Any, receive: Any) -> None:
        import asyncio

        await read_body(seen, receive)
        await send(head(200, [("content-type", "text/event-stream")]))
        await send(part(chunk("one")))
        provider_seen.set()
        await asyncio.to_thread(go.wait, WAIT_S)
        await send(part(chunk("two") + usage_chunk() + DONE, more=False))

    with serving(Scripted(patient)) as upstream:
        models = all_at(upstream)
        closed: list[str] = []

        async def close() -> None:
            closed.append("parts")

        engine = bare_engine(models, MetricsMeter(Metrics(), partial(price_for, load_price_map())))
        body = json.dumps({"model": "m", "messages": HELLO, "stream": True}).encode()
        with serving(create_app(Parts(engine, models, Metrics(), on_close=[close])), drain_s=60) as url:
            host, port = url.removeprefix("http://").split(":")
            line = socket.create_connection((host, int(port)), timeout=WAIT_S)
            line.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            assert provider_seen.wait(WAIT_S)
            threading.Timer(0.3, go.set).start()
        # The server was told to stop while the provider was still at it.
        with line, line.makefile("rb") as received:
            text = received.read()
    assert b'"content":"two"' in text
    assert text.endswith(b"0\r\n\r\n")
    assert closed == ["parts"]


def test_connections_are_kept_for_the_next_request(start: Start) -> None:
    proxy = start(Scripted(replies(completion())))
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=WAIT_S)
    body = json.dumps({"model": "m", "messages": HELLO})
    connection.connect()
    line = connection.sock
    for content in (body, "{", body):
        connection.request("POST", "/v1/chat/completions", content)
        connection.getresponse().read()
    assert connection.sock is line
    connection.close()


@pytest.mark.slow
def test_what_has_not_ended_in_time_is_told_so_and_settled() -> None:
    provider, ledger = Scripted(streams(chunk("one"), ends=False)), Ledger()
    requests = [
        ("/v1/chat/completions", {"model": "m", "messages": HELLO, "stream": True}),
        ("/v1/responses", {"model": "m"}),
    ]

    async def silent(seen: Seen, send: Any, receive: Any) -> None:
        await read_body(seen, receive)
        while (await receive())["type"] != "http.disconnect":
            pass
        seen.gone.set()

    provider.replies.append(silent)
    lines = []
    with serving(provider) as upstream:
        engine = bare_engine(all_at(upstream), ledger)
        with serving(create_app(Parts(engine, ModelList({}), Metrics())), drain_s=1) as url:
            host, port = url.removeprefix("http://").split(":")
            for number, (path, request) in enumerate(requests, start=1):
                line = socket.create_connection((host, int(port)), timeout=WAIT_S)
                body = json.dumps(request).encode()
                head = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body))
                line.sendall(head + body)
                provider.wait(number)
                lines.append(line)
            assert lines[0].recv(1000).startswith(b"HTTP/1.1 200")
        # Stopped: a second later what still ran was cancelled, and so were the calls behind it.
        answers = []
        for line in lines:
            with line, line.makefile("rb") as received:
                answers.append(received.read())
        assert provider.seen[0].gone.wait(WAIT_S)
        assert provider.seen[1].gone.wait(WAIT_S)
    assert b'"code":"shutting_down"' in answers[0]
    assert answers[0].endswith(b"0\r\n\r\n")
    assert answers[1].startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in answers[1]
    assert [e.ending for e in ledger.wait(2)] == [ExchangeOutcome.HUNG_UP] * 2
    assert ledger.open == 0


@pytest.mark.slow
def test_an_upload_that_the_provider_does_not_take_costs_no_memory() -> None:
    taken, released = threading.Event(), threading.Event()

    async def slow(seen: Seen, send: Any, receive: Any) -> None:
        import asyncio

        await receive()
        taken.set()
        await asyncio.to_thread(released.wait, WAIT_S)
        await send(head(200, []))
        await send(part(b"", more=False))

    ledger = Ledger()
    with serving(Scripted(slow)) as upstream:
        engine = bare_engine(all_at(upstream), ledger)
        with serving(create_app(Parts(engine, ModelList({}), Metrics()))) as url:
            host, port = url.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port)), timeout=1.0) as line:
                line.sendall(
                    b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: application/octet-stream\r\n"
                    b"content-length: 1000000000\r\n\r\n"
                )
                piece, sent = b"x" * (1 << 20), 0
                try:
                    while sent < 500 << 20:
                        line.sendall(piece)
                        sent += len(piece)
                except TimeoutError:
                    pass
                assert taken.wait(WAIT_S)
                # What the buffers of four sockets hold, and no more.
                assert sent < 60 << 20
                released.set()

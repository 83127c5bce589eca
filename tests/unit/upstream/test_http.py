"""The http transport, against real servers on loopback."""

import asyncio
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from proxy.engine.exchange import Call
from proxy.kit.errors import UpstreamTimeout, UpstreamUnavailable
from proxy.upstream.http import EVENT_PIECE_BYTES, HttpUpstream
from tests.doubles import make_deployment
from tests.services import free_port
from tests.unread import is_taken

Handler = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving_raw(handler: Handler) -> AsyncIterator[str]:
    """A server that reads a request's head and lets the handler do the rest; gives its base URL."""
    open_writers = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.append(writer)
        try:
            while True:
                await handler(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.close()
        for writer in open_writers:
            writer.close()
        await server.wait_closed()


def call(base_url: str, *, body: bytes | AsyncIterator[bytes] = b"", timeout_s: float = 5.0, **more: object) -> Call:
    fields = {"method": "POST", "path": "/x", "headers": [("x-one", "1")], "stream": False, "now": 0.0, **more}
    return Call(deployment=make_deployment(base_url=base_url, timeout_s=timeout_s), body=body, **fields)  # type: ignore[arg-type]


async def read_all(upstream: HttpUpstream, request: Call) -> tuple[int, dict[str, str], bytes]:
    answer = await upstream.open(request)
    try:
        return answer.status, dict(answer.headers), b"".join([chunk async for chunk in answer.chunks()])
    finally:
        await answer.aclose()


@asynccontextmanager
async def sending(*, connect_s: float = 5.0) -> AsyncIterator[HttpUpstream]:
    upstream = HttpUpstream(connect_s=connect_s)
    try:
        yield upstream
    finally:
        await upstream.aclose()


@pytest.mark.parametrize(("kind", "has_turns"), [("text/event-stream; charset=utf-8", True), ("audio/mpeg", False)])
async def test_events_come_in_small_pieces_between_which_others_have_their_turn(kind: str, *, has_turns: bool) -> None:
    said = b": a comment\n\n" * 40_000

    async with sending() as upstream:

        async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            start = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(said)}\r\n\r\n"
            writer.write(start.encode() + said)
            await writer.drain()

        async with serving_raw(handler) as url:
            answer = await upstream.open(call(url))
            await asyncio.sleep(0.1)  # much of it is there at once
            turns, sizes = 0, []

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            waiting = asyncio.create_task(others())
            async for chunk in answer.chunks():
                sizes.append(len(chunk))
            waiting.cancel()
            await answer.aclose()
        assert sum(sizes) == len(said)
        assert (max(sizes) <= EVENT_PIECE_BYTES) is has_turns
        if has_turns:
            assert turns >= len(said) // EVENT_PIECE_BYTES - 2


async def test_a_request_and_an_answer_pass_as_they_are() -> None:
    heads = []

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        assert await reader.readexactly(3) == b"abc"
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /y\r\nX-Name: Zo\xeb\r\nContent-Encoding: gzip\r\n")
        writer.write(b"Set-Cookie: a=b\r\nContent-Length: 4\r\n\r\n\x1f\x8bxx")

    async with sending() as upstream, serving_raw(handler) as url:
        for _ in range(2):
            status, headers, body = await read_all(upstream, call(url, body=b"abc", path="/a%2Fb/c%20d", query="q=%41"))
            assert (status, body) == (302, b"\x1f\x8bxx")
            assert (headers["location"], headers["x-name"]) == ("/y", "Zoë")
    assert heads[0].startswith(b"POST /v1/a%2Fb/c%20d?q=%41 HTTP/1.1\r\n")
    assert heads[0] == heads[1]
    names = {line.split(b":")[0].lower() for line in heads[0].split(b"\r\n")[1:] if line}
    assert names == {b"host", b"x-one", b"content-length"}


@pytest.mark.parametrize(
    "lines",
    [
        [("x-policy", "p" * 60_000)],
        [(f"x-{number}", "v" * 900) for number in range(100)],
        [(f"x-{number}", "v") for number in range(3_000)],
        [("x" * 9_000, "v")],
    ],
    ids=["a long header", "many headers", "very many headers", "a long name"],
)
async def test_an_answer_may_have_headers_as_long_as_a_requests(lines: list[tuple[str, str]]) -> None:
    """An answer that is not read is lost, and its request is sent and billed again."""

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = "".join(f"{name}: {value}\r\n" for name, value in lines)
        writer.write(f"HTTP/1.1 200 OK\r\n{said}Content-Length: 2\r\n\r\nok".encode())

    async with sending() as upstream, serving_raw(handler) as url:
        assert await read_all(upstream, call(url)) == (200, {**dict(lines), "content-length": "2"}, b"ok")


async def test_connections_are_kept_and_used_again() -> None:
    peers = []

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer.get_extra_info("peername"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with sending() as upstream, serving_raw(handler) as url:
        for _ in range(3):
            await read_all(upstream, call(url))
    assert len(set(peers)) == 1


STRAY = {
    "an answer": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray",
    "answers": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nstray\r\n0\r\n\r\n" * 3,
    "a refusal": b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    "a hint": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "half an answer": b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nstray",
    "half a head": b"HTTP/1.1 200 O",
    "no HTTP": b"stray",
    "a line": b"\r\n",
}


@pytest.mark.parametrize(
    "framed", [b"content-length: 1\r\n\r\n%d", b"transfer-encoding: chunked\r\n\r\n1\r\n%d\r\n0\r\n\r\n"]
)
@pytest.mark.parametrize("stray", STRAY.values(), ids=STRAY)
async def test_what_comes_between_two_answers_is_the_answer_to_no_call(stray: bytes, framed: bytes) -> None:
    """Otherwise each later answer would go to the client behind its own."""
    writers = []

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(b"HTTP/1.1 200 OK\r\n" + framed % len(writers))

    async with sending() as upstream, serving_raw(handler) as url, asyncio.timeout(10):
        for number in (b"1", b"2", b"3"):
            assert (await read_all(upstream, call(url)))[::2] == (200, number)
            writers[-1].write(stray)
            while not is_taken(writers[-1].get_extra_info("socket")):
                await asyncio.sleep(0)
            await asyncio.sleep(0)


CHUNKED, UNFRAMED = b"transfer-encoding: chunked\r\n", b""
FAULTS = {
    "no chunk": (CHUNKED, b"3\r\nabc\r\nzz\r\n", False),
    "a long chunk": (CHUNKED, b"3\r\nabcd", False),
    "no trailer": (CHUNKED, b"3\r\nabc\r\n0\r\nno colon\r\n\r\n", False),
    "a reset without a length": (UNFRAMED, b"abc", True),
    "a reset in chunks": (CHUNKED, b"3\r\nabc\r\n", True),
}


@pytest.mark.parametrize("kind", [b"text/event-stream", b"audio/mpeg"])
@pytest.mark.parametrize(("framing", "body", "is_reset"), FAULTS.values(), ids=FAULTS)
async def test_a_body_that_breaks_is_neither_whole_nor_awaited(
    kind: bytes, framing: bytes, body: bytes, *, is_reset: bool
) -> None:
    is_read = asyncio.Event()

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\n" + framing + b"\r\n")
        await is_read.wait()
        writer.write(body)
        if is_reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            raise ConnectionError

    async with sending() as upstream, serving_raw(handler) as url, asyncio.timeout(10):
        answer = await upstream.open(call(url, timeout_s=600))
        is_read.set()
        with pytest.raises(UpstreamUnavailable):
            _ = [chunk async for chunk in answer.chunks()]
        await answer.aclose()


def breaking_off(answer: bytes) -> Handler:
    """Says that much, and hangs up."""

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        raise ConnectionError

    return handler


async def test_an_error_that_breaks_off_shows_what_came_without_the_key() -> None:
    said = b'{"error": {"message": "the key sk-of-the-operator is not'

    async with sending() as upstream:

        async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 401 No\r\ncontent-length: 900\r\nx-request-id: r1\r\n\r\n" + said)
            writer.close()

        async with serving_raw(handler) as base_url:
            request = call(base_url)
            secret = replace(request, deployment=replace(request.deployment, api_key="sk-of-the-operator"))
            status, headers, body = await read_all(upstream, secret)
        assert (status, headers) == (401, {"x-request-id": "r1"})
        assert body == said.replace(b"sk-of-the-operator", b"[redacted]")


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
async def test_an_upstream_that_speaks_no_http(answer: bytes) -> None:
    async with sending() as upstream, serving_raw(breaking_off(answer)) as url:
        with pytest.raises(UpstreamUnavailable) as caught:
            await read_all(upstream, call(url))
        assert "127.0.0.1" not in caught.value.message


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("is_used", [False, True])
async def test_a_call_is_sent_once_whatever_its_method_and_the_age_of_its_line(method: str, *, is_used: bool) -> None:
    heads: list[bytes] = []

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        if b"/first" not in head:
            raise ConnectionError
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with sending() as upstream:
        async with serving_raw(handler) as url:
            if is_used:
                await read_all(upstream, call(url, path="/first"))
            with pytest.raises(UpstreamUnavailable):
                await read_all(upstream, call(url, method=method))
        assert len(heads) == 1 + is_used


HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"


@pytest.mark.parametrize(
    "rest", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart"]
)
@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 100 Continue\r\n\r\n", HINTS, HINTS * 3], ids=[0, 100, 103, "103s"])
async def test_silence_ends_in_a_timeout(before: bytes, rest: bytes) -> None:
    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(before + rest)
        await reader.read()

    async with sending(connect_s=0.05) as upstream, serving_raw(handler) as url, asyncio.timeout(10):
        with pytest.raises(UpstreamTimeout):
            await read_all(upstream, call(url, timeout_s=0.05))


@pytest.mark.parametrize("before", [b"", HINTS])
@pytest.mark.parametrize("parts", [0, 3, 2000])
async def test_an_upload_that_is_not_taken_ends_in_a_timeout(before: bytes, parts: int) -> None:
    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(before)
        await asyncio.Event().wait()

    async def body() -> AsyncIterator[bytes]:
        for _ in range(parts):
            yield bytes(1 << 16)

    async with sending(connect_s=0.05) as upstream, serving_raw(handler) as url, asyncio.timeout(10):
        with pytest.raises(UpstreamTimeout):
            await read_all(upstream, call(url, body=body(), timeout_s=0.05))


@pytest.mark.parametrize("is_early", [False, True])
async def test_a_client_may_take_its_time_for_an_upload(*, is_early: bool) -> None:
    """Its own limits hold for it. An upstream may also answer before it has read all."""

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not is_early:
            await reader.readuntil(b"0\r\n\r\n")
        writer.write(HINTS + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        await reader.read()

    async def body() -> AsyncIterator[bytes]:
        for _ in range(2):
            yield b"part"
            await asyncio.sleep(0.2)

    async with sending(connect_s=0.05) as upstream, serving_raw(handler) as url, asyncio.timeout(10):
        status, _, found = await read_all(upstream, call(url, body=body(), timeout_s=0.1))
    assert (status, found) == (200, b"ok")


async def test_an_answer_without_a_length_is_whole_though_its_upload_is_not_taken() -> None:
    is_begun = asyncio.Event()

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\n\r\n")
        await is_begun.wait()
        writer.write(b"too large")
        writer.write_eof()
        await reader.read()

    async def body() -> AsyncIterator[bytes]:
        while True:
            yield b"part"
            await asyncio.sleep(0)

    async with sending() as upstream, serving_raw(handler) as url, asyncio.timeout(10):
        answer = await upstream.open(call(url, body=body()))
        is_begun.set()
        assert b"".join([chunk async for chunk in answer.chunks()]) == b"too large"
        await answer.aclose()


async def test_an_upstream_that_nobody_serves_has_billed_nothing() -> None:
    """One that breaks off may bill the call: that is what decides whether its prompt is booked."""

    async with sending() as upstream:
        with pytest.raises(UpstreamUnavailable) as unreached:
            await upstream.open(call(f"http://127.0.0.1:{free_port()}/v1"))
        async with serving_raw(breaking_off(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart")) as url:
            with pytest.raises(UpstreamUnavailable) as broken:
                await read_all(upstream, call(url))
        assert (unreached.value.may_bill, broken.value.may_bill) == (False, True)


async def test_an_error_says_why_an_upstream_is_not_reached(tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=h", "-addext"]
    request += ["subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key.pem"), "-out", str(file)]
    subprocess.run(request, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file, tmp_path / "key.pem")

    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with (
        sending() as upstream,
        await asyncio.start_server(refuse, "127.0.0.1", 0) as without_tls,
        await asyncio.start_server(refuse, "127.0.0.1", 0, ssl=tls) as self_signed,
    ):
        for host, message in (
            (address(self_signed), "certificate is not accepted: self-signed certificate"),
            (address(without_tls), "the upstream does not answer with TLS"),
            ("no-such-host.invalid", "the name of the upstream's host was not found"),
        ):
            with pytest.raises(UpstreamUnavailable, match=message) as unreached:
                await upstream.open(call(f"https://{host}"))
            assert not unreached.value.may_bill


def address(server: asyncio.Server) -> str:
    return "{}:{}".format(*server.sockets[0].getsockname())


async def test_an_error_about_a_certificate_names_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ssl.SSLCertVerificationError(1, "certificate verify failed")
    refused.verify_code, refused.verify_message = 62, "certificate is not valid for 'inside.example'"
    key = ConnectionKey(
        "inside.example", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None
    )

    async def request(*_: object, **__: object) -> None:
        raise aiohttp.ClientConnectorCertificateError(key, refused)

    monkeypatch.setattr(aiohttp.ClientSession, "request", request)
    async with sending() as upstream:
        with pytest.raises(UpstreamUnavailable, match="certificate is not accepted: it is for another host"):
            await upstream.open(call("https://inside.example"))

"""Clients that behave in any way, on real sockets: whoever reads on gets one whole answer to each of his requests."""

import socket
import threading
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from proxy.app.web.connection import WireLimits, guarded_http
from tests.doubles import serving
from tests.examples import examples
from tests.unit.app.web.test_connection_guard import WAIT_S, App

LIMITS = WireLimits(head_bytes=4096, linger_s=5)
# What is sent behind the last request.
REST = (b"", b"", b"\r\n", b"\x16\x03 no HTTP\r\n\r\n", b"a" * 300_000)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server that says hello, before or after it has read a body."""
    with serving(App(), guarded_http(LIMITS)) as url:
        yield int(url.rpartition(":")[2])


def request(random: Random, *, is_last: bool) -> bytes:
    """A request in any form in which it is complete and clear."""
    version = random.choice(("1.0", "1.1")) if is_last else "1.1"
    path, body = random.choice(("/", "/parts", "/refuse")), b"b" * random.choice((0, 7, 3000, 400_000))
    lines = [f"POST {path} HTTP/{version}", "host: x"]
    lines += ["connection: close"] if is_last else random.choice(([], ["connection: keep-alive"]))
    lines += ["expect: 100-continue"] if version == "1.1" and random.random() < 0.3 else []
    if version == "1.0" or random.random() < 0.5:
        return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body
    size = random.choice((900, 65_536))
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    head = "\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode()
    return head + chunks + b"0\r\n" + random.choice((b"", b"x-trailer: y\r\n")) + b"\r\n"


def send(connection: socket.socket, pieces: list[bytes], *, ends: bool) -> None:
    """Send the pieces, and end this side."""
    for piece in pieces:
        connection.sendall(piece)
    if ends:
        connection.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("seed", range(examples(400, 40)))
def test_a_client_that_reads_on_gets_one_whole_answer_to_each_request(port: int, seed: int) -> None:
    random = Random(seed)
    count = random.choice((1, 1, 2, 3))
    sent = [request(random, is_last=number == count - 1) for number in range(count)]
    data = b"".join(sent) + random.choice(REST)
    cuts = sorted({0, len(data), *(random.randrange(len(data)) for _ in range(random.choice((0, 1, 9))))})
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pieces = [data[start:end] for start, end in pairwise(cuts)]
        sending = threading.Thread(target=send, args=(connection, pieces), kwargs={"ends": random.random() < 0.5})
        sending.start()
        if random.random() < 0.3:
            sending.join(WAIT_S)
        received = b"".join(iter(lambda: connection.recv(random.choice((100, 65_536))), b""))
        sending.join(WAIT_S)
    assert received.count(b"HTTP/1.1 200 ") == received.count(b"hello") == count, received[-300:]

"""Bytes on a socket that are almost a request."""

import asyncio
from random import Random

from proxy.app.web.connection import WireLimits
from tests.fuzz.values import chat, mutated, written

LIMITS = WireLimits(head_bytes=8192, headers=64, head_s=2.0, send_s=2.0, linger_s=2.0)
_PATIENCE_S = 0.1
_ODD = (
    b"x-a: b\r\n", b"x-a : b\r\n", b" folded\r\n", b"x-a: \x00\r\n", b"transfer-encoding: chunked\r\n",
    b": nameless\r\n", b"content-length: 7\r\n", b"content-length: -1\r\n", b"expect: 100-continue\r\n",
    b"x-long: " + b"a" * 9000 + b"\r\n", b"upgrade: websocket\r\nconnection: upgrade\r\n", b"host: y\r\n",
    b"x-\xff: \xff\r\n", b"\r\n", b"te: trailers\r\n", b"x: y\r\n" * 100,
)  # fmt: skip


def raw_request(seed: int, number: int) -> bytes:
    """A request, perhaps with more headers, perhaps two, perhaps with bits flipped."""
    random = Random(f"wire/{seed}/{number}")
    body = written(random, chat(random))[:2000]
    extra = b"".join(random.choice(_ODD) for _ in range(random.randrange(4)))
    target = random.choice(
        (b"/v1/chat/completions", b"/healthz", b"http://evil/v1/models", b"*", b"/v1/\xff", b"//", b"/%")
    )
    method = random.choice((b"POST", b"GET", b"PRI", b"CONNECT", b"post"))
    head = b"%s %s HTTP/1.%d\r\nhost: x\r\nauthorization: Bearer sk-blue\r\n" % (method, target, random.randrange(3))
    data = head + b"content-length: %d\r\n" % len(body) + extra + b"connection: close\r\n\r\n" + body
    if random.random() < 0.2:
        data *= 2
    return mutated(random, data) if random.random() < 0.6 else data


async def answer_to(port: int, data: bytes, patience_s: float = _PATIENCE_S) -> bytes:
    """What comes back within this time, if anything does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(patience_s):
            return await reader.read(65536)
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.close()

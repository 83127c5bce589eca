"""A provider that answers with anything: streams cut anywhere, odd events, headers that are none, lines that break."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import orjson

from proxy.engine.exchange import Call
from proxy.engine.ports import Answer
from proxy.kit.errors import ProxyError, UpstreamRejected, UpstreamTimeout, UpstreamUnavailable
from proxy.models import Headers
from tests.fuzz.values import mutated, text, value

SEED_HEADER = "x-fuzz-seed"

KINDS = (
    "text/event-stream", "text/event-stream", "text/event-stream; charset=utf-8", "application/json",
    "application/json", "", "text/html", "application/octet-stream", "TEXT/EVENT-STREAM",
)  # fmt: skip
STATUSES = (
    200, 200, 200, 200, 200, 200, 201, 204, 301, 400, 401, 404, 408, 413, 429, 429, 500, 503, 529, 599, 600, 999,
    199,
)  # fmt: skip
MORE: tuple[tuple[str, str], ...] = (
    ("retry-after", "0"), ("retry-after", "soon"), ("retry-after-ms", "1"), ("x-should-retry", "false"),
    ("content-encoding", "gzip"), ("content-length", "many"), ("transfer-encoding", "chunked"),
    ("connection", "x-a"), ("x-a", "1"), ("x-b", "a\r\nx-injected: 1"), ("x c", "1"), ("", "1"), ("x-d", "é漢"),
    ("set-cookie", "a=b"), ("x-stratiform-reason", "theirs"), ("location", "http://127.0.0.1/"), ("x-e", "\x00"),
)  # fmt: skip


class StrangeUpstream:
    """``proxy.engine.ports.Upstream``. ``opened`` and ``closed`` count answers."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0

    async def open(self, call: Call) -> Answer:
        if not isinstance(call.body, bytes):
            async for _ in call.body:
                pass
        seed = next((value for name, value in call.headers if name == SEED_HEADER), "0")
        random = Random(seed)
        await asyncio.sleep(0)
        error = _error(random)
        if error is not None:
            raise error
        self.opened += 1
        return _StrangeAnswer(self, random)

    async def aclose(self) -> None:
        """Nothing is held."""


class _StrangeAnswer:
    def __init__(self, upstream: StrangeUpstream, random: Random) -> None:
        self._upstream = upstream
        self._random = random
        self._is_closed = False
        self.status = random.choice(STATUSES)
        kind = random.choice(KINDS)
        more = [random.choice(MORE) for _ in range(random.randrange(3))] if random.random() < 0.5 else []
        self.headers: Headers = [*([("content-type", kind)] if kind else []), *more]

    async def chunks(self) -> AsyncIterator[bytes]:
        random = self._random
        for chunk in _cut(random, _stream(random)):
            if random.random() < 0.02:
                raise random.choice((UpstreamUnavailable("cut"), UpstreamTimeout("silent")))
            if random.random() < 0.2:
                await asyncio.sleep(0)
            yield chunk

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._upstream.closed += 1


def _error(random: Random) -> ProxyError | None:
    kind = random.randrange(30)
    if kind == 0:
        return UpstreamUnavailable("gone")
    if kind == 1:
        return UpstreamTimeout("silent")
    if kind == 2:
        return UpstreamRejected("no", status=random.choice((400, 401, 429, 503)), error_type="odd", code="odd")
    return None


def _event(random: Random) -> bytes:
    kind = random.randrange(10)
    if kind == 0:
        return random.choice((b"data: [DONE]\n\n", b": ping\n\n", b"\n", b"\r\n\r\n", b"event: error\ndata: {}\n\n"))
    payload: object = {"choices": [{"index": 0, "delta": {"content": text(random)}}]}
    if kind == 1:
        payload = {"choices": [], "usage": {"prompt_tokens": value(random, 1), "completion_tokens": 3}}
    elif kind == 2:
        payload = {"error": value(random, 2)}
    elif kind == 3:
        payload = value(random)
    elif kind == 4:
        payload = {
            "choices": [{"finish_reason": value(random, 1), "delta": value(random, 2)}],
            "usage": value(random, 2),
        }
    try:
        data = orjson.dumps(payload)
    except TypeError:
        data = b'{"choices":[{"delta":{"content":"\\ud800"}}]}'
    return b"data: " + data + random.choice((b"\n\n", b"\r\n\r\n", b"\n\r\n", b"\r\r", b"\n"))


def _stream(random: Random) -> bytes:
    data = b"".join(_event(random) for _ in range(random.randrange(12)))
    if random.random() < 0.3:
        data = mutated(random, data)
    if random.random() < 0.01:
        data += b"data: " + b"x" * (3 << 20)
    return data


def _cut(random: Random, data: bytes) -> list[bytes]:
    if random.random() < 0.4:
        return [data] if data else []
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(1, 12)))
    return [piece for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if (piece := data[a:b])]

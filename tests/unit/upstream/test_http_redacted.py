"""The operator's keys in answers that say status 200."""

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest
from hypothesis import example, given
from hypothesis.strategies import integers, lists, sampled_from

from proxy.engine.exchange import Call
from proxy.engine.headers import form_of
from proxy.kit.secrets import MOST_BYTES
from proxy.models import Headers
from proxy.upstream.http import redacted
from tests.doubles import make_deployment

KEY = b"sk-of-the-operator"
ERROR = {"error": {"message": f"the key {KEY.decode()} is not known", "code": 401}}
JSON = "application/json"


class Pieces:
    """An answer in these pieces."""

    status = 200

    def __init__(self, kind: str, pieces: list[bytes], *, has_length: bool = False) -> None:
        length = str(sum(map(len, pieces)))
        headers = [("content-type", kind), ("content-length", length if has_length else "")]
        self.headers: Headers = [pair for pair in headers if pair[1]]
        self.form = form_of(self.headers)
        self.pieces = pieces

    def arrived(self) -> bytes | None:
        return None

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece

    async def aclose(self) -> None:
        """Nothing is open."""


def shown(answer: Pieces, *, stream: bool = False, method: str = "POST") -> tuple[dict[str, str], list[bytes]]:
    """The headers, and what passes for each piece."""
    call = Call(make_deployment(api_key=KEY.decode()), method, "/x", headers=[], body=b"", stream=stream, now=0.0)

    async def main() -> tuple[dict[str, str], list[bytes]]:
        told = await redacted(answer, call)
        return dict(told.headers), [chunk async for chunk in told.chunks()]

    return asyncio.run(main())


def cut(body: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, *cuts})
    return [body[start:stop] for start, stop in zip(places, [*places[1:], None], strict=True)]


@given(
    kind=sampled_from([JSON, "application/json; charset=utf-8", "application/problem+json", "text/plain", ""]),
    before=sampled_from([b"", b"  \n \n", b"\n\n", b"[", b'{"id": "x", "choices": [' + b"1, " * 30_000 + b"1],"]),
    cuts=lists(integers(0, 200)),
    has_length=sampled_from([False, True]),
    stream=sampled_from([False, True]),
)
@example(kind=JSON, before=b'{"choices": [' + b"1, " * 30_000 + b"1],", cuts=[], has_length=True, stream=False)
def test_no_error_shows_the_key(kind: str, before: bytes, cuts: list[int], *, has_length: bool, stream: bool) -> None:
    body = before + orjson.dumps(ERROR)
    has_length = has_length and (len(before) < 100 or "json" in kind)
    headers, found = shown(Pieces(kind, cut(body, cuts), has_length=has_length), stream=stream and not before)
    assert b"".join(found) == body.replace(KEY, b"[redacted]")
    assert "content-length" not in headers


@pytest.mark.parametrize("kind", ["", "text/plain", "text/event-stream"])
def test_no_error_event_shows_the_key_whatever_the_stream_is_called(kind: str) -> None:
    events = [b'data: {"choices": []}\n\n', b"data: " + orjson.dumps(ERROR) + b"\n\n"]
    assert shown(Pieces(kind, events), stream=True)[1] == [events[0], events[1].replace(KEY, b"[redacted]")]


@pytest.mark.parametrize("has_length", [False, True])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b'{"error": null, "output": "x"}'),
        (JSON, b'{"tools": {"error": {}}, "output": "' + b"x" * 200_000 + b'"}'),
        (JSON, b'{"choices": [{"message": {"content": "' + KEY + b'"}}]}'),
        ("audio/mpeg", b'"error"' + KEY),
        (JSON, b""),
    ],
)
def test_everything_else_passes_unchanged(kind: str, body: bytes, *, has_length: bool) -> None:
    headers, found = shown(Pieces(kind, cut(body, [5, 90, 70_000]), has_length=has_length))
    assert b"".join(found) == body
    # Of a long JSON body it is not known how long it will be without the keys in its errors.
    assert ("content-length" in headers) == (has_length and not (kind == JSON and len(body) > MOST_BYTES))


def test_the_length_of_a_long_body_that_was_not_asked_for_stays() -> None:
    answer = Pieces(JSON, [], has_length=True)
    answer.headers = [("content-type", JSON), ("content-length", "200000")]
    assert shown(answer, method="HEAD") == (dict(answer.headers), [])


def test_a_body_passes_as_it_comes() -> None:
    pieces = [b'[{"text": "%s"},' % (b"x" * 100) for _ in range(3)]
    assert [len(piece) > 80 for piece in shown(Pieces(JSON, pieces))[1]][:3] == [True] * 3

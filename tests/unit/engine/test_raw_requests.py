"""Requests that are no chats: they pass as they came, but for the name of their model."""

from itertools import product

import orjson
import pytest

from proxy.engine import BodyLimits
from proxy.kit.errors import UpstreamUnavailable
from proxy.protocol.response.event_format import MAX_EVENT_BYTES
from tests.examples import for_every
from tests.unit.engine.parts import JSON, WORD, Bench, MemoryClient, answers


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/responses", b'data: {"error":{"message":"cut","type":"server_error","param":null,'
                       b'"code":"upstream_unavailable"}}\n\n'),
        ("/messages", b'event: error\ndata: {"type":"error","error":{"message":"cut","type":"api_error","param":null,'
                      b'"code":"upstream_unavailable"}}\n\n'),
    ],
)  # fmt: skip
def test_a_raw_stream_that_breaks_says_so_behind_whole_events_and_is_cut_off(path: str, said: bytes) -> None:
    bench = Bench(answers(WORD, WORD[:9], UpstreamUnavailable("cut")))
    client = bench.relay(MemoryClient(b'{"model": "m"}', path=path))
    assert (client.answer, client.has_ended) == (WORD + said, False)


@pytest.mark.parametrize("body", [b"not json", b"[]", b'{"model": 7}'])
def test_a_body_that_names_no_model_goes_to_the_fallback_as_it_is(body: bytes) -> None:
    bench = Bench(answers(b"x", headers=[]))
    assert bench.relay(MemoryClient(body, path="/anything")).answer == b"x"
    assert bench.upstream.bodies == [body]


@pytest.mark.parametrize("size", [100, MAX_EVENT_BYTES + 1])
def test_an_error_that_ends_a_stream_is_an_event_of_its_own(size: int) -> None:
    """Also behind the beginning of an event that is passed on as it comes."""
    bench = Bench(answers(WORD, b"data: " + b"x" * size, UpstreamUnavailable("gone")))
    client = bench.relay(MemoryClient(b'{"model": "m"}', path="/responses"))
    *_, last = client.answer.split(b"\n\n")[:-1]
    assert orjson.loads(last.removeprefix(b"data: "))["error"]["code"] == "upstream_unavailable"


@for_every(product([200, 204, 304], ["GET", "DELETE", "HEAD"]))
def test_only_an_answer_that_has_a_body_has_its_length(status: int, method: str) -> None:
    bench = Bench(answers(status=status, headers=[("content-length", "7"), ("etag", "x")]))
    client = bench.relay(MemoryClient(method=method, path="/files/f", headers=[]))
    assert (client.status, client.answer, client.answer_headers["etag"]) == (status, b"", "x")
    assert ("content-length" in client.answer_headers) == (status == 200)


def test_a_large_json_body_is_streamed_to_the_fallback() -> None:
    bench = Bench(answers(b"{}", headers=JSON), limits=BodyLimits(peek_bytes=8))
    bench.relay(MemoryClient(b'{"model": "other"}', path="/batches"))
    assert not isinstance(bench.upstream.calls[0].body, bytes)
    assert bench.upstream.calls[0].deployment.name == "*"

"""Errors that are no error objects."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import orjson
import pytest

from proxy.core.response.refusal import NO_WORDS
from proxy.engine import upstream_answer
from proxy.engine.upstream_answer import ReadAhead, with_refusal_read
from proxy.errors import ProxyError, UpstreamUnavailable
from proxy.ports import Headers
from tests.unit.engine.parts import JSON, SSE, Bench, MemoryClient, answers, chat_body

HTML = [("content-type", "text/html"), ("x-request-id", "r1"), ("content-length", "17")]
PAGE = b"<html>oops</html>"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "kind", "phrase"),
    [
        (500, "server_error", "(Internal Server Error)"),
        (413, "invalid_request_error", "("),
        (599, "server_error", "599"),
    ],
)
def test_a_chat_gets_an_error_object_for_a_page(status: int, kind: str, phrase: str, *, stream: bool) -> None:
    bench = Bench(answers(PAGE, status=status, headers=HTML))
    client = bench.chat(MemoryClient(chat_body(stream=stream)))
    error = orjson.loads(client.answer)["error"]
    assert (client.status, error["type"], error["code"], error["param"]) == (status, kind, "upstream_error", None)
    assert phrase in error["message"]
    assert "oops" not in error["message"]
    sent = client.answer_headers
    assert (sent["content-type"], sent["x-request-id"]) == ("application/json", "r1")
    assert sent["content-length"] == str(len(client.answer))
    assert bench.ledger.ended[0].answer.status == status


def test_plain_text_is_quoted() -> None:
    bench = Bench(answers(b"404 page\n not found", b"!" * 1000, status=404, headers=[("content-type", "text/plain")]))
    message = orjson.loads(bench.chat(MemoryClient(chat_body())).answer)["error"]["message"]
    assert message.startswith("the upstream answered 404 (Not Found), without an error object: 404 page not found!!!")
    assert len(message) < 300


def test_compressed_text_is_not_quoted() -> None:
    headers = [("content-type", "text/plain"), ("content-encoding", "gzip")]
    client = Bench(answers(gzip.compress(b"no"), status=502, headers=headers)).chat(MemoryClient(chat_body()))
    assert orjson.loads(client.answer)["error"]["message"].endswith("error object")
    assert "content-encoding" not in client.answer_headers


@pytest.mark.parametrize("kind", [[], [("content-type", "text/plain")]])
def test_an_object_that_is_not_called_one_passes(kind: list[tuple[str, str]]) -> None:
    client = Bench(answers(b'{"error"', b":{}}", status=400, headers=kind)).chat(MemoryClient(chat_body()))
    assert (client.answer, client.answer_headers["content-type"]) == (b'{"error":{}}', "application/json")


def test_a_page_that_breaks_off_or_does_not_end() -> None:
    for steps in ((b"<html>", UpstreamUnavailable("cut")), (b"x" * 70_000, None), ()):
        client = Bench(answers(*steps, status=503, headers=HTML)).chat(MemoryClient(chat_body()))
        assert (client.status, orjson.loads(client.answer)["error"]["code"]) == (503, "upstream_error")


@pytest.mark.parametrize("headers", [JSON, SSE])
def test_an_error_that_claims_a_content_type_of_the_api_passes_as_it_is(headers: list[tuple[str, str]]) -> None:
    client = Bench(answers(b"no", status=500, headers=headers)).chat(MemoryClient(chat_body()))
    assert client.answer == b"no"


def test_other_paths_get_what_came() -> None:
    client = Bench(answers(PAGE, status=500, headers=HTML)).relay(MemoryClient(chat_body(), path="/embeddings"))
    assert (client.answer, client.answer_headers["content-type"]) == (PAGE, "text/html")


class Slow:
    """An answer that goes on when it is told to. A wait for it can be given up, as one for the network."""

    def __init__(self, *steps: bytes | ProxyError | None, status: int = 400, headers: Headers = ()) -> None:
        self.status, self.headers, self.steps = status, headers, list(steps)
        self.go_on = asyncio.Event()
        self.is_closed = False

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self.steps[:1] == [None]:
            await self.go_on.wait()
            self.steps.pop(0)
        if not self.steps:
            raise StopAsyncIteration
        step = self.steps.pop(0)
        if isinstance(step, ProxyError):
            raise step
        assert step is not None
        return step

    async def aclose(self) -> None:
        self.is_closed = True


async def rest_of(answer: ReadAhead) -> bytes:
    return b"".join([chunk async for chunk in answer.chunks()])


async def test_what_comes_late_is_passed_on_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_answer, "_MOST_S", 0.01)

    slow = Slow(b"one ", None, b"two ", b"three")
    ahead = ReadAhead(slow)
    assert await ahead.read() == b"one "
    slow.go_on.set()
    assert await rest_of(ahead) == b"one two three"
    await ahead.aclose()
    assert slow.is_closed


async def test_a_break_is_passed_on_behind_what_came() -> None:
    ahead = ReadAhead(Slow(b"one", UpstreamUnavailable("broken")))
    assert await ahead.read() == b"one"
    chunks = ahead.chunks()
    assert await anext(chunks) == b"one"
    with pytest.raises(UpstreamUnavailable):
        await anext(chunks)


@pytest.mark.parametrize(
    ("status", "headers"), [(200, ()), (404, ()), (500, ()), (400, [("content-encoding", "gzip")])]
)
async def test_other_answers_are_not_read(status: int, headers: Headers) -> None:
    answer = Slow(None, status=status, headers=headers)
    found, said = await with_refusal_read(answer)
    assert (found is answer, said) == (True, NO_WORDS)

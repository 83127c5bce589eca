"""Errors that are no error objects."""

import gzip

import orjson
import pytest

from proxy.errors import UpstreamUnavailable
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

"""Every path but chat completions: raw in both directions."""

import gzip
import http.client
import io
import json
import os
import socket
from typing import Any

import openai
import pytest

from proxy.engine.exchange import ExchangeOutcome
from tests.e2e.conftest import Proxy, Start
from tests.e2e.provider import WAIT_S, Scripted, Seen, event, head, part, read_body, replies, streams

VECTOR = {
    "object": "list",
    "model": "m",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}],
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}


def connect(proxy: Proxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=WAIT_S)


def call(
    proxy: Proxy, method: str, path: str, body: Any = None, headers: Any = None
) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = connect(proxy)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def test_embeddings_pass_and_their_usage_is_settled(start: Start) -> None:
    provider = Scripted(replies(VECTOR))
    proxy = start(provider, name="mine", model="theirs", api_key="sk-operator")
    found = proxy.client.embeddings.create(model="mine", input="x", encoding_format="float")
    assert found.data[0].embedding == [0.5, 1.0]
    assert provider.seen[0].json == {"input": "x", "model": "theirs", "encoding_format": "float"}
    assert provider.seen[0].header("authorization") == "Bearer sk-operator"
    (exchange,) = proxy.ledger.wait()
    assert exchange.answer.outcome.usage is not None
    assert (exchange.answer.outcome.usage.prompt, exchange.requested.model, exchange.ending) == (
        5,
        "mine",
        ExchangeOutcome.COMPLETED,
    )


def test_a_multipart_upload_arrives_byte_for_byte(start: Start) -> None:
    sound = bytes(range(256)) * 5000
    provider = Scripted(replies({"text": "hello"}))
    proxy = start(provider)
    found = proxy.client.audio.transcriptions.create(model="whisper-1", file=("a.wav", io.BytesIO(sound)))
    assert found.text == "hello"
    seen = provider.seen[0]
    assert seen.path == "/v1/audio/transcriptions"
    assert sound in seen.body
    boundary = (seen.header("content-type") or "").partition("boundary=")[2]
    assert seen.body.endswith(f"--{boundary}--\r\n".encode())
    assert seen.header("content-length") == str(len(seen.body))


def test_an_upload_goes_by_the_deployments_name_for_its_model(start: Start) -> None:
    sound = os.urandom(300_000)
    provider = Scripted(replies({"text": "hello"}))
    proxy = start(provider, name="whisper", model="whisper-large-v3", api_key="sk-operator")
    found = proxy.client.audio.transcriptions.create(model="whisper", file=("a.wav", io.BytesIO(sound)))
    assert found.text == "hello"
    (seen,) = provider.seen
    assert sound in seen.body
    assert b"\r\nwhisper-large-v3\r\n" in seen.body
    assert seen.header("content-length") == str(len(seen.body))
    with pytest.raises(openai.NotFoundError, match="no model"):
        proxy.client.audio.transcriptions.create(model="other", file=("a.wav", io.BytesIO(sound)))


def test_an_upload_is_streamed_not_collected(start: Start) -> None:
    provider = Scripted(replies({"id": "file-1"}))
    proxy = start(provider)
    host, port = proxy.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as line:
        line.sendall(b"POST /v1/files HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 200000\r\n\r\n")
        line.sendall(b"a" * 100_000)
        seen = provider.wait()
        assert seen.started.wait(WAIT_S)
        line.sendall(b"b" * 100_000)
        assert line.makefile("rb").read().endswith(b'{"id":"file-1"}')
    assert seen.body == b"a" * 100_000 + b"b" * 100_000


def test_an_upload_that_is_given_up_reaches_nobody_as_whole(start: Start) -> None:
    provider = Scripted(streams(ends=False))
    proxy = start(provider)
    host, port = proxy.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as line:
        line.sendall(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n" + b"a" * 1000)
        provider.wait()
    (exchange,) = proxy.ledger.wait()
    assert exchange.ending is ExchangeOutcome.HUNG_UP


def test_a_download_passes_as_the_provider_encoded_it(start: Start) -> None:
    packed = gzip.compress(b"line\n" * 10_000)
    provider = Scripted(
        replies(packed, headers=[("content-type", "application/octet-stream"), ("content-encoding", "gzip")])
    )
    proxy = start(provider)
    status, body, headers = call(proxy, "GET", "/v1/files/f%201/content?x=%2F&y", headers={"accept-encoding": "gzip"})
    assert (status, body, headers["content-encoding"]) == (200, packed, "gzip")
    assert headers["content-length"] == str(len(packed))
    seen = provider.seen[0]
    assert (seen.path, seen.query, seen.header("accept-encoding")) == ("/v1/files/f%201/content", "x=%2F&y", "gzip")


def test_a_responses_stream_passes_and_its_usage_is_seen(start: Start) -> None:
    done = {
        "type": "response.completed",
        "sequence_number": 2,
        "response": {"id": "r", "output": [], "usage": {"input_tokens": 8, "output_tokens": 3, "total_tokens": 11}},
    }
    text = {"type": "response.output_text.delta", "sequence_number": 1, "delta": "hi", "item_id": "i"}
    proxy = start(Scripted(streams(event(text), b"event: response.completed\n" + event(done))))
    with proxy.client.responses.create(model="m", input="x", stream=True) as stream:
        kinds = [item.type for item in stream]
    assert kinds == ["response.output_text.delta", "response.completed"]
    usage = proxy.ledger.wait()[0].answer.outcome.usage
    assert usage is not None
    assert (usage.prompt, usage.output) == (8, 3)


def test_an_anthropic_message_stream_passes_and_its_usage_is_seen(start: Start) -> None:
    begun = {"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1}
    events = [
        b"event: message_start\n" + event({"type": "message_start", "message": {"usage": begun}}),
        b'event: ping\ndata: {"type": "ping"}\n\n',
        b"event: message_delta\n" + event({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9}}),
        b"event: message_stop\n" + event({"type": "message_stop"}),
    ]
    provider = Scripted(streams(*events))
    proxy = start(provider, api_key="sk-operator")
    body = json.dumps({"model": "m", "stream": True, "max_tokens": 5, "messages": []})
    headers = {"content-type": "application/json", "x-api-key": "sk-client", "anthropic-version": "2023-06-01"}
    _, answer, told = call(proxy, "POST", "/v1/messages", body, headers)
    assert answer == b"".join(events)
    assert (told["x-stratiform-mode"], told["x-stratiform-reason"]) == ("passthrough", "not-chat")
    assert provider.seen[0].body == body.encode()
    assert provider.seen[0].header("x-api-key") == "sk-operator"
    assert provider.seen[0].header("anthropic-version") == "2023-06-01"
    usage = proxy.ledger.wait()[0].answer.outcome.usage
    assert usage is not None
    assert (usage.prompt, usage.read, usage.write, usage.output) == (123, 100, 20, 9)


def test_leaving_a_raw_stream_stops_the_provider(start: Start) -> None:
    provider = Scripted(streams(event({"type": "a"}), ends=False))
    proxy = start(provider)
    connection = connect(proxy)
    connection.request("POST", "/v1/responses", b'{"model": "m"}', {"content-type": "application/json"})
    connection.getresponse().read1(10)
    connection.close()
    assert provider.seen[0].gone.wait(WAIT_S)
    assert proxy.ledger.wait()[0].ending is ExchangeOutcome.HUNG_UP


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS"])
def test_any_method_passes(start: Start, method: str) -> None:
    provider = Scripted(replies({"ok": True}, 202, [("x-request-id", "r-1"), ("openai-version", "2020-10-01")]))
    status, body, headers = call(start(provider), method, "/v1/batches/b_1/cancel?limit=2")
    assert (status, json.loads(body), headers["x-request-id"]) == (202, {"ok": True}, "r-1")
    assert headers["openai-version"] == "2020-10-01"
    assert provider.seen[0].method == method


def test_head_has_headers_and_no_body(start: Start) -> None:
    async def reply(seen: Seen, send: Any, receive: Any) -> None:
        await send(head(200, [("content-length", "1234"), ("content-type", "audio/mpeg")]))
        await send(part(b"", more=False))

    status, body, headers = call(start(Scripted(reply)), "HEAD", "/v1/files/f/content")
    assert (status, body, headers["content-length"]) == (200, b"", "1234")


def test_an_answer_without_content(start: Start) -> None:
    async def reply(seen: Seen, send: Any, receive: Any) -> None:
        await read_body(seen, receive)
        await send(head(204, []))
        await send(part(b"", more=False))

    proxy = start(Scripted(reply))
    connection = connect(proxy)
    for _ in range(2):  # the connection stays usable
        connection.request("DELETE", "/v1/files/f")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (204, b"")
    connection.close()


def test_a_chunked_request_without_a_length(start: Start) -> None:
    provider = Scripted(replies(VECTOR))
    proxy = start(provider, name="mine", model="theirs")
    parts = iter([b'{"model": "mi', b'ne", "input": "x"}'])
    status, _, _ = call(proxy, "POST", "/v1/embeddings", parts, {"content-type": "application/json"})
    assert (status, provider.seen[0].body) == (200, b'{"model": "theirs", "input": "x"}')


def test_models_of_the_list_are_ours_to_tell(start: Start) -> None:
    proxy = start(Scripted(replies({})), name="mine")
    assert [model.id for model in proxy.client.models.list()] == ["mine"]
    assert proxy.client.models.retrieve("mine").id == "mine"
    with pytest.raises(openai.NotFoundError) as caught:
        proxy.client.models.retrieve("other")
    assert caught.value.code == "model_not_found"


def test_models_behind_a_wildcard_are_the_providers_to_tell(start: Start) -> None:
    theirs = {"object": "list", "data": [{"id": "gpt-x", "object": "model", "created": 1, "owned_by": "them"}]}
    provider = Scripted(replies(theirs), replies(theirs["data"][0]))
    proxy = start(provider)
    assert [model.owned_by for model in proxy.client.models.list()] == ["them"]
    assert proxy.client.models.retrieve("org/gpt-x").id == "gpt-x"
    assert [seen.path for seen in provider.seen] == ["/v1/models", "/v1/models/org%2Fgpt-x"]

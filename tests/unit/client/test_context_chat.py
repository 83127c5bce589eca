"""The real SDK against a server that keeps contents as the proxy does: contents that it lacks are sent again."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from openai import AsyncOpenAI, ConflictError, InternalServerError, OpenAI

from proxy.client import Context, achat, chat, missing_digests
from proxy.context.form import read_form
from proxy.context.session import Uploads
from proxy.kit.errors import Conflict, InternalError, MissingContent, ProxyError, error_body
from tests.examples import for_every

ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}],
}
CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 0,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "Hello."}}],
}


class Proxy:
    """What the server has seen, and what it does next. ``failures`` are raised by the next requests, in their order."""

    def __init__(self) -> None:
        self.uploads = Uploads()
        self.bodies: list[dict[str, Any]] = []
        self.failures: list[ProxyError] = []
        self.before: Callable[[], None] = lambda: None
        self.url = ""

    def sections(self) -> list[dict[str, Any]]:
        return [body["stratiform"] for body in self.bodies]

    def answer(self, body: dict[str, Any]) -> None:
        """Raises what the client gets instead of an answer."""
        self.bodies.append(body)
        self.before()
        form = read_form(json.dumps(body["stratiform"]).encode())
        assert form is not None
        self.uploads.resolve(form, "s")
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    found = Proxy()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                found.answer(body)
            except ProxyError as error:
                self.reply(error.status, "application/json", error_body(error), error.headers)
                return
            if body.get("stream"):
                event = b"data: " + json.dumps(CHUNK).encode() + b"\n\ndata: [DONE]\n\n"
                self.reply(200, "text/event-stream", event, {})
            else:
                self.reply(200, "application/json", json.dumps(ANSWER).encode(), {})

        def reply(self, status: int, kind: str, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "content-type": kind, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[OpenAI]:
    with OpenAI(base_url=proxy.url, api_key="k", max_retries=0) as found:
        yield found


MESSAGES = [{"role": "user", "content": "Hi."}]


def context_of(*texts: str) -> Context:
    context = Context()
    for number, text in enumerate(texts):
        context.select(f"f{number}", text)
    return context


def kinds(section: dict[str, Any]) -> list[str]:
    return ["content" if "content" in file else "digest" for file in section["files"]]


def test_contents_are_sent_once(proxy: Proxy, client: OpenAI) -> None:
    context = context_of("a", "b")
    for _ in range(2):
        answer = chat(client, context, model="m", messages=MESSAGES, extra_body={"user_note": 1}, temperature=0)
        assert answer.choices[0].message.content == "Hello."
    assert [kinds(section) for section in proxy.sections()] == [["content"] * 2, ["digest"] * 2]
    assert [(body["user_note"], body["temperature"], body["messages"]) for body in proxy.bodies] == [
        (1, 0, MESSAGES),
        (1, 0, MESSAGES),
    ]


def test_what_the_proxy_has_lost_is_sent_again_and_nothing_else(proxy: Proxy, client: OpenAI) -> None:
    context = context_of("a", "b")
    chat(client, context, model="m", messages=MESSAGES)
    proxy.uploads = Uploads()
    proxy.uploads.resolve(read_form(b'{"files":[{"path":"x","content":"b"}]}'), "s")  # type: ignore[arg-type]
    assert chat(client, context, model="m", messages=MESSAGES).choices[0].message.content == "Hello."
    assert [kinds(section) for section in proxy.sections()[1:]] == [["digest", "digest"], ["content", "digest"]]


@pytest.mark.slow
def test_the_third_attempt_brings_everything_and_is_the_last(proxy: Proxy, client: OpenAI) -> None:
    def forget() -> None:
        proxy.uploads = Uploads()

    context = context_of("a", "b")
    chat(client, context, model="m", messages=MESSAGES)
    context.select("f2", "c")
    proxy.failures = [MissingContent(["0" * 64]), MissingContent(["0" * 64])]
    assert chat(client, context, model="m", messages=MESSAGES)
    assert [kinds(section) for section in proxy.sections()[1:]] == [
        ["digest", "digest", "content"],
        ["digest", "digest", "content"],
        ["content"] * 3,
    ]
    proxy.failures = [MissingContent(["0" * 64])] * 3
    with pytest.raises(ConflictError) as error:
        chat(client, context, model="m", messages=MESSAGES)
    assert missing_digests(error.value) == ["0" * 64]
    assert len(proxy.bodies) == 7
    proxy.before = forget
    assert chat(client, context, model="m", messages=MESSAGES)


@pytest.mark.slow
@pytest.mark.parametrize("failure", [InternalError("m"), Conflict("m")])
def test_a_failed_request_has_delivered_nothing(proxy: Proxy, client: OpenAI, failure: ProxyError) -> None:
    context = context_of("a")
    context.add_image("data:,x")
    proxy.failures = [failure]
    with pytest.raises((InternalServerError, ConflictError)):
        chat(client, context, model="m", messages=MESSAGES)
    assert len(proxy.bodies) == 1
    chat(client, context, model="m", messages=MESSAGES)
    assert proxy.sections()[1] == proxy.sections()[0]
    assert kinds(proxy.sections()[1]) == ["content"]


def test_streams_are_returned_as_streams(proxy: Proxy, client: OpenAI) -> None:
    context = context_of("a")
    chat(client, context, model="m", messages=MESSAGES)
    proxy.uploads = Uploads()
    with chat(client, context, model="m", messages=MESSAGES, stream=True) as stream:
        assert [chunk.choices[0].delta.content for chunk in stream] == ["Hello."]
    assert [kinds(section) for section in proxy.sections()] == [["content"], ["digest"], ["content"]]


async def test_the_asynchronous_client_does_the_same(proxy: Proxy) -> None:
    context = context_of("a")
    async with AsyncOpenAI(base_url=proxy.url, api_key="k", max_retries=0) as client:
        await achat(client, context, model="m", messages=MESSAGES)
        proxy.uploads = Uploads()
        stream = await achat(client, context, model="m", messages=MESSAGES, stream=True)
        assert [chunk.choices[0].delta.content async for chunk in stream] == ["Hello."]
        proxy.failures = [MissingContent([])] * 3
        with pytest.raises(ConflictError):
            await achat(client, context, model="m", messages=MESSAGES)
    assert [kinds(section)[0] for section in proxy.sections()] == ["content", "digest", "content"] + [
        "digest",
        "digest",
        "content",
    ]


@pytest.mark.slow
def test_the_sdk_does_not_repeat_the_refusal_by_itself(proxy: Proxy) -> None:
    proxy.failures = [MissingContent(["0" * 64])] * 3
    with OpenAI(base_url=proxy.url, api_key="k", max_retries=2) as client, pytest.raises(ConflictError):
        chat(client, context_of("a"), model="m", messages=MESSAGES)
    assert len(proxy.bodies) == 3


class _Error(Exception):
    def __init__(self, status: object, body: object) -> None:
        super().__init__("refused")
        self.status_code = status
        self.body = body


MISSING = {"code": "missing_content", "missing": ["a", 1]}


@for_every(
    [
        (_Error(409, MISSING), ["a"]),
        (_Error(409, {"error": MISSING}), ["a"]),
        (_Error(409, {"code": "missing_content"}), []),
        (_Error(409, {"code": "missing_content", "missing": "a"}), []),
        (_Error(409, {"code": "conflict", "missing": ["a"]}), None),
        (_Error(409, {"error": "text"}), None),
        (_Error(409, "text"), None),
        (_Error(409, None), None),
        (_Error(400, MISSING), None),
        (ValueError(), None),
        (None, None),
    ]
)
def test_only_the_refusal_for_missing_contents_is_one(error: BaseException | None, missing: list[str] | None) -> None:
    assert missing_digests(error) == missing

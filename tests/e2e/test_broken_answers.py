"""Answers that end otherwise than they should, from a provider on a plain socket, through the proxy as it is served."""

import http.client
import json
import re
import socket
import socketserver
import struct
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.app.settings import Environment, load
from proxy.lab.demo.command import running
from proxy.protocol.request.tokens import bytes_over_four
from tests.e2e.fleet import metric
from tests.e2e.provider import DONE, chunk, completion, event, usage_chunk
from tests.examples import sampled
from tests.unread import is_taken
from tests.waiting import until

WAIT_S = 60.0
CONFIG = """
router_settings: {{num_retries: 2}}
stratiform:
  port: 0
  log_level: error
  store: memory
  prices: {{m: {{input_cost_per_token: 0.001, output_cost_per_token: 0.001}}}}
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{url}/v1", api_key: sk-x, timeout: 600}}
    model_info: {{mode: passthrough}}
"""


def answer(body: bytes, kind: str = "application/json", *, missing: int = 0) -> bytes:
    """An answer of whose body so many bytes never come."""
    length = b"content-length: %d\r\n" % (len(body) + missing)
    return b"HTTP/1.1 200 OK\r\ncontent-type: " + kind.encode() + b"\r\n" + length + b"\r\n" + body


def chunked(*parts: bytes, kind: str, ends: bool = True) -> bytes:
    """An answer in chunks."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: " + kind.encode() + b"\r\ntransfer-encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head + body + (b"0\r\n\r\n" if ends else b"")


class Provider(socketserver.ThreadingTCPServer):
    """Answers each request with the next of its scripts, and then closes, resets or keeps the line; or waits first."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *scripts: tuple[bytes, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scripts = list(scripts)
        self.calls = 0
        self.dropped = threading.Event()
        self.go = threading.Event()


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        length = 0
        while (header := self.rfile.readline().strip().lower()) != b"":
            if header.startswith(b"content-length:"):
                length = int(header.partition(b":")[2])
        self.rfile.read(length)
        provider = self.server
        assert isinstance(provider, Provider)
        provider.calls += 1
        data, then = provider.scripts.pop(0) if len(provider.scripts) > 1 else provider.scripts[0]
        if then == "wait":
            provider.go.wait(WAIT_S)
        self.wfile.write(data)
        if then == "reset":
            # Who is reset before having read what came in front has never seen the answer begin.
            until(lambda: is_taken(self.connection))
            threading.Event().wait(0.3)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if then == "open":
            self.connection.settimeout(WAIT_S)
            assert self.rfile.read(1) == b""
            provider.dropped.set()


@contextmanager
def proxy_before(folder: Path, *scripts: tuple[bytes, str]) -> Iterator[tuple[str, Provider]]:
    """The proxy in front of a provider with such scripts."""
    with Provider(*scripts) as provider:
        thread = threading.Thread(target=provider.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        path = folder / "config.yaml"
        path.write_text(CONFIG.format(url=f"http://127.0.0.1:{provider.server_address[1]}"))
        try:
            with running(load(path, environment=Environment({})), bytes_over_four) as proxy:
                yield proxy.url, provider
        finally:
            provider.shutdown()


def ask(url: str, path: str = "/v1/chat/completions", **fields: object) -> tuple[int, bytes]:
    """The status and the body of an answer, of which all must come."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=WAIT_S)
    body = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "x" * 400}], **fields}
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        got = connection.getresponse()
        return got.status, got.read()
    finally:
        connection.close()


WHOLE = json.dumps(completion()).encode()  # 9 tokens in, 2 out: $0.011
BREAKS = {
    "short length": (answer(WHOLE[:60], missing=len(WHOLE) - 60), "close"),
    "no last chunk": (chunked(WHOLE[:60], kind="application/json", ends=False), "close"),
    "reset": (answer(WHOLE[:60], missing=len(WHOLE) - 60), "reset"),
}


@pytest.mark.parametrize("broken", sampled(BREAKS, 3))
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_json_answer_that_breaks_is_asked_for_again_and_billed(tmp_path: Path, broken: str, path: str) -> None:
    with proxy_before(tmp_path, BREAKS[broken], (answer(WHOLE), "close")) as (url, provider):
        assert ask(url, path) == (200, WHOLE)
        assert provider.calls == 2
        cost = metric(url, "cost_usd_total")
    # Both answers: the one that came whole by its report, the other by an estimate of its prompt and what was declared.
    assert 0.011 + 0.1 < cost < 0.011 + 0.2


def test_a_long_json_answer_is_not_kept_back_and_a_break_is_one_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = b'{"choices": [{"message": {"content": "' + b"x" * (2 << 20)
    caplog.set_level("INFO", "stratiform")
    with proxy_before(tmp_path, (answer(long, missing=9), "close")) as (url, provider):
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            ask(url)
        assert provider.calls == 1
        until(lambda: re.search(r"exchange sx-\w+: the answer broke off", caplog.text))
        until(lambda: " error=upstream_unavailable why=the-connection-to-the-upstream-broke " in caplog.text)


MESSAGE_STOP = b"event: message_stop\n" + event({"type": "message_stop"})
MESSAGES = (
    b"event: message_start\n" + event({"type": "message_start", "message": {"usage": {"input_tokens": 9}}}),
    b"event: message_delta\n" + event({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 2}}),
)
RESPONSE = {"id": "r", "usage": {"input_tokens": 9, "output_tokens": 2}}
FORMATS = {
    "/v1/chat/completions": (chunk("one"), usage_chunk(), DONE),
    "/v1/completions": (event({"choices": [{"text": "a"}]}), usage_chunk(), DONE),
    "/v1/messages": (*MESSAGES, MESSAGE_STOP),
    "/v1/responses": (
        event({"type": "response.output_text.delta", "delta": "a"}),
        event({"type": "response.completed", "response": RESPONSE}),
    ),
    "/v1/responses?incomplete": (event({"type": "response.incomplete", "response": RESPONSE}),),
}


@pytest.mark.parametrize("path", sampled(FORMATS, 2))
def test_a_stream_ends_with_its_last_event_though_the_line_stays_open(tmp_path: Path, path: str) -> None:
    events = FORMATS[path]
    script = (chunked(*events, kind="text/event-stream", ends=False), "open")
    with proxy_before(tmp_path, script) as (url, provider):
        fields = {"stream": True, "stream_options": {"include_usage": True}}
        assert ask(url, path, **fields) == (200, b"".join(events))
        assert provider.dropped.wait(WAIT_S)
        assert metric(url, "cost_usd_total") == pytest.approx(0.011)


HALVES = {
    "a line that breaks off": chunk("No.")[:40],
    "a line of which little is missing": event({"choices": [{"delta": {"content": "No."}}]})[:-6],
    "an event that is too long to be kept": b"data: " + b'{"choices":[{"delta":{"content":"' + b"x" * (3 << 19),
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_stream_that_ends_in_order_within_an_event_is_no_whole_answer(tmp_path: Path, path: str, half: bytes) -> None:
    """A client would drop the half, and take the rest for the whole answer."""
    stream = chunked(chunk("Yes."), half, kind="text/event-stream")
    with proxy_before(tmp_path, (stream, "close")) as (url, provider):
        with pytest.raises(http.client.IncompleteRead) as cut:
            ask(url, path, stream=True)
        assert cut.value.partial.startswith(chunk("Yes."))
        assert b'"error"' in cut.value.partial.split(b"\n\n")[-2]
        assert provider.calls == 1


def test_a_last_event_without_its_line_ends_is_an_event(tmp_path: Path) -> None:
    stream = chunked(chunk("Yes."), DONE.strip(), kind="text/event-stream")
    with proxy_before(tmp_path, (stream, "close")) as (url, _):
        assert ask(url, stream=True) == (200, chunk("Yes.") + DONE.strip())


@pytest.mark.parametrize("choices", [{"choices": []}, {"choices": None}, {}], ids=["none", "null", "missing"])
def test_a_usage_that_only_the_proxy_asked_for_does_not_reach_the_client(
    tmp_path: Path, choices: dict[str, object]
) -> None:
    """The SDKs' users write ``chunk.choices[0]``."""
    usage = event({**choices, "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}})
    for options, expected in ((None, b""), ({"include_usage": True}, usage)):
        stream = chunked(chunk("Yes."), usage, DONE, kind="text/event-stream")
        with proxy_before(tmp_path, (stream, "close")) as (url, _):
            assert ask(url, stream=True, stream_options=options) == (200, chunk("Yes.") + expected + DONE)


@pytest.mark.slow
def test_what_comes_at_once_behind_the_last_event_passes(tmp_path: Path) -> None:
    late = DONE + usage_chunk()
    script = (chunked(chunk("one") + late, kind="text/event-stream", ends=False), "open")
    with proxy_before(tmp_path, script) as (url, _):
        fields = {"stream": True, "stream_options": {"include_usage": True}}
        assert ask(url, **fields) == (200, chunk("one") + late)
        assert metric(url, "cost_usd_total") == pytest.approx(0.011)


def test_a_connection_whose_stream_has_ended_serves_the_next_call(tmp_path: Path) -> None:
    script = (chunked(chunk("one"), usage_chunk(), DONE, kind="text/event-stream"), "close")
    with proxy_before(tmp_path, script) as (url, _):
        for _ in range(2):
            assert ask(url, stream=True)[0] == 200
        with urllib.request.urlopen(f"{url}/healthz", timeout=WAIT_S) as alive:
            assert alive.status == 200


USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
QUOTED = 'they wrote "usage": {"prompt_tokens": 99999, "completion_tokens": 99999}, and went on. '
HUGE = {
    "/v1/chat/completions": {"choices": [{"message": {"content": QUOTED * 50_000}}], "usage": USAGE},
    "/v1/completions": {"choices": [{"text": QUOTED * 50_000}], "usage": USAGE},
    "/v1/messages": {"content": [{"text": QUOTED * 50_000}], "usage": {"input_tokens": 9, "output_tokens": 2}},
    "/v1/responses": {"output": [{"text": QUOTED * 50_000}], **RESPONSE},
    "/v1/embeddings": {"data": [{"embedding": [0.25] * 700_000}], "usage": {"prompt_tokens": 11, "total_tokens": 11}},
}


@pytest.mark.slow
@pytest.mark.parametrize("path", HUGE)
@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_too_large_to_be_kept_is_billed_by_its_usage(tmp_path: Path, path: str, is_stream: bool) -> None:
    payload: dict[str, object] = dict(HUGE[path])
    if is_stream and path.endswith("responses"):
        payload = {"type": "response.completed", "response": payload}
    body = event(payload) + DONE if is_stream else json.dumps(payload).encode()
    script = (answer(body, "text/event-stream" if is_stream else "application/json"), "close")
    with proxy_before(tmp_path, script) as (url, _):
        assert ask(url, path, stream=is_stream) == (200, body)
        assert metric(url, "cost_usd_total") == pytest.approx(0.011)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_that_passes_its_limit_is_billed_up_to_the_models_longest(
    tmp_path: Path, path: str, is_stream: bool
) -> None:
    payload = {"choices": [{"message": {"content": "word " * 1_000_000}}], "content": "word " * 1_000_000}
    body = event(payload) + DONE if is_stream else json.dumps(payload).encode()
    script = (answer(body, "text/event-stream" if is_stream else "application/json"), "close")
    with proxy_before(tmp_path, script) as (url, _):
        assert ask(url, path, stream=is_stream, max_output_tokens=50)[0] == 200
        assert 1.0 < metric(url, "cost_usd_total") <= 0.001 * (50 + 300 + 8192)


def sent(url: str) -> socket.socket:
    """A connection on which a request was sent."""
    host, port = url.removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)), timeout=WAIT_S)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    return line


def test_the_call_of_a_client_that_has_left_is_dropped_while_the_provider_is_silent(tmp_path: Path) -> None:
    with proxy_before(tmp_path, (b"", "open")) as (url, provider):
        with sent(url):
            until(lambda: provider.calls == 1)
        assert provider.dropped.wait(WAIT_S), "before the provider's time is over"

"""A provider that failed is tried with one call at a time, however many clients come back at once."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.types import Receive, Send

from proxy.app.settings import Environment, load
from proxy.cli.demo import running
from proxy.protocol.request.tokens import bytes_over_four
from tests.doubles import serving
from tests.e2e.provider import WAIT_S, Scripted, Seen, completion, read_body, replies
from tests.receiver import send_whole
from tests.waiting import until

CLIENTS = 24
CONFIG = """
router_settings: {{num_retries: 0, allowed_fails: 1, cooldown_time: 0.3}}
stratiform: {{port: 0, log_level: error, store: memory}}
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{url}/v1", api_key: sk-x}}
"""
# Long enough to be read in a thread, so that many requests are between their admission and their call at once.
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "long words " * 60_000}]}).encode()


class Waiting:
    """A reply that waits until it is told to go on, and then answers with whatever is set. Calls behind the first
    ``patient`` ones are answered at once."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.status = 200
        self.calls = 0
        self.patient = CLIENTS

    async def __call__(self, seen: Seen, send: Send, receive: Receive) -> None:
        self.calls += 1
        await read_body(seen, receive)
        if self.calls <= self.patient:
            await asyncio.to_thread(self.go.wait, WAIT_S)
        await send_whole(send, self.status, json.dumps(completion()).encode(), [("content-type", "application/json")])


def ask(url: str) -> int:
    """The status of one request."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=WAIT_S)
    try:
        connection.request("POST", "/v1/chat/completions", BODY, {"content-type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def failed_provider(folder: Path) -> Iterator[tuple[str, Waiting]]:
    """The proxy, behind a provider that has failed twice and from now on lets every call wait."""
    waiting = Waiting()
    provider = Scripted(replies({"error": {"message": "no"}}, 500), replies({"error": {"message": "no"}}, 500), waiting)
    path = folder / "config.yaml"
    with serving(provider) as upstream:
        path.write_text(CONFIG.format(url=upstream))
        with running(load(path, environment=Environment({})), bytes_over_four) as proxy:
            assert [ask(proxy.url) for _ in range(2)] == [500, 500]
            try:
                yield proxy.url, waiting
            finally:
                waiting.go.set()


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 500])
def test_of_many_clients_that_come_back_one_probes(tmp_path: Path, status: int) -> None:
    with failed_provider(tmp_path) as (url, waiting), ThreadPoolExecutor(CLIENTS) as pool:
        waiting.status = status
        threading.Event().wait(0.4)  # the time for which the provider is left alone
        asked = [pool.submit(ask, url) for _ in range(CLIENTS)]
        until(lambda: sum(one.done() for one in asked) == CLIENTS - 1)
        assert waiting.calls == 1
        waiting.go.set()
        assert sorted(one.result() for one in asked) == sorted([status, *[503] * (CLIENTS - 1)])
        if status == 200:
            assert ask(url) == 200


@pytest.mark.slow
def test_a_probe_whose_client_hangs_up_gives_its_place_to_the_next(tmp_path: Path) -> None:
    with failed_provider(tmp_path) as (url, waiting):
        waiting.patient = 1
        threading.Event().wait(0.4)
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as line:
            line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(BODY))
            line.sendall(BODY)
            until(lambda: waiting.calls == 1)
            assert ask(url) == 503
        until(lambda: ask(url) == 200)
        assert waiting.calls == 2

"""What clients see when something goes wrong: the SDK's own exceptions, retries, and nothing half-said."""

import http.client
import json
from typing import Any

import openai
import pytest

from proxy.engine import BodyLimits
from proxy.engine.exchange import ExchangeOutcome
from proxy.engine.ports import PlanRequest
from proxy.kit.errors import BudgetExceeded
from proxy.planner.plan import Plan
from tests.doubles import OpenDoor, PassthroughPlanner
from tests.e2e.conftest import Proxy, Start
from tests.e2e.provider import WAIT_S, Scripted, chunk, embedded_app, new_embedded, replies, streams

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def ask(client: openai.OpenAI, fault: str = "", **fields: Any) -> Any:
    headers = {"x-embedded-fault": fault} if fault else {}
    return client.chat.completions.create(model="m", messages=HELLO, extra_headers=headers, **fields)


@pytest.mark.parametrize(
    ("fault", "calls"), [("rate-limit;n=1;seconds=0.01", 2), ("error;n=1", 2), ("error;n=2;status=503", 3)]
)
def test_the_sdk_retries_what_it_would_retry(start: Start, fault: str, calls: int) -> None:
    proxy = start(embedded_app(new_embedded()))
    with proxy.other_client(max_retries=2) as client:
        assert ask(client, fault).choices
    endings = [e.ending for e in proxy.ledger.wait(calls)]
    assert endings == [ExchangeOutcome.REJECTED] * (calls - 1) + [ExchangeOutcome.COMPLETED]


def test_a_rate_limit_arrives_with_its_headers(start: Start) -> None:
    proxy = start(embedded_app(new_embedded()))
    with pytest.raises(openai.RateLimitError) as caught:
        ask(proxy.client, "rate-limit;seconds=3")
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers["retry-after"] == "3"
    assert caught.value.response.headers["x-ratelimit-remaining-requests"] == "0"


def test_our_own_budget_error_is_not_retried(start: Start) -> None:
    class Poor(OpenDoor):
        async def reserve(self, *args: object) -> Any:
            raise BudgetExceeded("the budget is spent")

    proxy = start(embedded_app(new_embedded()), admission=Poor())
    with proxy.other_client(max_retries=2) as client, pytest.raises(openai.RateLimitError) as caught:
        ask(client)
    assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")
    assert len(proxy.ledger.wait()) == 1


def test_a_provider_that_is_not_there(start: Start) -> None:
    proxy = start(embedded_app(new_embedded()), base_url="http://127.0.0.1:1/v1")
    with pytest.raises(openai.InternalServerError) as caught:
        ask(proxy.client)
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_unavailable")
    assert "127.0.0.1" not in caught.value.message


def test_a_provider_that_is_silent(start: Start) -> None:
    proxy = start(embedded_app(new_embedded()), timeout_s=0.1)
    with pytest.raises(openai.InternalServerError) as caught:
        ask(proxy.client, "slow-headers;seconds=30")
    assert (caught.value.status_code, caught.value.code) == (504, "upstream_timeout")


@pytest.mark.parametrize("half", [b"", b'data: {"cho'])
def test_a_stream_that_breaks_raises_in_the_client(start: Start, half: bytes) -> None:
    proxy = start(Scripted(streams(chunk("one "), chunk("two"), half, cut=True)))
    words: list[Any] = []
    with ask(proxy.client, stream=True) as stream, pytest.raises(openai.APIError) as caught:
        words.extend(part.choices[0].delta.content for part in stream)
    assert words == ["one ", "two"]
    assert caught.value.code == "upstream_unavailable"
    assert proxy.ledger.wait()[0].ending is ExchangeOutcome.BROKEN


def test_an_error_event_of_the_provider_raises_in_the_client(start: Start) -> None:
    broken = b'data: {"error": {"message": "overloaded", "type": "server_error", "code": "busy"}}\n\n'
    proxy = start(Scripted(streams(chunk("one"), broken)))
    with ask(proxy.client, stream=True) as stream, pytest.raises(openai.APIError, match="overloaded"):
        list(stream)
    assert proxy.ledger.wait()[0].answer.error_code == "upstream_stream_error"


def test_markers_that_a_provider_refuses_are_taken_back(start: Start) -> None:
    proxy = start(embedded_app(new_embedded()))
    long = [{"role": "system", "content": "Rules. " * 2000}, *HELLO]
    for _ in range(3):
        answer = proxy.client.chat.completions.create(
            model="m", messages=long, extra_headers={"x-embedded-fault": "refuse-rewrite"}
        )
        assert answer.choices
    assert [e.planned.was_retried for e in proxy.ledger.wait(3)] == [True, False, False]


def gone(proxy: Proxy) -> Any:
    (exchange,) = proxy.ledger.wait()
    assert exchange.ending is ExchangeOutcome.HUNG_UP
    assert proxy.ledger.open == 0
    return exchange


def test_a_client_that_leaves_in_mid_stream_stops_the_provider_at_once(start: Start) -> None:
    provider = Scripted(streams(chunk("one"), chunk("two"), ends=False))
    proxy = start(provider)
    with ask(proxy.client, stream=True) as stream:
        assert next(iter(stream)).choices[0].delta.content == "one"
    assert provider.seen[0].gone.wait(WAIT_S), "the provider's stream has no end of its own"
    assert (gone(proxy).answer.status, gone(proxy).answer.outcome.events) == (200, 2)


def call(proxy: Proxy, method: str, path: str, body: Any = None, headers: Any = None) -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=WAIT_S)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v2/models", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/chat/completions", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("GET", "/v1/files/../../admin", 404, "invalid_path"),
    ],
)
def test_wrong_paths_and_methods(start: Start, method: str, path: str, status: int, code: str) -> None:
    proxy = start(Scripted(replies({})))
    got, body, headers = call(proxy, method, path)
    assert (got, body["error"]["code"], body["error"]["type"]) == (status, code, "invalid_request_error")
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize(("body", "code"), [(b"{", "invalid_json"), (b'{"model": "m"}', "missing_messages")])
def test_bodies_that_are_no_chat_request(start: Start, body: bytes, code: str) -> None:
    proxy = start(Scripted(replies({})))
    status, error, headers = call(proxy, "POST", "/v1/chat/completions", body)
    assert (status, error["error"]["code"]) == (400, code)
    (exchange,) = proxy.ledger.wait()
    assert (headers["x-stratiform-id"], exchange.ending) == (exchange.arrival.id, ExchangeOutcome.REFUSED)


def test_bodies_beyond_the_limit_by_length_and_in_chunks(start: Start) -> None:
    proxy = start(Scripted(replies({})), limits=BodyLimits(body_bytes=1000, peek_bytes=1000, upload_bytes=1000))
    for path in ("/v1/chat/completions", "/v1/files"):
        for body in (b"x" * 2000, iter([b"x" * 600, b"x" * 600])):
            status, error, _ = call(proxy, "POST", path, body)
            assert (status, error["error"]["code"]) == (413, "request_too_large")


class BrokenPlanner(PassthroughPlanner):
    async def plan(self, request: PlanRequest) -> Plan:
        raise KeyError("a secret of the prompt")


def test_a_bug_of_ours_is_a_500_without_a_trace_of_it(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    proxy = start(Scripted(replies({})), planner=BrokenPlanner())
    with pytest.raises(openai.InternalServerError) as caught:
        ask(proxy.client)
    assert (caught.value.status_code, caught.value.code) == (500, "internal_error")
    assert "secret" not in caught.value.response.text
    assert "secret" not in caplog.text
    assert "KeyError at test_failures.py" in caplog.text
    assert proxy.ledger.wait()[0].ending is ExchangeOutcome.FAILED

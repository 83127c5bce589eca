"""Spans of exchanges, as a collector gets them over OTLP/HTTP, and what becomes of requests where it is away."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore
from typing import Any

import openai
import pytest
from starlette.types import Receive, Send

from proxy.app import factories
from proxy.app.settings import ConfigError
from proxy.engine.conclusion import Line
from tests.doubles import serving
from tests.receiver import Received, Receiver, send_whole
from tests.services import closed_port
from tests.whole import settings_of, whole

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra `otel` is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

WAIT_S = 30
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HELLO: Any = [{"role": "system", "content": "rules " * 2000}, {"role": "user", "content": "hello"}]


class Collector(Receiver):
    """Keeps what it is sent."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.requests: list[Received] = []
        self.came = Semaphore(0)

    async def answer(self, request: Received, send: Send, receive: Receive) -> None:
        self.requests.append(request)
        await send_whole(send, self.status, headers=[("content-type", "application/x-protobuf")])
        self.came.release()

    def spans(self) -> Iterator[Span]:
        for request in self.requests:
            assert (request.path, request.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
            message = ExportTraceServiceRequest.FromString(request.body)
            for resource in message.resource_spans:
                assert values_of(resource.resource.attributes)["service.name"] == "chat-proxy"
                for scope in resource.scope_spans:
                    yield from scope.spans


def values_of(attributes: Any) -> dict[str, object]:
    return {attribute.key: plain(attribute.value) for attribute in attributes}


def plain(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    assert kind is not None
    found = getattr(value, kind)
    return [plain(one) for one in found.values] if kind == "array_value" else found


def config(endpoint: str) -> str:
    return f"""
model_list:
  - {{model_name: m, litellm_params: {{model: embedded/claude}}, model_info: {{cache_profile: anthropic}}}}
stratiform:
  store: memory
  prices: {{m: {{input_cost_per_token: 1.0e-6, output_cost_per_token: 2.0e-6}}}}
  otel: {{endpoint: "{endpoint}", service: chat-proxy, headers: {{x-collector-key: secret-of-the-collector}}}}
"""


@contextmanager
def client_of(folder: Path, endpoint: str) -> Iterator[openai.OpenAI]:
    with (
        whole(folder, config(endpoint)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="sk-client", max_retries=0) as client,
    ):
        yield client


def test_each_exchange_is_one_span_with_the_values_of_its_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stratiform")
    collector = Collector()
    with serving(collector) as endpoint, client_of(tmp_path, endpoint) as client:
        trace = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        answer = client.chat.completions.create(model="m", messages=HELLO, max_tokens=7, extra_headers=trace)
        streamed = list(client.chat.completions.create(model="m", messages=HELLO, max_tokens=7, stream=True))
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="nobody's", messages=HELLO)
        assert streamed
        assert answer.usage is not None
    lines = [record.msg for record in caplog.records if isinstance(record.msg, Line)]
    spans = list(collector.spans())
    assert all(request.headers["x-collector-key"] == "secret-of-the-collector" for request in collector.requests)
    assert len(lines) == len(spans) == 3
    for line, span in zip(lines, spans, strict=True):
        assert span.kind == Span.SPAN_KIND_CLIENT
        told = {name: value for name, value in values_of(span.attributes).items() if name.startswith("stratiform.")}
        assert told == {f"stratiform.{name}": pytest.approx(value) for name, value in numbers(line).items()}
        assert (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6 == pytest.approx(
            float(line.values["total_ms"]), abs=0.02
        )
    first, second, refused = (values_of(span.attributes) for span in spans)
    assert spans[0].name == "chat m"
    assert (spans[0].trace_id.hex(), spans[0].parent_span_id.hex()) == (TRACE, PARENT)
    assert spans[1].trace_id.hex() != TRACE
    assert not spans[1].parent_span_id
    usage = answer.usage.model_dump()
    assert first["gen_ai.operation.name"] == "chat"
    assert first["gen_ai.provider.name"] == "embedded"
    assert first["gen_ai.request.model"] == "m"
    assert first["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert first["gen_ai.usage.output_tokens"] == usage["completion_tokens"] > 0
    assert first["gen_ai.usage.cache_creation.input_tokens"] > 0 == first["gen_ai.usage.cache_read.input_tokens"]
    assert second["gen_ai.usage.cache_read.input_tokens"] == first["gen_ai.usage.cache_creation.input_tokens"]
    assert first["gen_ai.response.finish_reasons"] == [answer.choices[0].finish_reason]
    assert spans[0].status.code == 0
    assert (refused["error.type"], refused["http.response.status_code"]) == ("model_not_found", 404)
    assert spans[2].status.code == 2
    assert "rules" not in str(spans)
    assert "sk-client" not in str(spans)


def numbers(line: Line) -> dict[str, object]:
    """The values, as numbers where they are some."""
    return {name: str(value) if isinstance(value, str) else float(value) for name, value in line.values.items()}


@pytest.mark.slow
@pytest.mark.parametrize("is_silent", [False, True], ids=["refuses", "is silent"])
def test_no_request_waits_for_a_collector_that(
    is_silent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with closed_port() as closed, socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(WAIT_S)
        port = silent.getsockname()[1] if is_silent else closed
        with client_of(tmp_path, f"http://127.0.0.1:{port}") as client:
            client.chat.completions.create(model="m", messages=HELLO)
            if is_silent:
                # From here on the thread that sends spans waits for an answer.
                connection, _ = silent.accept()
                assert connection.recv(1)
            for _ in range(30):
                assert client.chat.completions.create(model="m", messages=HELLO[1:], max_tokens=1).choices
            if is_silent:
                connection.close()


def test_the_log_says_once_that_a_collector_takes_no_spans_and_once_that_it_does_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stratiform")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    collector = Collector(status=400)
    with serving(collector) as endpoint, client_of(tmp_path, endpoint) as client:
        for status in (400, 400, 400, 200, 200):
            collector.status = status
            client.chat.completions.create(model="m", messages=HELLO, max_tokens=1)
            assert collector.came.acquire(timeout=WAIT_S)
    told = [record for record in caplog.records if "collector of spans" in record.getMessage()]
    assert [record.levelname for record in told] == ["WARNING", "INFO"]


def test_without_the_extra_the_configuration_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factories, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"stratiform\[otel\]"):
        factories.spans_of(settings_of(tmp_path, config("http://127.0.0.1:4318")))


@pytest.mark.parametrize("sampler", ["", "parentbased_always_on"])
def test_a_client_hides_no_request_unless_the_operator_has_chosen_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    if sampler:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    collector = Collector()
    with serving(collector) as endpoint, client_of(tmp_path, endpoint) as client:
        trace = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
        client.chat.completions.create(model="m", messages=HELLO, max_tokens=1, extra_headers=trace)
        client.chat.completions.create(model="m", messages=HELLO, max_tokens=1)
    assert len(list(collector.spans())) == (1 if sampler else 2)

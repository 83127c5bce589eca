"""One OpenTelemetry span for each exchange, sent to a collector over OTLP/HTTP.

This module is imported only if the configuration names a collector, because it needs the extra ``otel``. A span is made
when its exchange has ended. It is put into a bounded queue and sent by a thread, so that no request waits for a
collector. Spans that do not fit into the queue are dropped. A span holds the values of the log line and no text of a
prompt.

The names follow the semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai). Their ``input_tokens`` include cache reads and cache
writes, as ``Usage.prompt`` does.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from decimal import Decimal
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy import __version__
from proxy.engine.conclusion import Value, exchange_values, shown
from proxy.engine.exchange import Exchange, ExchangeOutcome

_PATH = "/v1/traces"
_CLOSE_S = 5.0
_OPERATIONS = {
    "/chat/completions": "chat",
    "/messages": "chat",
    "/responses": "chat",
    "/completions": "text_completion",
    "/embeddings": "embeddings",
}
# The conventions' name of a provider, if it differs from LiteLLM's name.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
# The conventions' name of a value of the log line.
_NAMES = {
    "model": "gen_ai.request.model",
    "prompt": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "read": "gen_ai.usage.cache_read.input_tokens",
    "write": "gen_ai.usage.cache_creation.input_tokens",
}

_log = logging.getLogger("stratiform")


class Spans:
    """Makes spans and sends them to the collector at ``endpoint``, with these ``headers``. ``has_sampler``: the
    operator's environment chooses a sampler. Otherwise every exchange has a span, because a client must not be able to
    hide its exchanges."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], service: str, *, has_sampler: bool = False) -> None:
        address = endpoint if endpoint.endswith(_PATH) else endpoint + _PATH
        resource = Resource.create({"service.name": service, "service.version": __version__})
        self._provider = TracerProvider(
            sampler=None if has_sampler else ALWAYS_ON, resource=resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(_Exporter(endpoint=address, headers=dict(headers))))
        self._tracer = self._provider.get_tracer("stratiform", __version__)
        self._traces = TraceContextTextMapPropagator()

    def record(self, exchange: Exchange) -> None:
        """Make the span of an exchange that has ended. It belongs to the trace that the client names."""
        values, began_s, trace = exchange_values(exchange), exchange.arrival.now, exchange.arrival.trace
        operation = "chat" if exchange.arrival.is_chat else _OPERATIONS.get(exchange.arrival.path, "")
        span = self._tracer.start_span(
            f"{operation} {values.get('model', '')}".strip() or str(values["method"]),
            context=self._traces.extract({"traceparent": trace}, Context()) if trace else Context(),
            kind=SpanKind.CLIENT,
            attributes=_attributes(exchange, operation, values),
            start_time=int(began_s * 1e9),
        )
        if exchange.ending is not ExchangeOutcome.COMPLETED:
            span.set_status(StatusCode.ERROR)
        span.end(int((began_s + exchange.total_s) * 1e9))

    async def aclose(self) -> None:
        """Send the spans that wait. If the collector is away, they are given up: the thread ends with the process."""
        thread = Thread(target=self._provider.shutdown, name="spans", daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, _CLOSE_S)


class _Exporter(OTLPSpanExporter):
    """Logs once that the collector does not take spans, and once that it takes them again."""

    is_away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        is_away = result is not SpanExportResult.SUCCESS
        if is_away and not self.is_away:
            _log.warning("the collector of spans (stratiform.otel) takes none: they are dropped until it does")
        elif self.is_away and not is_away:
            _log.info("the collector of spans takes them again")
        self.is_away = is_away
        return result


def _attributes(exchange: Exchange, operation: str, values: Mapping[str, Value]) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"stratiform.{name}": float(value) if isinstance(value, Decimal) else value for name, value in values.items()
    }
    found["http.response.status_code"] = exchange.status
    if operation:
        found["gen_ai.operation.name"] = operation
    if exchange.deployment is not None:
        server = exchange.deployment.server
        found["gen_ai.provider.name"] = _PROVIDERS.get(server, server) or exchange.deployment.transport.value
        if host := urlsplit(exchange.deployment.base_url).hostname:
            found["server.address"] = host
    found |= {theirs: values[ours] for ours, theirs in _NAMES.items() if ours in values}
    if finish := exchange.answer.outcome.finish_reason:
        found["gen_ai.response.finish_reasons"] = [shown(finish, exchange.arrival.keys)]
    if exchange.ending is not ExchangeOutcome.COMPLETED:
        found["error.type"] = str(values.get("error") or exchange.ending or "_OTHER")
    return found

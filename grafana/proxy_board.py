"""The board *Proxy*: how the proxy and its providers do."""

from grafana.panels import SHARE, STACKED, Json, Query, Row, board, lines, stat, states
from grafana.queries import MODEL, REQUESTS, VARIABLES, a_minute, increase, percentiles, rate


def _proxy_rows() -> list[Row]:
    errors = rate("upstream_errors_total", MODEL)
    retryable = f'kind=~"timeout|unavailable|rate-limited|quota|server-error",{MODEL}'
    build = "on (job, instance) group_left (version) stratiform_build_info"
    cpu = f"sum(rate(process_cpu_seconds_total[$__rate_interval]) * {build})"
    return [
        Row(
            "Now",
            [
                REQUESTS,
                stat("In flight", "sum(stratiform_in_flight)", "short", "Exchanges under way now, all models."),
                stat(
                    "Failed upstream calls",
                    f"{increase('upstream_errors_total', MODEL)} or vector(0)",
                    "short",
                    "Calls of providers that failed in the selected time, also where another attempt followed.",
                ),
                stat(
                    "Overhead, p99",
                    f"histogram_quantile(0.99, {increase('overhead_seconds_bucket', '', 'le')})",
                    "s",
                    "The proxy's own time before a request was forwarded, in the selected time.",
                    decimals=4,
                ),
                stat("Store away", "max(stratiform_store_away)", "short", "1 while the store does not answer."),
                stat("Processes", "count(stratiform_build_info)", "short", "Proxies that Prometheus reaches."),
            ],
        ),
        Row(
            "The path",
            [
                lines(
                    "Overhead",
                    "s",
                    *percentiles("overhead_seconds"),
                    text="The proxy's own time before a request was forwarded, all models.",
                ),
                lines(
                    "Time to first byte",
                    "s",
                    *percentiles("time_to_first_byte_seconds", MODEL),
                    text="From the request's arrival to the first byte of the answer: ours and the provider's time.",
                ),
                lines(
                    "Requests a second by status",
                    "reqps",
                    Query(rate("requests_total", MODEL, "status"), "{{status}}"),
                    text="499: the client left before an answer began.",
                    axis=STACKED,
                ),
                lines(
                    "Trouble, events a minute",
                    "short",
                    a_minute("upstream_errors_total", MODEL, "kind", "upstream: {{kind}}"),
                    a_minute("retries_original_total", "", "", "refused rewrites, retried as they came"),
                    a_minute("client_disconnects_total", "", "", "clients that hung up"),
                    a_minute("plugin_errors_total", "", "plugin, hook", "plugin {{plugin}}, {{hook}}"),
                    text="What went wrong, at providers, at clients, and in plugins.",
                ),
                lines(
                    "CPU a request",
                    "s",
                    Query(f"{cpu} / {rate('requests_total')}", "CPU"),
                    text="CPU seconds of the proxy's process for each exchange that ended.",
                ),
                lines(
                    "Memory",
                    "bytes",
                    Query(f"process_resident_memory_bytes * {build}", "{{instance}}, {{version}}"),
                    text="Resident memory by instance and version.",
                ),
            ],
        ),
        Row(
            "Retries, fallbacks, circuit breakers",
            [
                lines(
                    "Failed attempts that another one followed, a minute",
                    "short",
                    a_minute("retries_total", MODEL, "model, kind", "{{model}}: {{kind}}"),
                    text="By the model whose deployment failed, and why. The next attempt went there again, to another "
                    "deployment of the model, or to a fallback.",
                    width=8,
                ),
                lines(
                    "Failures kept from clients",
                    "percentunit",
                    Query(
                        f"{rate('retries_total', MODEL, 'kind')} / {rate('upstream_errors_total', retryable, 'kind')}",
                        "{{kind}}",
                    ),
                    text="Share of failed attempts that another one followed, of those failures that may be tried "
                    "again. The rest reached the client: attempts, time or deployments had run out.",
                    width=8,
                    axis=SHARE,
                ),
                lines(
                    "Failed upstream calls, as a share of requests",
                    "percentunit",
                    Query(f"{errors} / {rate('requests_total', MODEL)}", "share"),
                    text="The alert on upstream errors goes by this.",
                    width=8,
                ),
                states(
                    "Circuit breakers",
                    [("closed", "green"), ("half-open", "yellow"), ("open", "red")],
                    Query("max by (deployment) (stratiform_breaker_state)", "{{deployment}}"),
                    "State of every breaker that has opened since the start, as the last call left it; of several "
                    "workers the worst. Half-open: one call is let through, and decides.",
                ),
                lines(
                    "Requests refused by open circuits, a minute",
                    "short",
                    a_minute("upstream_errors_total", f'kind="circuit-open",{MODEL}', "model", "{{model}}"),
                    text="No deployment of the model was left to ask, nor of its fallbacks: the client got 503 "
                    "circuit_open.",
                ),
            ],
        ),
        Row(
            "Context windows",
            [
                lines(
                    "Full context windows, a minute",
                    "short",
                    a_minute("edited_messages_total", 'edit=~"window-.*"', "edit", "{{edit}}"),
                    a_minute("context_refusals_total", "", "outcome", "upstream: {{outcome}}"),
                    text="Window-trimmed: messages that were left out because the window was full. Window-shortened: "
                    "named parts of which something was cut off. Upstream: requests that the upstream found too large "
                    "all the same, by what came of them.",
                    width=24,
                ),
            ],
        ),
    ]


def proxy_board() -> Json:
    """The dashboard."""
    return board(
        "proxy", "Proxy", "How the proxy and its providers do: times, errors, retries.", VARIABLES[:1], _proxy_rows()
    )
